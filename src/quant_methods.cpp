#include "src/quant_methods.hpp"

#include "qf/quant/gptq.hpp"
#include "qf/quant/rtn.hpp"

namespace qf::quant::detail {
namespace {

// What may follow or precede any method: correcting a layer's mean output, moving a grid so that 0 is exact
// in the middle, cutting the tails of the histogram (a share of the weights).
#define QF_COMMON_OPTIONS                                                                \
  {"bias_compensation", OptionKind::flag}, {"zero_point_alignment", OptionKind::flag}, { \
    "histogram_clipping", OptionKind::number, 0, 0.5                                     \
  }

constexpr OptionEntry kCommon[] = {QF_COMMON_OPTIONS};
constexpr OptionEntry kAwq[] = {
    QF_COMMON_OPTIONS, {"grid", OptionKind::number, 1, 1000, true}, {"clip", OptionKind::flag, 0, 0, true}};
constexpr OptionEntry kGptq[] = {QF_COMMON_OPTIONS,
                                 {"act_order", OptionKind::flag, 0, 0, true},
                                 {"damping", OptionKind::number, 0, 1, true},
                                 {"alpha", OptionKind::number, 0, 1, true},
                                 {"sequential", OptionKind::flag, 0, 0, true}};
constexpr OptionEntry kKl[] = {QF_COMMON_OPTIONS, {"bins", OptionKind::number, 16, 65536}};
constexpr OptionEntry kMeans[] = {QF_COMMON_OPTIONS, {"iterations", OptionKind::number, 1, 1000}};
constexpr OptionEntry kBest[] = {
    QF_COMMON_OPTIONS, {"alpha", OptionKind::number, 0, 1, true}, {"tune", OptionKind::flag}};

constexpr MethodEntry kMethods[] = {
    {"rtn", true, CodebookKind::none, kCommon},       {"awq", true, CodebookKind::none, kAwq},
    {"gptq", true, CodebookKind::none, kGptq},        {"kl", false, CodebookKind::none, kKl},
    {"kmeans", false, CodebookKind::per_row, kMeans}, {"best", true, CodebookKind::none, kBest},
};

template <Quantizer Q>
Method owned(Q quantizer) {
  const auto owner = std::make_shared<const Q>(std::move(quantizer));
  return {owner, QuantizerRef(*owner)};
}

// The option of a rule, or what holds without it.
template <class T>
T option(const RecipeRule& rule, std::string_view name, T otherwise) {
  for (const auto& [key, value] : rule.options)
    if (const T* mine = std::get_if<T>(&value); mine && key == name) return *mine;
  return otherwise;
}

// A solver with what it has to be told.
struct Solver {
  static constexpr bool kNeedsWholeMatrix = Gptq::kNeedsWholeMatrix;
  Gptq gptq;
  bool sequential = true;

  std::string_view name() const { return gptq.name(); }
  StatisticsNeeds statistics() const {
    return {{.hessian = true, .cross = sequential && gptq.options().alpha > 0}, sequential};
  }
  Result<QuantizedMatrix> quantize(const QuantizerInput& in) const { return gptq.quantize(in); }
};

// How much of the target is shifted to make up for what is quantized before: codes of 2 bits have no room for more.
double default_alpha(int bits) {
  return bits <= 2 ? 0.25 : 0.5;
}

Result<Method> gptq_of(const RecipeRule& rule) {
  GptqOptions options;
  options.act_order = option(rule, "act_order", options.act_order);
  options.damping = option(rule, "damping", options.damping);
  options.alpha = option(rule, "alpha", options.alpha);
  const bool sequential = option(rule, "sequential", true);
  if (options.alpha > 0 && !sequential)
    return Status(
        Errc::invalid_argument,
        "method 'gptq': option 'alpha' needs 'sequential': the float model's inputs don't differ from "
        "themselves");
  return owned(Solver{Gptq(options), sequential});
}

// What AWQ does with weights that are scaled already: round to nearest, on clipped ranges but for q and k, which its
// authors leave alone.
struct Awq {
  bool clip = true;

  static constexpr std::string_view name() { return "awq"; }
  StatisticsNeeds statistics() const { return {{.hessian = clip, .channels = !clip}, false}; }
  Result<QuantizedMatrix> quantize(const QuantizerInput& in) const {
    for (std::string_view linear : {".q_proj.weight", ".k_proj.weight", ".qkv_proj.weight"})
      if (!clip || in.name.ends_with(linear)) return Rtn().quantize(in);
    return ClippedRtn({.kind = ClipKind::hessian_blocks, .least = 0.5, .steps = 10, .zeros = false})
        .quantize(in);
  }
};

Method awq_of(const RecipeRule& rule) {
  Method method = owned(Awq{option(rule, "clip", true)});
  method.scale_grid = static_cast<int>(option(rule, "grid", 20.0));
  return method;
}

Solver best_of(const RecipeRule& rule) {
  return {Gptq::best(option(rule, "alpha", default_alpha(rule.scheme.bits)))};
}

}  // namespace

std::span<const MethodEntry> methods() {
  return kMethods;
}

const MethodEntry* find_method(std::string_view name) {
  for (const MethodEntry& method : kMethods)
    if (method.name == name) return &method;
  return nullptr;
}

Result<Method> make_method(const RecipeRule& rule) {
  if (rule.method == Rtn::name()) return owned(Rtn());
  if (rule.method == "gptq") return gptq_of(rule);
  if (rule.method == "awq") return awq_of(rule);
  if (rule.method == "best") return owned(best_of(rule));
  return Status(Errc::internal, cat({"method ", printable(rule.method), " has no quantizer"}));
}

}  // namespace qf::quant::detail
