// SPDX-License-Identifier: Apache-2.0
// Whatever tokenizer.json loads (with itself as the files beside it) encodes to ids of its
// vocabulary, and what it decodes is well-formed and the same whether streamed or not.
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "base/utf8.h"
#include "model/tokenizer_json.h"

namespace {

constexpr const char* kSamples[] = {
    R"({"added_tokens":[{"id":4,"content":"<e>","special":true}],"normalizer":{"type":"NFC"},)"
    R"("pre_tokenizer":{"type":"Sequence","pretokenizers":[{"type":"Split","pattern":{"Regex":)"
    R"("\\s?[a-z]+|\\d{1,3}"},"behavior":"Isolated","invert":false},{"type":"ByteLevel",)"
    R"("add_prefix_space":true,"use_regex":true}]},"decoder":{"type":"ByteLevel"},)"
    R"("model":{"type":"BPE","vocab":{"a":0,"b":1,"ab":2,"c":3},"merges":["a b"]}})",
    R"({"normalizer":{"type":"Sequence","normalizers":[{"type":"Prepend","prepend":"▁"},)"
    R"({"type":"Replace","pattern":{"String":" "},"content":"▁"}]},"pre_tokenizer":)"
    R"({"type":"Metaspace","replacement":"▁","prepend_scheme":"first","split":true},)"
    R"("decoder":{"type":"Sequence","decoders":[{"type":"Replace","pattern":{"String":"▁"},)"
    R"("content":" "},{"type":"ByteFallback"},{"type":"Fuse"},{"type":"Strip","content":" ",)"
    R"("start":1,"stop":0}]},"post_processor":{"type":"TemplateProcessing","single":[{"SpecialToken")"
    R"(:{"id":"<s>"}},{"Sequence":{"id":"A"}}],"special_tokens":{"<s>":{"ids":[0]}}},)"
    R"("model":{"type":"BPE","byte_fallback":true,"unk_token":"<s>","vocab":{"<s>":0,"<0x41>":1,)"
    R"("▁":2,"a":3,"▁a":4},"merges":[["▁","a"]]}})",
};

void check_decoding(const cohort::Tokenizer& tokenizer, const std::vector<cohort::TokenId>& ids) {
  cohort::IncrementalDecoder decoder(tokenizer, true);
  std::string streamed;
  for (cohort::TokenId id : ids) streamed += decoder.push(id);
  streamed += decoder.flush();
  if (!cohort::utf8_valid(streamed) || streamed != tokenizer.decode(ids, true)) std::abort();
}

}  // namespace

extern "C" size_t LLVMFuzzerMutate(uint8_t* data, size_t size, size_t max_size);

extern "C" size_t LLVMFuzzerCustomMutator(uint8_t* data, size_t size, size_t max_size,
                                          unsigned int seed) {
  const std::string start = kSamples[seed / 64 % 2];
  if (seed % 64 == 0 && start.size() <= max_size) {
    std::memcpy(data, start.data(), start.size());
    size = start.size();
  }
  return LLVMFuzzerMutate(data, size, max_size);
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string text(reinterpret_cast<const char*>(data), size);
  const auto tokenizer = cohort::tokenizer_from_json({.name = "fuzz",
                                                      .tokenizer = text,
                                                      .tokenizer_config = text,
                                                      .generation_config = text,
                                                      .chat_template = ""});
  if (!tokenizer.ok()) return 0;
  std::vector<cohort::TokenId> all;
  for (const std::string& input : {text, std::string(" ab\xff 123 <e>\n\xf0\x9f\x98")})
    for (cohort::TokenId id : (*tokenizer)->encode(input, {})) {
      if (id < 0 || id >= (*tokenizer)->vocab_size()) std::abort();
      all.push_back(id);
    }
  for (int id = -1; id <= (*tokenizer)->vocab_size() && id < 10000; id++) all.push_back(id);
  check_decoding(**tokenizer, all);
  return 0;
}
