// tokenizer.json from anywhere: refused with a text, or a tokenizer whose ids are in range and decode to UTF-8.
#include <cstdint>
#include <cstdlib>

#include "qf/text/tokenizer.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view document(reinterpret_cast<const char*>(data), size);
  const auto tokenizer = qf::text::Tokenizer::from_json(document, "fuzz");
  if (!tokenizer.ok()) {
    if (tokenizer.status().text().empty()) std::abort();
    return 0;
  }
  static constexpr std::string_view kText =
      "Hello, world's 123  <|end|>\n\ta\xcc\x81 \xe6\x97\xa5\xe6\x9c\xac \xed\xa0\x80 \xf0\x9f\x98\x80 ab ab "
      "ab <s>";
  for (const bool parse_special : {true, false}) {
    const auto ids = (*tokenizer)->encode(kText, {true, parse_special});
    if (!ids.ok()) continue;
    qf::text::StreamDecoder stream(**tokenizer, false);
    for (const std::int32_t id : *ids) {
      if (id < 0 || id >= (*tokenizer)->size()) std::abort();
      if (!stream.push(id).ok()) return 0;
    }
    stream.finish();
    (void)(*tokenizer)->decode(*ids);
  }
  return 0;
}
