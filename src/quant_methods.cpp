#include "src/quant_methods.hpp"

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
    QF_COMMON_OPTIONS, {"grid", OptionKind::number, 1, 1000}, {"clip", OptionKind::flag}};
constexpr OptionEntry kGptq[] = {QF_COMMON_OPTIONS,
                                 {"act_order", OptionKind::flag},
                                 {"damping", OptionKind::number, 0, 1},
                                 {"alpha", OptionKind::number, 0, 1},
                                 {"sequential", OptionKind::flag}};
constexpr OptionEntry kKl[] = {QF_COMMON_OPTIONS, {"bins", OptionKind::number, 16, 65536}};
constexpr OptionEntry kMeans[] = {QF_COMMON_OPTIONS, {"iterations", OptionKind::number, 1, 1000}};
constexpr OptionEntry kBest[] = {
    QF_COMMON_OPTIONS, {"alpha", OptionKind::number, 0, 1}, {"tune", OptionKind::flag}};

constexpr MethodEntry kMethods[] = {
    {"rtn", true, CodebookKind::none, kCommon},       {"awq", false, CodebookKind::none, kAwq},
    {"gptq", false, CodebookKind::none, kGptq},       {"kl", false, CodebookKind::none, kKl},
    {"kmeans", false, CodebookKind::per_row, kMeans}, {"best", false, CodebookKind::none, kBest},
};

template <Quantizer Q>
Method owned(Q quantizer) {
  const auto owner = std::make_shared<const Q>(std::move(quantizer));
  return {owner, QuantizerRef(*owner)};
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
  return Status(Errc::internal, cat({"method ", printable(rule.method), " has no quantizer"}));
}

}  // namespace qf::quant::detail
