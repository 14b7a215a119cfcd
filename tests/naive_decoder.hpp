// A Llama decoder in f64, written from its description alone, that shows the input of every linear.
#pragma once

#include <catch2/catch.hpp>
#include <cmath>
#include <map>
#include <string>
#include <vector>

#include "qf/calib/samples.hpp"
#include "qf/io/checkpoint.hpp"
#include "qf/io/compressed_tensors.hpp"
#include "qf/model/config.hpp"
#include "tests/io_files.hpp"

namespace naive {

struct Matrix {
  std::int64_t columns = 0;
  std::vector<double> values;  // [rows, columns]

  std::int64_t rows() const { return static_cast<std::int64_t>(values.size()) / columns; }
  double& at(std::int64_t r, std::int64_t c) { return values[static_cast<std::size_t>(r * columns + c)]; }
  double at(std::int64_t r, std::int64_t c) const {
    return values[static_cast<std::size_t>(r * columns + c)];
  }
};
inline Matrix zeros(std::int64_t rows, std::int64_t columns) {
  return {columns, std::vector<double>(static_cast<std::size_t>(rows * columns))};
}

struct Model {
  qf::model::ModelConfig config;
  std::map<std::string, Matrix> weights;  // by module; of one dimension as a row
};
using Taps = std::map<std::string, Matrix>;  // by module: the inputs of all tokens

inline Model read(const std::string& folder) {
  Model model;
  auto config = qf::model::parse_config(io_test::slurp(folder + "/config.json"), "config.json");
  REQUIRE(config.ok());
  model.config = *config;
  auto file = qf::io::open_checkpoint(folder);
  REQUIRE(file.ok());
  for (const auto& info : (*file)->tensors()) {
    if (!info.name.ends_with(".weight")) continue;
    std::vector<float> values(info.elements);
    REQUIRE((*file)->read_f32(info, 0, values).ok());
    model.weights[info.name.substr(0, info.name.size() - 7)] = {info.shape.back(),
                                                                {values.begin(), values.end()}};
  }
  return model;
}

// `folder` with low-bit linears, `source` where its float weights came from.
inline Model read_quantized(const std::string& folder, const std::string& source) {
  Model model = read(source);
  const std::string text = io_test::slurp(folder + "/config.json");
  auto config = qf::io::parse_quantization_config(text, "config.json");
  REQUIRE(config.ok());
  auto file = qf::io::open_checkpoint(folder);
  REQUIRE(file.ok());
  for (auto& [module, w] : model.weights) {
    if (!qf::io::is_quantized(**file, module)) continue;
    auto q = qf::io::read_quantized(**file, module, **config);
    REQUIRE(q.ok());
    for (std::int64_t r = 0; r < q->n(); ++r)
      for (std::int64_t c = 0; c < q->k(); ++c) w.at(r, c) = static_cast<double>(q->value(r, c));
  }
  return model;
}

// x w^T
inline Matrix linear(const Matrix& x, const Matrix& w) {
  Matrix y = zeros(x.rows(), w.rows());
  for (std::int64_t t = 0; t < x.rows(); ++t)
    for (std::int64_t n = 0; n < w.rows(); ++n)
      for (std::int64_t k = 0; k < w.columns; ++k) y.at(t, n) += x.at(t, k) * w.at(n, k);
  return y;
}

inline Matrix norm(const Matrix& x, const Matrix& w, double eps) {
  Matrix y = x;
  for (std::int64_t t = 0; t < x.rows(); ++t) {
    double squares = 0;
    for (std::int64_t c = 0; c < x.columns; ++c) squares += x.at(t, c) * x.at(t, c);
    for (std::int64_t c = 0; c < x.columns; ++c)
      y.at(t, c) *=
          w.values[static_cast<std::size_t>(c)] / std::sqrt(squares / static_cast<double>(x.columns) + eps);
  }
  return y;
}

inline void rotate(Matrix& x, std::int64_t d, double theta) {
  for (std::int64_t t = 0; t < x.rows(); ++t)
    for (std::int64_t h = 0; h < x.columns; h += d)
      for (std::int64_t i = 0; i < d / 2; ++i) {
        const double angle =
            static_cast<double>(t) * std::pow(theta, -2.0 * static_cast<double>(i) / static_cast<double>(d));
        double &a = x.at(t, h + i), &b = x.at(t, h + i + d / 2);
        const double c = a * std::cos(angle) - b * std::sin(angle);
        b = b * std::cos(angle) + a * std::sin(angle);
        a = c;
      }
}

inline Matrix attention(const Matrix& q, const Matrix& k, const Matrix& v, std::int64_t d) {
  Matrix out = zeros(q.rows(), q.columns);
  const std::int64_t share = q.columns / k.columns;
  for (std::int64_t h = 0; h < q.columns / d; ++h)
    for (std::int64_t t = 0; t < q.rows(); ++t) {
      std::vector<double> p;
      double sum = 0;
      for (std::int64_t s = 0; s <= t; ++s) {
        double score = 0;
        for (std::int64_t i = 0; i < d; ++i) score += q.at(t, h * d + i) * k.at(s, h / share * d + i);
        p.push_back(std::exp(score / std::sqrt(static_cast<double>(d))));
        sum += p.back();
      }
      for (std::int64_t s = 0; s <= t; ++s)
        for (std::int64_t i = 0; i < d; ++i)
          out.at(t, h * d + i) += p[static_cast<std::size_t>(s)] / sum * v.at(s, h / share * d + i);
    }
  return out;
}

inline void add(Matrix& to, const Matrix& from) {
  for (std::size_t i = 0; i < to.values.size(); ++i) to.values[i] += from.values[i];
}
inline Matrix minus(Matrix a, const Matrix& b) {
  for (std::size_t i = 0; i < a.values.size(); ++i) a.values[i] -= b.values[i];
  return a;
}

// a^T b / rows
inline std::vector<double> product(const Matrix& a, const Matrix& b) {
  Matrix sum = zeros(a.columns, b.columns);
  for (std::int64_t t = 0; t < a.rows(); ++t)
    for (std::int64_t i = 0; i < a.columns; ++i)
      for (std::int64_t j = 0; j < b.columns; ++j)
        sum.at(i, j) += a.at(t, i) * b.at(t, j) / static_cast<double>(a.rows());
  return sum.values;
}

inline Taps run(const Model& model, const qf::calib::Samples& samples) {
  Taps taps;
  const auto& c = model.config;
  const auto tap = [&](const std::string& module, const Matrix& x) {
    Matrix& all = taps[module];
    all.columns = x.columns;
    all.values.insert(all.values.end(), x.values.begin(), x.values.end());
  };
  const auto w = [&](const std::string& module) -> const Matrix& { return model.weights.at(module); };
  for (std::int64_t i = 0; i < samples.count; ++i) {
    Matrix x = zeros(samples.length, c.hidden);
    for (std::int64_t t = 0; t < samples.length; ++t)
      for (std::int64_t j = 0; j < c.hidden; ++j)
        x.at(t, j) = w("model.embed_tokens").at(samples.sequence(i)[static_cast<std::size_t>(t)], j);
    for (std::int64_t l = 0; l < c.layers; ++l) {
      const std::string layer = "model.layers." + std::to_string(l), attn = layer + ".self_attn.",
                        mlp = layer + ".mlp.";
      Matrix h = norm(x, w(layer + ".input_layernorm"), c.norm_eps);
      for (const char* name : {"q_proj", "k_proj", "v_proj"}) tap(attn + name, h);
      Matrix q = linear(h, w(attn + "q_proj")), k = linear(h, w(attn + "k_proj")),
             v = linear(h, w(attn + "v_proj"));
      rotate(q, c.head_dim, c.rope.theta);
      rotate(k, c.head_dim, c.rope.theta);
      const Matrix a = attention(q, k, v, c.head_dim);
      tap(attn + "o_proj", a);
      add(x, linear(a, w(attn + "o_proj")));
      h = norm(x, w(layer + ".post_attention_layernorm"), c.norm_eps);
      for (const char* name : {"gate_proj", "up_proj"}) tap(mlp + name, h);
      Matrix g = linear(h, w(mlp + "gate_proj"));
      const Matrix u = linear(h, w(mlp + "up_proj"));
      for (std::size_t j = 0; j < g.values.size(); ++j)
        g.values[j] = g.values[j] / (1 + std::exp(-g.values[j])) * u.values[j];
      tap(mlp + "down_proj", g);
      add(x, linear(g, w(mlp + "down_proj")));
    }
    if (model.weights.contains("lm_head")) tap("lm_head", norm(x, w("model.norm"), c.norm_eps));
  }
  return taps;
}

}  // namespace naive
