// What the tests of models share: a decoder from tests/golden/model, its expected logits, runs of it.
#pragma once

#include <catch2/catch.hpp>
#include <cmath>
#include <cstring>
#include <string>
#include <vector>

#include "qf/io/checkpoint.hpp"
#include "qf/model/decoder.hpp"

namespace model_test {

inline std::string golden(const std::string& name) {
  return std::string(QF_GOLDEN "/model/") + name;
}

inline std::unique_ptr<qf::model::Decoder> load(const std::string& folder,
                                                const qf::model::LoadOptions& options = {}) {
  auto decoder = qf::model::Decoder::load(folder, options);
  INFO(decoder.status().text());
  REQUIRE(decoder.ok());
  return std::move(*decoder);
}

struct Expected {
  std::vector<std::int32_t> ids;
  std::vector<float> logits;  // [ids.size(), vocab]
};

inline Expected expected(const std::string& folder) {
  auto file = qf::io::open_checkpoint(folder + "/expected.safetensors");
  INFO(file.status().text());
  REQUIRE(file.ok());
  const qf::io::TensorInfo *ids = (*file)->find("ids"), *logits = (*file)->find("logits");
  REQUIRE(ids);
  REQUIRE(logits);
  Expected out;
  out.ids.resize(ids->elements);
  std::memcpy(out.ids.data(), (*file)->bytes(*ids).data(), ids->elements * 4);
  out.logits.resize(logits->elements);
  REQUIRE((*file)->read_f32(*logits, 0, out.logits).ok());
  return out;
}

// Logits of every token, given to forward() in chunks of `step`.
inline std::vector<float> run(qf::model::Decoder& decoder, std::span<const std::int32_t> ids,
                              std::int64_t step, qf::model::KvStore& kv) {
  const std::int64_t vocab = decoder.config().vocab, count = static_cast<std::int64_t>(ids.size());
  std::vector<float> logits(static_cast<std::size_t>(count * vocab));
  for (std::int64_t i = 0; i < count; i += step) {
    const std::int64_t n = std::min(step, count - i);
    const qf::Status status =
        decoder.forward(ids.subspan(static_cast<std::size_t>(i), static_cast<std::size_t>(n)), kv,
                        {logits.data() + i * vocab, {n, vocab}});
    INFO(status.text());
    REQUIRE(status.ok());
  }
  return logits;
}
inline std::vector<float> run(qf::model::Decoder& decoder, std::span<const std::int32_t> ids,
                              std::int64_t step) {
  auto kv = decoder.make_kv(static_cast<std::int64_t>(ids.size()));
  REQUIRE(kv.ok());
  return run(decoder, ids, step, **kv);
}

// The largest difference, relative to the largest |expected|.
inline double relative_error(std::span<const float> got, std::span<const float> want) {
  REQUIRE(got.size() == want.size());
  double worst = 0, scale = 0;
  for (std::size_t i = 0; i < got.size(); ++i) {
    if (!std::isfinite(got[i])) return INFINITY;
    worst = std::max(worst, std::abs(static_cast<double>(got[i]) - want[i]));
    scale = std::max(scale, std::abs(static_cast<double>(want[i])));
  }
  return worst / scale;
}

}  // namespace model_test
