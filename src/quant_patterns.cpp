#define PCRE2_CODE_UNIT_WIDTH 8
#include "src/quant_patterns.hpp"

#include <pcre2.h>

namespace qf::quant::detail {
namespace {

constexpr std::size_t kLongestRegex = 1024;
constexpr std::uint32_t kDeepestGroup = 32;
constexpr std::uint32_t kMostSteps = 100000;
constexpr std::uint32_t kMostHeapKib = 4096;

std::string message(int code) {
  PCRE2_UCHAR text[160];
  if (pcre2_get_error_message(code, text, sizeof text) < 0) return "error " + num(code);
  return reinterpret_cast<const char*>(text);
}

}  // namespace

bool glob_matches(std::string_view glob, std::string_view name) {
  std::size_t g = 0, n = 0, star = std::string_view::npos, resume = 0;
  while (n < name.size()) {
    if (g < glob.size() && glob[g] == '*') {
      star = g++;
      resume = n;
    } else if (g < glob.size() && (glob[g] == '?' || glob[g] == name[n])) {
      ++g;
      ++n;
    } else if (star != std::string_view::npos) {  // let the last star take one character more
      g = star + 1;
      n = ++resume;
    } else {
      return false;
    }
  }
  while (g < glob.size() && glob[g] == '*') ++g;
  return g == glob.size();
}

Result<Regex> Regex::compile(const std::string& pattern) {
  if (pattern.size() > kLongestRegex)
    return Status(Errc::invalid_argument, cat({"a regex of ", num(pattern.size()), " bytes, at most ",
                                               num(kLongestRegex), " expected"}));
  const std::unique_ptr<pcre2_compile_context, void (*)(pcre2_compile_context*)> context(
      pcre2_compile_context_create(nullptr), pcre2_compile_context_free);
  if (!context) return Status(Errc::out_of_memory, "no memory for a regex");
  pcre2_set_parens_nest_limit(context.get(), kDeepestGroup);
  int code = 0;
  PCRE2_SIZE at = 0;
  pcre2_code* compiled =
      pcre2_compile(reinterpret_cast<PCRE2_SPTR>(pattern.data()), pattern.size(),
                    PCRE2_ANCHORED | PCRE2_ENDANCHORED | PCRE2_NEVER_BACKSLASH_C, &code, &at, context.get());
  if (!compiled)
    return Status(Errc::invalid_argument,
                  cat({"regex ", printable(pattern), ": ", message(code), " (at byte ", num(at), ")"}));
  Regex regex;
  regex.code_ = std::shared_ptr<const void>(
      compiled, [](const void* p) { pcre2_code_free(static_cast<pcre2_code*>(const_cast<void*>(p))); });
  return regex;
}

Result<bool> Regex::matches(std::string_view name) const {
  const auto* code = static_cast<const pcre2_code*>(code_.get());
  const std::unique_ptr<pcre2_match_context, void (*)(pcre2_match_context*)> context(
      pcre2_match_context_create(nullptr), pcre2_match_context_free);
  const std::unique_ptr<pcre2_match_data, void (*)(pcre2_match_data*)> data(
      pcre2_match_data_create(1, nullptr), pcre2_match_data_free);
  if (!context || !data) return Status(Errc::out_of_memory, "no memory for a regex");
  pcre2_set_match_limit(context.get(), kMostSteps);
  pcre2_set_depth_limit(context.get(), kMostSteps);
  pcre2_set_heap_limit(context.get(), kMostHeapKib);
  const int found = pcre2_match(code, reinterpret_cast<PCRE2_SPTR>(name.data()), name.size(), 0, 0,
                                data.get(), context.get());
  if (found >= 0) return true;
  if (found == PCRE2_ERROR_NOMATCH) return false;
  return Status(Errc::invalid_argument, cat({"regex against ", printable(name), ": ", message(found)}));
}

}  // namespace qf::quant::detail
