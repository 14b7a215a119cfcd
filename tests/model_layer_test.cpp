// A model run layer by layer is the model.
#include "qf/model/layer_runner.hpp"

#include "qf/kernel/dense.hpp"
#include "tests/io_files.hpp"
#include "tests/model_test.hpp"

using namespace qf;
using namespace qf::model;
using model_test::golden;

namespace {

Array<float> floats(std::int64_t count) {
  auto array = Array<float>::make(static_cast<std::size_t>(count));
  REQUIRE(array.ok());
  return std::move(*array);
}

// The input of the head for every token.
std::vector<float> run_layers(LayerRunner& runner, std::span<const std::int32_t> ids) {
  const ModelConfig& c = runner.config();
  const auto tokens = static_cast<std::int64_t>(ids.size());
  const std::int64_t q = input_width(c, LayerInput::o), ffn = input_width(c, LayerInput::down);
  Array<float> hidden = floats(tokens * c.hidden), normed = floats(tokens * c.hidden),
               wide = floats(tokens * q), inner = floats(tokens * ffn);
  const MatrixView<float> x(hidden.data(), {tokens, c.hidden}), n(normed.data(), {tokens, c.hidden}),
      a(wide.data(), {tokens, q}), g(inner.data(), {tokens, ffn});
  const auto ok = [](const Status& status) {
    INFO(status.text());
    REQUIRE(status.ok());
  };
  ok(runner.embed(ids, x));
  for (std::int64_t layer = 0; layer < c.layers; ++layer) {
    auto w = runner.load(layer);
    INFO(w.status().text());
    REQUIRE(w.ok());
    ok(runner.norm(*w, LayerInput::qkv, x, n));
    ok(runner.attend(*w, layer, n, a));
    ok(runner.add(*w, LayerInput::o, a, x));
    ok(runner.norm(*w, LayerInput::gate_up, x, n));
    ok(runner.activate(*w, n, g));
    ok(runner.add(*w, LayerInput::down, g, x));
  }
  ok(runner.final_norm(x, n));
  return {normed.begin(), normed.end()};
}

}  // namespace

TEST_CASE("layer runner: every architecture's logits to the bit of the decoder's") {
  for (const char* name : {"llama2", "llama3", "llama_bias", "smollm2", "mistral", "qwen2", "qwen3",
                           "phi3_short", "phi3_long"}) {
    INFO(name);
    const std::string folder = golden(name);
    auto decoder = model_test::load(folder);
    const auto expected = model_test::expected(folder);
    const auto count = static_cast<std::int64_t>(expected.ids.size());
    const std::vector<float> want = model_test::run(*decoder, expected.ids, count);

    ThreadPool pool(3);
    auto runner = LayerRunner::open(folder, pool.parallel_for());
    INFO(runner.status().text());
    REQUIRE(runner.ok());
    const std::vector<float> hidden = run_layers(**runner, expected.ids);
    const ModelConfig& c = (*runner)->config();
    auto file = io::open_checkpoint(folder);
    REQUIRE(file.ok());
    const io::TensorInfo* info = (*file)->find(c.tied_head ? "model.embed_tokens.weight" : "lm_head.weight");
    REQUIRE(info);
    std::vector<float> head(info->elements);
    REQUIRE((*file)->read_f32(*info, 0, head).ok());
    auto w = kernel::DenseWeight::make(c.vocab, c.hidden);
    REQUIRE(w.ok());
    w->fill(0, {head.data(), {c.vocab, c.hidden}});
    std::vector<float> logits(static_cast<std::size_t>(count * c.vocab));
    REQUIRE(
        kernel::dense_matmul({hidden.data(), {count, c.hidden}}, *w, {logits.data(), {count, c.vocab}}).ok());
    REQUIRE(model_test::relative_error(logits, want) == 0);
  }
}

TEST_CASE("layer runner: sequences of any length one after the other") {
  auto runner = LayerRunner::open(golden("phi3_short"));
  REQUIRE(runner.ok());
  const auto ids = model_test::expected(golden("phi3_short")).ids;
  const auto whole = run_layers(**runner, ids);
  const std::int64_t hidden = (*runner)->config().hidden;
  for (const std::size_t length : {std::size_t{1}, std::size_t{7}, ids.size(), std::size_t{3}}) {
    const auto part = run_layers(**runner, std::span(ids).first(length));
    REQUIRE(std::memcmp(part.data(), whole.data(), length * static_cast<std::size_t>(hidden) * 4) == 0);
  }
}

TEST_CASE("layer runner: a linear replaced by low-bit codes computes with their values") {
  auto runner = LayerRunner::open(golden("llama2"));
  REQUIRE(runner.ok());
  const ModelConfig& c = (*runner)->config();
  auto w = (*runner)->load(0);
  REQUIRE(w.ok());
  auto codes = QuantizedMatrix::make({.bits = 4, .group = 0}, c.hidden, c.ffn);
  REQUIRE(codes.ok());
  for (std::int64_t r = 0; r < c.hidden; ++r) {
    codes->scales()(r, 0) = 0.5f;
    for (std::int64_t k = 0; k < c.ffn; ++k) codes->codes()(r, k) = static_cast<std::uint8_t>((r + k) % 3);
  }
  REQUIRE((*runner)->set(*w, "model.layers.0.mlp.down_proj", *codes).ok());
  std::vector<float> x(static_cast<std::size_t>(c.ffn), 1.0f), y(static_cast<std::size_t>(c.hidden), 2.0f);
  REQUIRE((*runner)->add(*w, LayerInput::down, {x.data(), {1, c.ffn}}, {y.data(), {1, c.hidden}}).ok());
  for (std::int64_t r = 0; r < c.hidden; ++r) {
    float sum = 2;
    for (std::int64_t k = 0; k < c.ffn; ++k) sum += 0.5f * static_cast<float>((r + k) % 3);
    REQUIRE(y[static_cast<std::size_t>(r)] == Approx(sum));
  }
  REQUIRE((*runner)->set(*w, "model.layers.1.mlp.down_proj", *codes).text() ==
          "'model.layers.1.mlp.down_proj': no linear of the layer");
  REQUIRE((*runner)->set(*w, "model.layers.0.mlp.up_proj", *codes).code() == Errc::invalid_argument);
}

TEST_CASE("layer runner: what can't be run is refused when it is opened, and bad calls later") {
  io_test::TempFolder temp;
  REQUIRE(LayerRunner::open(temp / "none").status().code() == Errc::not_found);
  const std::string from = golden("llama2");
  io_test::put(temp / "config.json", io_test::slurp(from + "/config.json"));
  std::string weights = io_test::slurp(from + "/model.safetensors");
  const auto at = weights.find("up_proj");
  REQUIRE(at != weights.npos);
  weights.replace(at, 7, "xx_proj");
  io_test::put(temp / "model.safetensors", weights);
  const Status status = LayerRunner::open(temp / "").status();
  REQUIRE(status.code() == Errc::not_found);
  REQUIRE(status.text().find("mlp.up_proj.weight' is missing") != std::string::npos);

  auto runner = LayerRunner::open(from);
  REQUIRE(runner.ok());
  const std::int64_t hidden = (*runner)->config().hidden;
  std::vector<float> x(static_cast<std::size_t>(hidden));
  const std::int32_t ids[] = {static_cast<std::int32_t>((*runner)->config().vocab)};
  REQUIRE((*runner)->embed(ids, {x.data(), {1, hidden}}).code() == Errc::invalid_argument);
  REQUIRE((*runner)->embed(ids, {x.data(), {1, hidden - 1}}).code() == Errc::invalid_argument);
  REQUIRE((*runner)->load(-1).status().code() == Errc::invalid_argument);
  REQUIRE((*runner)->load(99).status().code() == Errc::invalid_argument);
}
