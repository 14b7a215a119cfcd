#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>

#include <unistd.h>

#include "qf/model/bundle.hpp"
#include "tests/model_test.hpp"

using namespace model_test;
using qf::Errc;

namespace {

namespace fs = std::filesystem;

// A golden model in a folder of its own, with files added.
class Folder {
 public:
  explicit Folder(const std::string& name) {
    static int count = 0;
    path_ = (fs::temp_directory_path() /
             ("qf-bundle-test-" + std::to_string(::getpid()) + "-" + std::to_string(count++)))
                .string();
    fs::copy(golden(name), path_);
  }
  ~Folder() { fs::remove_all(path_); }
  const std::string& path() const { return path_; }
  void add(const std::string& name, const std::string& text) const {
    std::ofstream(path_ + "/" + name) << text;
  }

 private:
  std::string path_;
};

}  // namespace

TEST_CASE("a model without a tokenizer runs until text is asked for") {
  auto bundle = qf::model::load_bundle(golden("llama2"));
  INFO(bundle.status().text());
  REQUIRE(bundle.ok());
  CHECK(bundle->decoder->config().layers == 2);
  CHECK(bundle->text.eos == std::vector<std::int32_t>{2});
  CHECK(bundle->text.sampler.temperature == 0);
  CHECK_FALSE(bundle->text.tokenizer);
  CHECK(bundle->text.need_tokenizer().status().text() ==
        golden("llama2") + "/tokenizer.json: no such file; text needs a tokenizer");
  CHECK(bundle->text.chat_status.text() ==
        golden("llama2") + "/tokenizer_config.json: the model brings no chat template");
}

TEST_CASE("generation defaults") {
  const Folder folder("llama2");
  folder.add(
      "generation_config.json",
      R"({"do_sample": true, "temperature": 0.6, "top_p": 0.9, "eos_token_id": [2, 7], "bos_token_id": 1})");
  auto side = qf::model::load_text_side(folder.path());
  INFO(side.status().text());
  REQUIRE(side.ok());
  CHECK(side->sampler.temperature == 0.6);
  CHECK(side->sampler.top_p == 0.9);
  CHECK(side->sampler.top_k == 50);
  CHECK(side->eos == std::vector<std::int32_t>{2, 7});

  const auto error = [&](const std::string& json) {
    folder.add("generation_config.json", json);
    return qf::model::load_text_side(folder.path()).status().text();
  };
  const std::string where = folder.path() + "/generation_config.json: ";
  CHECK(error(R"({"do_sample": true, "top_p": 2})") ==
        where + "top-p is out of range, expected above 0 and at most 1");
  CHECK(error(R"({"do_sample": true, "temperature": "hot"})") == where + "'temperature' is '\"hot\"'");
  CHECK(error(R"({"eos_token_id": [2, 34]})") == where + "'eos_token_id' is '[2,34]'");
  CHECK(error("[]") == where + "not a JSON object");
}

TEST_CASE("a broken tokenizer is named when it is asked for") {
  const Folder folder("llama2");
  folder.add("tokenizer.json", "{");
  folder.add("tokenizer_config.json", R"({"chat_template": "{{ evil() }}"})");
  auto side = qf::model::load_text_side(folder.path());
  REQUIRE(side.ok());
  CHECK_THAT(side->need_tokenizer().status().text(), Catch::StartsWith(folder.path() + "/tokenizer.json: "));
  CHECK_THAT(side->chat_status.text(), Catch::StartsWith(folder.path() + "/tokenizer_config.json: "));
  CHECK(side->chat == qf::text::ChatTemplate::none);
  CHECK(qf::model::load_bundle("/nonexistent").status().code() == Errc::not_found);
}

TEST_CASE("the reference checkpoint speaks") {
  const char* folder = std::getenv("QF_REFERENCE_AS_IS");
  if (!folder) {
    std::printf("SKIPPED the reference checkpoint speaks: QF_REFERENCE_AS_IS isn't set\n");
    return;
  }
  auto bundle = qf::model::load_bundle(folder);
  INFO(bundle.status().text());
  REQUIRE(bundle.ok());
  auto tokenizer = bundle->text.need_tokenizer();
  REQUIRE(tokenizer.ok());
  auto prompt = (*tokenizer)->encode("The capital of France is");
  REQUIRE(prompt.ok());
  auto kv = bundle->decoder->make_kv(64);
  REQUIRE(kv.ok());
  std::vector<float> logits(static_cast<std::size_t>(bundle->decoder->config().vocab));
  REQUIRE(
      bundle->decoder->forward(*prompt, **kv, {logits.data(), {1, bundle->decoder->config().vocab}}).ok());
  const auto best =
      static_cast<std::int32_t>(std::max_element(logits.begin(), logits.end()) - logits.begin());
  CHECK((*tokenizer)->decode(std::vector<std::int32_t>{best}).value() == " Paris");
}
