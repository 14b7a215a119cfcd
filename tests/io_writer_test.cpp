#include <sys/resource.h>

#include <catch2/catch.hpp>
#include <csignal>
#include <filesystem>
#include <vector>

#include "io_files.hpp"
#include "qf/io/file_writer.hpp"
#include "qf/io/safetensors.hpp"
#include "qf/io/safetensors_writer.hpp"

using namespace qf;
using namespace io_test;
namespace fs = std::filesystem;

namespace {

std::size_t entries(const std::string& folder) {
  return static_cast<std::size_t>(std::distance(fs::directory_iterator(folder), fs::directory_iterator()));
}

// Files of this process may not grow beyond `bytes` while this lives: writes beyond fail with EFBIG.
class FileLimit {
 public:
  explicit FileLimit(rlim_t bytes) {
    old_handler_ = std::signal(SIGXFSZ, SIG_IGN);
    ::getrlimit(RLIMIT_FSIZE, &old_);
    rlimit limit = old_;
    limit.rlim_cur = bytes;
    ::setrlimit(RLIMIT_FSIZE, &limit);
  }
  ~FileLimit() {
    ::setrlimit(RLIMIT_FSIZE, &old_);
    std::signal(SIGXFSZ, old_handler_);
  }

 private:
  rlimit old_{};
  void (*old_handler_)(int) = nullptr;
};

}  // namespace

TEST_CASE("atomic file: whole or not at all") {
  TempFolder folder;
  put(folder / "f", "old");
  {
    auto file = io::AtomicFile::create(folder / "f");
    REQUIRE(file.ok());
    REQUIRE(file->write("new").ok());
    CHECK(slurp(folder / "f") == "old");
    CHECK(entries(folder.path()) == 2);
    auto second = io::AtomicFile::create(folder / "f");
    CHECK(second.status().text() == (folder / "f.partial") + ": is being written by someone else");
  }
  CHECK(slurp(folder / "f") == "old");
  CHECK(entries(folder.path()) == 1);

  put(folder / "f.partial", "left over by a crash, longer than what comes");
  auto file = io::AtomicFile::create(folder / "f");
  REQUIRE(file.ok());
  REQUIRE(file->write_at(2, bytes_of("cd")).ok());
  REQUIRE(file->write_at(0, bytes_of("ab")).ok());
  REQUIRE(file->write("ef").ok());
  CHECK(file->size() == 6);
  REQUIRE(file->commit().ok());
  CHECK(slurp(folder / "f") == "abcdef");
  CHECK(entries(folder.path()) == 1);
  CHECK(file->write("x").text() == (folder / "f") + ": the file is closed");
  CHECK(file->commit().code() == Errc::invalid_argument);
}

TEST_CASE("atomic file: paths that can't be written") {
  TempFolder folder;
  CHECK(io::AtomicFile::create("").status().code() == Errc::invalid_argument);
  CHECK(io::AtomicFile::create(folder.path()).status().text() ==
        folder.path() + ": a folder, expected a file to write");
  CHECK(io::AtomicFile::create(folder / "none/f").status().code() == Errc::not_found);
  fs::create_symlink(folder / "elsewhere", folder / "f.partial");
  CHECK(!io::AtomicFile::create(folder / "f").ok());
  CHECK(!fs::exists(folder / "elsewhere"));
}

TEST_CASE("atomic file: a disk that is full leaves the old file and nothing else") {
  TempFolder folder;
  put(folder / "f", "old");
  auto file = io::AtomicFile::create(folder / "f");
  REQUIRE(file.ok());
  const std::string many(10000, 'x');
  {
    FileLimit limit(4096);
    const Status status = file->write(many);
    CHECK(status.code() == Errc::io_error);
    CHECK(status.text() == (folder / "f") + ": cannot be written: File too large");
    CHECK(file->commit().text() == (folder / "f") + ": the file is closed");
    const std::vector<io::TensorSpec> tensors{{"a", DType::u8, {10000}}};
    auto writer = io::SafetensorsWriter::create(folder / "g", tensors);
    REQUIRE(writer.ok());
    CHECK(writer->write("a", bytes_of(many)).code() == Errc::io_error);
    CHECK(writer->commit().code() == Errc::invalid_argument);
    CHECK(io::write_file(folder / "h", many).code() == Errc::io_error);
  }
  CHECK(slurp(folder / "f") == "old");
  CHECK(entries(folder.path()) == 1);
}

TEST_CASE("read_file: whole, with a cap") {
  TempFolder folder;
  put(folder / "f", std::string_view("a\0b", 3));
  CHECK(*io::read_file(folder / "f", 3) == std::string("a\0b", 3));
  CHECK(io::read_file(folder / "f", 2).status().text() == (folder / "f") + ": 3 bytes, at most 2 expected");
  CHECK(io::read_file(folder / "g", 2).status().code() == Errc::not_found);
  CHECK(io::read_file(folder.path(), 2).status().code() == Errc::invalid_argument);
  CHECK(io::read_file("/dev/full", 2).status().code() == Errc::invalid_argument);
}

TEST_CASE("safetensors writer: any order of tensors gives the same bytes, read back equal") {
  TempFolder folder;
  const std::vector<io::TensorSpec> tensors{
      {"b", DType::u8, {3}}, {"w", DType::bf16, {2, 2}}, {"e", DType::f32, {0, 4}}, {"s", DType::i64, {}}};
  const float w[] = {1.0f, -2.0f, 0.1f, 3.0f};
  const std::string eight = "12345678";
  for (bool backward : {false, true}) {
    auto writer = io::SafetensorsWriter::create(folder / (backward ? "2" : "1"), tensors, {{"format", "pt"}});
    REQUIRE((writer.ok() ? "" : writer.status().text()) == "");
    CHECK(writer->data_bytes() == 19);
    const auto put_b = [&] {
      REQUIRE(writer->write("b", bytes_of("x")).ok());
      REQUIRE(writer->write_f32("w", std::span(w).first(1)).ok());
      REQUIRE(writer->write("b", bytes_of("yz")).ok());
    };
    const auto put_s = [&] { REQUIRE(writer->write("s", bytes_of(eight)).ok()); };
    backward ? (put_s(), put_b()) : (put_b(), put_s());
    CHECK(writer->write("b", bytes_of("1")).text() ==
          writer->path() + ": tensor 'b': 1 bytes more than declared");
    CHECK(writer->write("none", {}).text() == writer->path() + ": tensor 'none' was not declared");
    CHECK(writer->commit().text() == writer->path() + ": tensor 'w': 6 bytes are still to be written");
    REQUIRE(writer->write_f32("w", std::span(w).subspan(1)).ok());
    REQUIRE(writer->commit().text() == "");
  }
  const std::string file = slurp(folder / "1");
  CHECK(file == slurp(folder / "2"));
  const std::string header =
      R"({"__metadata__":{"format":"pt"},"s":{"dtype":"I64","shape":[],"data_offsets":[0,8]},)"
      R"("e":{"dtype":"F32","shape":[0,4],"data_offsets":[8,8]},"w":{"dtype":"BF16","shape":[2,2],"data_offsets":[8,16]},)"
      R"("b":{"dtype":"U8","shape":[3],"data_offsets":[16,19]}})";
  CHECK(file.substr(8, header.size()) == header);
  CHECK((file.size() - 19) % 8 == 0);
  auto opened = io::open_safetensors(folder / "1");
  REQUIRE(opened.ok());
  float back[4];
  REQUIRE((*opened)->read_f32(*(*opened)->find("w"), 0, back).ok());
  CHECK(back[2] == static_cast<float>(bf16(0.1f)));
  (*opened)->release(*(*opened)->find("w"));
  const auto in_memory = io::parse_safetensors(bytes_of(file), "f");  // nothing to give back: bytes stay
  (*in_memory)->release(*(*in_memory)->find("w"));
  CHECK(file == slurp(folder / "1"));
  REQUIRE((*opened)->read_f32(*(*opened)->find("w"), 0, back).ok());
  CHECK(back[3] == 3.0f);
}

TEST_CASE("safetensors writer: what it refuses to declare") {
  TempFolder folder;
  const auto error = [&](std::vector<io::TensorSpec> tensors, io::Metadata metadata = {}) {
    const auto writer = io::SafetensorsWriter::create(folder / "f", tensors, metadata);
    REQUIRE(!writer.ok());
    CHECK(entries(folder.path()) == 0);
    CHECK(writer.status().code() == Errc::invalid_argument);
    return writer.status().text().substr((folder / "f: ").size());
  };
  CHECK(error({{"a", DType::u8, {1}}, {"a", DType::i8, {1}}}) == "tensor 'a' stands twice");
  CHECK(error({{"", DType::u8, {1}}}) == "a tensor can't be named ''");
  CHECK(error({{"__metadata__", DType::u8, {1}}}) == "a tensor can't be named '__metadata__'");
  CHECK(error({{"a\n", DType::u8, {1}}}) == "tensor 'a\\x0a': control bytes in the name");
  CHECK(error({{"\xff", DType::u8, {1}}}) == "'\\xff' is not valid UTF-8");
  CHECK(error({{"a", DType::u8, {-1}}}) == "tensor 'a': its shape is negative or overflows");
  CHECK(error({{"a", DType::u8, {1ll << 32, 1ll << 32}}}) ==
        "tensor 'a': its shape is negative or overflows");
  CHECK(error({{"a", DType::f4e2m1, {3}}}) == "tensor 'a': 3 elements of F4 don't fill whole bytes");
  CHECK(error({}, {{"k", "1"}, {"k", "2"}}) == "metadata 'k' stands twice");
}
