// Counts what the heap gives while a header is parsed, and makes it fail.
#include <malloc.h>

#include <catch2/catch.hpp>
#include <cstdlib>
#include <new>

#include "io_files.hpp"
#include "qf/io/safetensors.hpp"

namespace {

bool g_count = false;
std::size_t g_now = 0, g_peak = 0;
long g_fail_at = -1;     // the allocation that fails; -1: none
bool g_fail_on = false;  // and all after it

void* counted(std::size_t bytes) {
  if (g_count && g_fail_at >= 0 && (g_fail_at == 0 || --g_fail_at == 0)) {
    if (!g_fail_on) g_fail_at = -1;
    throw std::bad_alloc();
  }
  void* p = std::malloc(bytes ? bytes : 1);
  if (!p) throw std::bad_alloc();
  if (g_count) {
    g_now += ::malloc_usable_size(p);
    g_peak = std::max(g_peak, g_now);
  }
  return p;
}

void released(void* p) {
  if (p && g_count) g_now -= std::min(g_now, ::malloc_usable_size(p));
  std::free(p);
}

}  // namespace

void* operator new(std::size_t bytes) {
  return counted(bytes);
}
void* operator new[](std::size_t bytes) {
  return counted(bytes);
}
void* operator new(std::size_t bytes, const std::nothrow_t&) noexcept {
  try {
    return counted(bytes);
  } catch (const std::bad_alloc&) {
    return nullptr;
  }
}
void operator delete(void* p, const std::nothrow_t&) noexcept {
  released(p);
}
void operator delete(void* p) noexcept {
  released(p);
}
void operator delete[](void* p) noexcept {
  released(p);
}
void operator delete(void* p, std::size_t) noexcept {
  released(p);
}
void operator delete[](void* p, std::size_t) noexcept {
  released(p);
}

using namespace qf;
using namespace io_test;

namespace {

std::string many(std::size_t count, auto entry) {
  std::string header = "{";
  for (std::size_t i = 0; i < count; ++i) header += (i ? "," : "") + entry(i);
  return safetensors(header + "}");
}

std::string empty_tensor(const std::string& name, const std::string& shape = "0") {
  return cat({"\"", name, R"(":{"dtype":"U8","shape":[)", shape, R"(],"data_offsets":[0,0]})"});
}

}  // namespace

TEST_CASE("safetensors: memory for a header is in proportion to its bytes") {
  std::string ones = "0";
  for (int i = 1; i < 32; ++i) ones += ",1";
  const std::pair<const char*, std::string> files[] = {
      {"many short tensors", many(20000, [](std::size_t i) { return empty_tensor(num(i)); })},
      {"long names", many(5000, [](std::size_t i) { return empty_tensor(std::string(200, 'a') + num(i)); })},
      {"many dimensions", many(20000, [&](std::size_t i) { return empty_tensor(num(i), ones); })},
      {"one huge name", many(1, [](std::size_t) { return empty_tensor(std::string(3 << 20, 'a')); })},
      {"metadata",
       safetensors("{\"__metadata__\":" +
                   many(4000, [](std::size_t i) { return "\"" + num(i) + "\":\"\""; }).substr(8) + "}")},
      {"braces in a name", many(1, [](std::size_t) { return empty_tensor(std::string(3 << 20, '{')); })},
      {"nesting", safetensors("{\"a\":" + std::string(3 << 20, '['))},
  };
  for (const auto& [what, file] : files) {
    g_now = g_peak = 0;
    g_count = true;
    {
      const auto opened = io::parse_safetensors(bytes_of(file), "f");
      g_count = false;
      INFO(what << ": " << g_peak << " bytes for " << file.size() << ", "
                << (opened.ok() ? "ok" : opened.status().text()));
      const std::string_view name = what;
      CHECK(opened.ok() == (name != "nesting" && name != "one huge name" && name != "braces in a name"));
      CHECK(g_peak <= 4 * file.size() + (1 << 20));
    }
  }
}

TEST_CASE("safetensors: without memory there is an error and nothing else") {
  const std::string file =
      many(20, [](std::size_t i) { return empty_tensor("a name that needs the heap " + num(i)); });
  for (bool on : {false, true}) {
    long failed = 0;
    for (long n = 1;; ++n) {
      g_fail_at = n, g_fail_on = on, g_count = true;
      const auto opened = io::parse_safetensors(bytes_of(file), "f");
      g_count = false;
      if (opened.ok()) break;
      ++failed;
      if (opened.status().code() != Errc::out_of_memory) FAIL(opened.status().text());
    }
    g_fail_at = -1;
    CHECK(failed > 40);
  }
  CHECK(io::parse_safetensors(bytes_of(file), "f").ok());
}
