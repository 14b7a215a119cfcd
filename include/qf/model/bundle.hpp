// Needs: link qf. A model with everything around it: decoder, tokenizer, chat template, defaults.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "qf/model/decoder.hpp"
#include "qf/model/sampler.hpp"
#include "qf/text/chat_template.hpp"
#include "qf/text/tokenizer.hpp"

namespace qf::model {

// What comes with a model beside its weights. Parts that are missing or that qf can't use are no error until
// someone asks for them.
struct TextSide {
  std::unique_ptr<text::Tokenizer> tokenizer;  // null: tokenizer_status says why
  Status tokenizer_status;
  text::ChatTemplate chat = text::ChatTemplate::none;
  Status chat_status;             // why `chat` is none: there is no template, or not one of ours
  SamplerOptions sampler;         // as the model's makers advise; greedy where they say nothing
  std::vector<std::int32_t> eos;  // ends a text: of the configuration and of generation_config.json

  // The tokenizer, or the error that says why there is none.
  Result<const text::Tokenizer*> need_tokenizer() const {
    if (!tokenizer) return tokenizer_status;
    return static_cast<const text::Tokenizer*>(tokenizer.get());
  }
};

struct Bundle {
  std::unique_ptr<Decoder> decoder;
  TextSide text;
};

// `path` as for Decoder::load. From a folder: tokenizer.json, tokenizer_config.json, chat_template.jinja and
// generation_config.json; from GGUF: its metadata. Errors: those of Decoder::load, JSON that is broken.
Result<Bundle> load_bundle(const std::string& path, const LoadOptions& options = {});

// The text side alone, without weights.
Result<TextSide> load_text_side(const std::string& path);

}  // namespace qf::model
