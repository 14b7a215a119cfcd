#include <catch2/catch.hpp>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "qf/quant/recipe.hpp"

using namespace qf;
using namespace qf::quant;

namespace {

std::string read_text(const std::string& path) {
  std::ifstream file(path);
  REQUIRE(file.good());
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

Result<Recipe> with_rule(const std::string& rule) {
  return Recipe::parse("{\"version\": 1, \"rules\": [{\"match\": \"x\", \"keep\": true}, " + rule + "]}",
                       "r.json");
}

std::ptrdiff_t found(const Recipe& recipe, std::string_view name) {
  auto index = recipe.find(name);
  REQUIRE(index.ok());
  return *index;
}

}  // namespace

TEST_CASE("recipe: the first rule that matches wins, no rule means keep") {
  auto recipe = Recipe::parse(R"({"version": 1, "rules": [
    {"match": "model.layers.0.*", "keep": true},
    {"match": ["*.q_proj.weight", "*.k_proj.weight"], "method": "rtn", "bits": 8, "symmetric": true, "scale": "bf16"},
    {"match": {"regex": "model\\.layers\\.[0-9]+\\.mlp\\.(up|down)_proj\\.weight"}, "method": "rtn", "bits": 4, "group": 64},
    {"match": "model.layers.?.mlp.gate_proj.weight", "dtype": "f16"}]})",
                              "r.json");
  REQUIRE(recipe.ok());
  REQUIRE(found(*recipe, "model.layers.0.self_attn.q_proj.weight") == 0);
  REQUIRE(found(*recipe, "model.layers.1.self_attn.q_proj.weight") == 1);
  REQUIRE(found(*recipe, "model.layers.12.mlp.down_proj.weight") == 2);
  REQUIRE(found(*recipe, "xmodel.layers.12.mlp.down_proj.weight") == -1);  // a regex matches the whole name
  REQUIRE(found(*recipe, "model.layers.12.mlp.down_proj.weights") == -1);
  REQUIRE(found(*recipe, "model.layers.7.mlp.gate_proj.weight") == 3);
  REQUIRE(found(*recipe, "model.layers.17.mlp.gate_proj.weight") == -1);
  REQUIRE(found(*recipe, "") == -1);
  const auto rules = recipe->rules();
  REQUIRE(rules.size() == 4);
  REQUIRE(rules[0].action == Action::keep);
  REQUIRE(rules[1].scheme ==
          Scheme{.bits = 8, .group = 0, .zero = ZeroKind::symmetric, .scale = DType::bf16});
  REQUIRE(rules[2].scheme == Scheme{.bits = 4, .group = 64, .zero = ZeroKind::integer, .scale = DType::f16});
  REQUIRE(rules[3].action == Action::convert);
  REQUIRE(rules[3].dtype == DType::f16);
  REQUIRE(found(Recipe(), "anything") == -1);
}

TEST_CASE("recipe: globs") {
  const auto matches = [](std::string glob, std::string_view name) {
    RecipeRule rule;
    rule.globs = {std::move(glob)};
    auto recipe = Recipe::make({rule});
    REQUIRE(recipe.ok());
    return found(*recipe, name) == 0;
  };
  REQUIRE(matches("*", ""));
  REQUIRE(matches("*", "a.b"));
  REQUIRE(matches("a*", "a"));
  REQUIRE(matches("a*b*c", "a.b.b.c"));
  REQUIRE_FALSE(matches("a*b*c", "a.b.b.cd"));
  REQUIRE_FALSE(matches("a?", "a"));
  REQUIRE(matches("?.w", "1.w"));
  REQUIRE(matches("a.b", "a.b"));
  REQUIRE_FALSE(matches("a.b", "axb"));  // a dot is a dot
  REQUIRE_FALSE(matches(std::string("*a").append(500, '*').append("b"), std::string(100000, 'a')));
}

TEST_CASE("recipe: what is wrong is named, with its rule") {
  const std::pair<const char*, const char*> kBad[] = {
      {R"([])", "r.json: rule 2: an object expected, found array"},
      {R"({"keep": true})", "r.json: rule 2: 'match' is missing"},
      {R"({"match": "a"})", "r.json: rule 2: one of 'keep', 'dtype' and 'method' expected, found 0"},
      {R"({"match": "a", "keep": true, "dtype": "f16"})",
       "r.json: rule 2: one of 'keep', 'dtype' and 'method' expected, found 2"},
      {R"({"match": "a", "keep": false})", "r.json: rule 2: 'keep': true expected"},
      {R"({"match": "a", "keep": true, "bits": 4})", "r.json: rule 2: 'bits' needs a 'method'"},
      {R"({"match": "a", "dtype": "f8"})", "r.json: rule 2: 'dtype': 'f8', one of f32, f16, bf16 expected"},
      {R"({"match": "a", "method": "rtn", "bit": 4})",
       "r.json: rule 2: unknown key 'bit'; known: match, keep, dtype, method, bits, group, scale, symmetric, "
       "options, "
       "comment"},
      {R"({"match": "a", "method": "rtn"})", "r.json: rule 2: 'bits' is missing"},
      {R"({"match": "a", "method": "rtn", "bits": 9})",
       "r.json: rule 2: 'bits': '9', an integer from 1 to 8 expected"},
      {R"({"match": "a", "method": "rtn", "bits": 4.0})",
       "r.json: rule 2: 'bits': '4.0', an integer from 1 to 8 expected"},
      {R"({"match": "a", "method": "rtn", "bits": "4"})",
       "r.json: rule 2: 'bits': '\"4\"', an integer from 1 to 8 expected"},
      {R"({"match": "a", "method": "rtn", "bits": 18446744073709551615})",
       "r.json: rule 2: 'bits': '18446744073709551615', an integer from 1 to 8 expected"},
      {R"({"match": "a", "method": "rtn", "bits": 4, "group": -1})",
       "r.json: rule 2: 'group': '-1', an integer from 0 to 2147483648 expected"},
      {R"({"match": "a", "method": "rtn", "bits": 4, "symmetric": 1})",
       "r.json: rule 2: 'symmetric': true or false expected"},
      {R"({"match": "a", "method": "rtn", "bits": 4, "scale": "i8"})",
       "r.json: rule 2: 'scale': 'i8', one of f32, f16, bf16 expected"},
      {R"({"match": "a", "method": "magic", "bits": 4})",
       "r.json: rule 2: unknown method 'magic'; known: rtn, awq, gptq, kl, kmeans, best"},
      {R"({"match": "a", "method": "rtn\u0001", "bits": 4})",
       "r.json: rule 2: unknown method 'rtn\\x01'; known: rtn, awq, gptq, kl, kmeans, best"},
      {R"({"match": "a", "method": "kl", "bits": 4, "options": {"bin": 3}})",
       "r.json: rule 2: unknown option 'bin' of method 'kl'; known: bias_compensation, zero_point_alignment, "
       "histogram_clipping, bins"},
      {R"({"match": "a", "method": "kl", "bits": 4, "options": {"bins": 3}})",
       "r.json: rule 2: option 'bins': a number from 16.0 to 65536.0 expected"},
      {R"({"match": "a", "method": "rtn", "bits": 4, "options": {"bias_compensation": 1}})",
       "r.json: rule 2: option 'bias_compensation': true or false expected"},
      {R"({"match": "a", "method": "rtn", "bits": 4, "options": 3})",
       "r.json: rule 2: 'options': an object expected, found number"},
      {R"({"match": "a", "method": "rtn", "bits": 4, "options": {"bias_compensation": null}})",
       "r.json: rule 2: 'options': a string expected, found null"},
      {R"({"match": [], "keep": true})", "r.json: rule 2: 'match': an empty list matches nothing"},
      {R"({"match": [1], "keep": true})", "r.json: rule 2: 'match': a string expected, found number"},
      {R"({"match": "", "keep": true})", "r.json: rule 2: 'match': an empty pattern"},
      {R"({"match": "a[0-9]", "keep": true})",
       "r.json: rule 2: 'match': pattern 'a[0-9]': '*' and '?' are the only wildcards; use a regex"},
      {R"({"match": {"glob": "a"}, "keep": true})",
       "r.json: rule 2: 'match': a pattern, a list of patterns or {\"regex\": ...} expected"},
      {R"({"match": {"regex": "a("}, "keep": true})",
       "r.json: rule 2: regex 'a(': missing closing parenthesis (at byte 2)"},
      {R"({"match": {"regex": ""}, "keep": true})", "r.json: rule 2: 'match': an empty regex"},
      {R"({"match": "a", "match": "b", "keep": true})", "r.json: the key 'match' stands twice in one object"},
      {R"({"match": "a", "keep": true, "comment": 1})", "r.json: rule 2: 'comment': a string expected"},
  };
  for (const auto& [rule, text] : kBad) {
    INFO(rule);
    auto recipe = with_rule(rule);
    REQUIRE_FALSE(recipe.ok());
    REQUIRE(recipe.status().code() == Errc::invalid_argument);
    REQUIRE(recipe.status().text() == text);
  }
  const std::pair<const char*, const char*> kBadFiles[] = {
      {"",
       "r.json: not valid JSON: parse error at line 1, column 1: syntax error while parsing value - "
       "unexpected end "
       "of input; expected '[', '{', or a literal (byte 1)"},
      {"[]", "r.json: an object expected, found array"},
      {R"({"rules": []})", "r.json: 'version' is missing; 1 expected"},
      {R"({"version": 2, "rules": []})", "r.json: 'version': '2', 1 expected"},
      {R"({"version": 1})", "r.json: 'rules': a list expected"},
      {R"({"version": 1, "rules": {}})", "r.json: 'rules': a list expected"},
      {R"({"version": 1, "rules": [], "rule": 1})",
       "r.json: unknown key 'rule'; known: version, rules, comment"},
      {R"({"version": 1, "rules": [[[[[[[[[]]]]]]]]]})", "r.json: JSON nested deeper than 8"},
  };
  for (const auto& [text, expected] : kBadFiles) {
    INFO(text);
    REQUIRE(Recipe::parse(text, "r.json").status().text() == expected);
  }
  REQUIRE(Recipe::parse(std::string(2 << 20, ' '), "r.json").status().text() ==
          "r.json: 2097152 bytes of JSON, at most 1048576 expected");
}

TEST_CASE("recipe: limits on rules, patterns and regular expressions") {
  RecipeRule rule;
  rule.globs = {"a"};
  REQUIRE(Recipe::make(std::vector<RecipeRule>(1001, rule)).status().text() ==
          "1001 rules, at most 1000 expected");
  rule.globs.assign(1001, "a");
  REQUIRE(Recipe::make({rule}).status().text() == "rule 1: 'match': 1001 patterns, at most 1000 expected");
  rule.globs = {std::string(1025, 'a')};
  REQUIRE(Recipe::make({rule}).status().text() ==
          "rule 1: 'match': a pattern of 1025 bytes, at most 1024 expected");
  rule.globs.clear();
  REQUIRE(Recipe::make({rule}).status().text() ==
          "rule 1: 'match': one pattern kind, globs or a regex, expected");
  rule.regex = std::string(1025, 'a');
  REQUIRE(Recipe::make({rule}).status().text() == "rule 1: a regex of 1025 bytes, at most 1024 expected");
  rule.regex = std::string(200, '(') + std::string(200, ')');
  REQUIRE_FALSE(Recipe::make({rule}).ok());
  rule.regex = "(a+)+$";  // exponential in a backtracking matcher
  auto recipe = Recipe::make({rule});
  REQUIRE(recipe.ok());
  auto index = recipe->find(std::string(60, 'a') + "b");
  REQUIRE((!index.ok() || *index == -1));
  rule.regex = "(x+x+)+[yz]\\1";
  recipe = Recipe::make({rule});
  REQUIRE(recipe->find(std::string(80, 'x')).status().text() ==
          "rule 1: regex against '" + std::string(80, 'x') + "': match limit exceeded");
}

TEST_CASE("recipe: as JSON and back") {
  const std::string text =
      read_text(std::string(QF_GOLDEN) + "/../../examples/recipes/seven-layer-chain.json");
  auto recipe = Recipe::parse(text, "seven-layer-chain.json");
  REQUIRE(recipe.ok());
  const std::string canonical = recipe->to_json();
  auto again = Recipe::parse(canonical, "again");
  REQUIRE(again.ok());
  REQUIRE(again->to_json() == canonical);
  REQUIRE(std::equal(recipe->rules().begin(), recipe->rules().end(), again->rules().begin(),
                     again->rules().end()));
}

TEST_CASE("recipe: the chain of seven layers is understood, and what can't run yet is refused by name") {
  const std::string text =
      read_text(std::string(QF_GOLDEN) + "/../../examples/recipes/seven-layer-chain.json");
  auto recipe = Recipe::parse(text, "seven-layer-chain.json");
  REQUIRE(recipe.ok());
  const auto rules = recipe->rules();
  REQUIRE(rules.size() == 7);
  const auto rule = [&](std::string_view name) {
    const std::ptrdiff_t i = found(*recipe, name);
    REQUIRE(i >= 0);
    return rules[static_cast<std::size_t>(i)];
  };
  REQUIRE(rule("vision.patch_embed.proj.weight").dtype == DType::f16);
  for (std::string_view name :
       {"blocks.0.attn.q_proj.weight", "blocks.0.attn.k_proj.weight", "decoder.1.self_attn.v_proj.weight"}) {
    REQUIRE(rule(name).method == "rtn");
    REQUIRE(rule(name).scheme == Scheme{.bits = 8, .group = 0, .zero = ZeroKind::symmetric});
  }
  REQUIRE(rule("decoder.1.cross_attn.k_proj.weight").method == "kl");
  REQUIRE(rule("decoder.1.cross_attn.k_proj.weight").scheme.bits == 6);
  const RecipeRule convolution = rule("decoder.up.0.conv1.weight");
  REQUIRE(convolution.method == "kmeans");
  REQUIRE(convolution.scheme.bits == 5);
  REQUIRE(convolution.scheme.codebook == CodebookKind::per_row);
  REQUIRE(convolution.options == MethodOptions{{"bias_compensation", true}});
  const RecipeRule head = rule("lm_head.weight");
  REQUIRE(head.scheme.bits == 4);
  REQUIRE(head.options == MethodOptions{{"histogram_clipping", 0.001}, {"zero_point_alignment", true}});

  const Status status = check_available(*recipe);
  REQUIRE(status.code() == Errc::unsupported);
  REQUIRE(status.text() ==
          "method 'kl' (rule 5) is not available in this version; available: rtn, awq, gptq, best");
  auto rest = Recipe::make({rules[0], rules[1], rules[6]});
  REQUIRE(check_available(*rest).text() ==
          "option 'histogram_clipping' of method 'rtn' (rule 3) is not available in this version");
  REQUIRE(check_available(*Recipe::make({rules[0], rules[1]})).ok());
  auto off =
      with_rule(R"({"match": "a", "method": "rtn", "bits": 4, "options": {"bias_compensation": false}})");
  REQUIRE(check_available(*off).ok());
}

TEST_CASE("recipe: the default quantizes the decoder's linears only") {
  auto recipe = default_recipe("rtn", {.bits = 4, .group = 64});
  REQUIRE(recipe.ok());
  for (std::string_view name :
       {"model.layers.0.self_attn.q_proj.weight", "model.layers.11.self_attn.k_proj.weight",
        "model.layers.0.self_attn.v_proj.weight", "model.layers.0.self_attn.o_proj.weight",
        "model.layers.0.mlp.gate_proj.weight", "model.layers.0.mlp.up_proj.weight",
        "model.layers.0.mlp.down_proj.weight", "model.layers.0.self_attn.qkv_proj.weight",
        "model.layers.0.mlp.gate_up_proj.weight"})
    REQUIRE(found(*recipe, name) == 0);
  for (std::string_view name :
       {"model.embed_tokens.weight", "lm_head.weight", "model.norm.weight",
        "model.layers.0.input_layernorm.weight", "model.layers.0.self_attn.q_proj.bias",
        "model.layers.0.self_attn.q_norm.weight"})
    REQUIRE(found(*recipe, name) == -1);
  REQUIRE(default_recipe("rtn", {.bits = 12}).status().text() == "rule 1: bits 12, expected 1 to 8");
  REQUIRE(default_recipe("rtm", {}).status().text() ==
          "rule 1: unknown method 'rtm'; known: rtn, awq, gptq, kl, kmeans, best");
  const std::string_view own[] = {"mine"};
  auto mine = default_recipe("mine", {}, own);
  REQUIRE(mine.ok());
  REQUIRE(check_available(*mine, own).ok());
  REQUIRE(check_available(*mine).text() ==
          "method 'mine' (rule 1) is not available in this version; available: rtn, awq, gptq, best");
  REQUIRE(available_methods() == std::vector<std::string_view>{"rtn", "awq", "gptq", "best"});
}
