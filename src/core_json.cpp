#include "qf/core/json.hpp"

#include <unordered_set>
#include <vector>

namespace qf {
namespace {

// Builds the document and, on the way, refuses what the parser itself lets through: depth and repeated keys.
class Builder : public nlohmann::detail::json_sax_dom_parser<Json> {
  using Base = nlohmann::detail::json_sax_dom_parser<Json>;

 public:
  Builder(Json& root, int depth_limit) : Base(root, false), depth_limit_(depth_limit) {}

  bool start_object(std::size_t n) {
    keys_.emplace_back();
    return enter() && Base::start_object(n);
  }
  bool end_object() {
    keys_.pop_back();
    --depth_;
    return Base::end_object();
  }
  bool start_array(std::size_t n) { return enter() && Base::start_array(n); }
  bool end_array() {
    --depth_;
    return Base::end_array();
  }
  bool key(std::string& name) {
    if (!keys_.back().insert(name).second)
      return fail("the key " + printable(name) + " stands twice in one object");
    return Base::key(name);
  }
  bool parse_error(std::size_t position, const std::string&, const nlohmann::detail::exception& e) {
    std::string text = e.what();  // "[json.exception.parse_error.101] parse error at line 1, column 2: ..."
    if (auto end = text.find("] "); end != std::string::npos) text = text.substr(end + 2);
    if (text.size() > 300) text.resize(300);
    for (char& c : text)
      if (static_cast<unsigned char>(c) < 0x20 || static_cast<unsigned char>(c) >= 0x7f) c = '?';
    return fail("not valid JSON: " + text + " (byte " + num(position) + ")");
  }
  const std::string& error() const { return error_; }

 private:
  bool enter() {
    if (++depth_ > depth_limit_) return fail("JSON nested deeper than " + num(depth_limit_));
    return true;
  }
  bool fail(std::string text) {
    if (error_.empty()) error_ = std::move(text);
    return false;
  }
  std::vector<std::unordered_set<std::string>> keys_;
  int depth_ = 0, depth_limit_;
  std::string error_;
};

}  // namespace

Result<Json> parse_json(std::string_view text, std::string_view what, JsonLimits limits) {
  if (text.size() > limits.bytes)
    return Status(Errc::bad_format, cat({what, ": ", num(text.size()), " bytes of JSON, at most ",
                                         num(limits.bytes), " expected"}));
  Json root;
  Builder builder(root, limits.depth);
  if (!Json::sax_parse(text.begin(), text.end(), &builder))
    return Status(Errc::bad_format,
                  cat({what, ": ", builder.error().empty() ? "not valid JSON" : builder.error()}));
  return root;
}

}  // namespace qf
