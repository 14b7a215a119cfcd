// Files of packed weights: what is written is what is mapped, and files that lie are refused.
#include <catch2/catch.hpp>
#include <cstring>

#include "qf/model/packed_file.hpp"
#include "tests/io_files.hpp"
#include "tests/kernel_tools.hpp"

using namespace qf;
using namespace qf::kernel;
using namespace qf::kernel::test;
using model::NamedWeight;
using model::PackedFile;

namespace {

struct Weights {
  std::vector<PackedWeight> packed;
  std::vector<NamedWeight> named;
};

Weights some_weights() {
  Rng rng(1);
  Weights w;
  const Scheme schemes[] = {{4, 32, ZeroKind::symmetric, DType::f16, CodebookKind::none},
                            {3, 0, ZeroKind::integer, DType::bf16, CodebookKind::none},
                            {4, 16, ZeroKind::symmetric, DType::f32, CodebookKind::per_matrix}};
  for (const Scheme& s : schemes) {
    QuantizedMatrix m = random_matrix(rng, s, 21, 70);
    if (s.codebook != CodebookKind::none) {
      std::vector<std::int32_t> group_of;
      for (std::int32_t c = 0; c < 70; ++c) group_of.push_back((69 - c) / 16);
      REQUIRE(m.set_group_of(group_of).ok());
    }
    w.packed.push_back(prepack(m).value());
  }
  w.named = {{"layer.1", &w.packed[0]}, {"layer.0", &w.packed[1]}, {"layer.2", &w.packed[2]}};
  return w;
}

std::string text_of(const std::string& path) {
  auto opened = PackedFile::open(path);
  if (opened.ok()) return "accepted";
  CHECK(opened.status().text().substr(0, path.size()) == path);
  return opened.status().text().substr(path.size());
}

}  // namespace

TEST_CASE("packed weights come back from a file in place, and multiply alike") {
  const io_test::TempFolder folder;
  const Weights w = some_weights();
  const std::string path = folder.path() + "/weights.qfp";
  REQUIRE(model::save_packed(path, w.named, "a hash").ok());
  auto opened = PackedFile::open(path);
  INFO(opened.status().text());
  REQUIRE(opened.ok());
  const PackedFile file = std::move(*opened);
  CHECK(file.source() == "a hash");
  CHECK(file.names().size() == 3);
  CHECK(file.names()[0] == "layer.0");
  CHECK(file.find("layer.3") == nullptr);
  std::vector<float> x(70), y(21), expected(21);
  for (std::size_t i = 0; i < x.size(); ++i) x[i] = std::sin(static_cast<float>(i));
  for (const NamedWeight& named : w.named) {
    const PackedWeight* mapped = file.find(named.name);
    REQUIRE(mapped);
    CHECK(mapped->buffer().size() == named.weight->buffer().size());
    CHECK(std::memcmp(mapped->buffer().data(), named.weight->buffer().data(), mapped->buffer().size()) == 0);
    REQUIRE(matmul({x.data(), {1, 70}}, *mapped, {y.data(), {1, 21}}).ok());
    REQUIRE(matmul({x.data(), {1, 70}}, *named.weight, {expected.data(), {1, 21}}).ok());
    CHECK(y == expected);
  }
  // None at all is a file too.
  REQUIRE(model::save_packed(path, {}).ok());
  CHECK(text_of(path) == "accepted");
}

TEST_CASE("names of packed weights are given once") {
  const io_test::TempFolder folder;
  Weights w = some_weights();
  const std::string path = folder.path() + "/weights.qfp";
  w.named[1].name = "layer.1";
  CHECK(model::save_packed(path, w.named).text() == path + ": two weights named 'layer.1'");
  w.named[1].name = "";
  CHECK(model::save_packed(path, w.named).text() == path + ": a weight without a name");
  CHECK(PackedFile::open(path).status().code() == Errc::not_found);
}

TEST_CASE("a file of packed weights is believed only where every field fits") {
  const io_test::TempFolder folder;
  const Weights w = some_weights();
  const std::string path = folder.path() + "/weights.qfp";
  REQUIRE(model::save_packed(path, w.named, "source").ok());
  const std::string whole = io_test::slurp(path);
  std::uint64_t index = 0;
  std::memcpy(&index, whole.data() + 16, 8);
  const auto with = [&](std::size_t at, auto value) {
    std::string changed = whole;
    std::memcpy(changed.data() + at, &value, sizeof value);
    io_test::put(path, changed);
    return text_of(path);
  };
  const std::string size = num(whole.size());
  CHECK(with(0, 'Q') == "accepted");
  CHECK(with(0, std::uint32_t{1}) == ": magic 1, expected 1179666001");
  CHECK(with(4, std::uint16_t{2}) == ": version 2, expected 1");
  CHECK(with(6, std::uint16_t{3}) == ": reserved field 3, expected 0");
  CHECK(with(8, std::uint32_t{2}).find(": offset of the index ") == 0);
  CHECK(with(8, UINT32_MAX).find(": size of the index ") == 0);
  CHECK(with(12, std::uint32_t{5}) == ": bytes behind the index 6, expected 5");
  CHECK(with(12, UINT32_MAX).find(": size of the index ") == 0);
  CHECK(with(16, std::uint64_t{63}) == ": offset of the index 63, expected 64 to " + size);
  CHECK(with(16, UINT64_MAX).find(": offset of the index ") == 0);
  CHECK(with(24, std::uint64_t{7}) == ": size in the header 7, expected " + size);
  CHECK(with(63, std::uint8_t{1}).find(": reserved field ") == 0);
  CHECK(with(64, std::uint32_t{9}) == ": weight 'layer.0': magic 9, expected 1464878673");
  CHECK(with(index, std::uint64_t{65}) == ": weight 'layer.0': offset 65, expected 64");
  CHECK(with(index + 8, std::uint64_t{64}).find(": weight 'layer.0': size 64, expected ") == 0);
  CHECK(with(index + 8, UINT64_MAX).find(": weight 'layer.0': size ") == 0);
  CHECK(with(index + 16, UINT32_MAX).find(": size of the index ") == 0);
  CHECK(with(index + 20, 'z').find(": weight 'layer.1': names aren't in order") == 0);
  // Cut anywhere, and any byte of the header and the index changed: an error or a file that works.
  for (std::size_t cut = 0; cut < whole.size(); cut += cut < 130 ? 1 : 97) {
    io_test::put(path, whole.substr(0, cut));
    CHECK(text_of(path) != "accepted");
  }
  for (std::size_t at = 0; at < whole.size(); at = at == 127 ? index : at + 1)
    for (int value : {0, 1, 127, 255}) {
      std::string changed = whole;
      changed[at] = static_cast<char>(value);
      io_test::put(path, changed);
      auto opened = PackedFile::open(path);
      if (!opened.ok()) continue;
      for (const std::string& name : opened->names()) {
        const PackedWeight& p = *opened->find(name);
        if (p.k() > 4096 || p.n() > 4096) continue;
        std::vector<float> x(static_cast<std::size_t>(p.k())), y(static_cast<std::size_t>(p.n()));
        CHECK(matmul({x.data(), {1, p.k()}}, p, {y.data(), {1, p.n()}}).ok());
      }
    }
}

TEST_CASE("the order of columns of a mapped weight is checked") {
  Weights w = some_weights();
  const std::span<const std::byte> good = w.packed[2].buffer();
  REQUIRE(w.packed[2].column_order().size() == 70);
  const auto at = static_cast<std::size_t>(
      reinterpret_cast<const std::byte*>(w.packed[2].column_order().data()) - good.data());
  for (std::int32_t value : {-1, 70, w.packed[2].column_order()[0]}) {
    Array<std::byte> copy = Array<std::byte>::make(good.size()).value();
    std::memcpy(copy.data(), good.data(), good.size());
    std::memcpy(copy.data() + at + 4 * 3, &value, 4);
    CHECK(PackedWeight::from_bytes(copy, "w").status().text() ==
          "w: column " + num(value) + " at place 3 of the order of columns, expected each of 0 to 69 once");
    CHECK(PackedWeight::from_bytes(std::span<const std::byte>(copy).subspan(1), "w").status().text() ==
          "w: a packed weight that isn't aligned to 64 bytes");
  }
}
