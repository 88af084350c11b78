// SPDX-License-Identifier: Apache-2.0
// Bodies of the OpenAI API. Whatever is accepted keeps the bounds that the rest relies on.
#include <cstdlib>
#include <string_view>

#include "coordinator/openai_parse.h"

namespace {

using cohort::Failure;

void require(bool good) {
  if (!good) std::abort();
}

template <class T>
const T* accepted(const cohort::Parsed<T>& parsed) {
  if (const auto* failure = std::get_if<Failure>(&parsed)) require(!failure->message.empty());
  return std::get_if<T>(&parsed);
}

void check(const cohort::OpenAiRequest& parsed, const cohort::ParseTarget& target) {
  const cohort::SamplingOptions& s = parsed.request.sampling;
  require(parsed.request.sequences() >= 1 && parsed.request.sequences() <= target.limits.sequences);
  require(s.temperature >= 0 && s.top_p > 0 && s.top_k >= 0 && s.repetition_penalty > 0);
  require(!s.max_tokens || *s.max_tokens >= 1);
  for (const std::string& stop : s.stop) require(!stop.empty());
  for (const auto& [id, bias] : s.logit_bias) require(id >= 0 && id < target.vocab);
  for (const cohort::Prompt& prompt : parsed.request.prompts) {
    if (const auto* ids = std::get_if<std::vector<cohort::TokenId>>(&prompt))
      for (const cohort::TokenId id : *ids) require(id >= 0 && id < target.vocab);
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const cohort::ParseTarget target{.vocab = 1000, .limits = {}};
  const std::string_view body(reinterpret_cast<const char*>(data), size);
  const auto completion = cohort::parse_completion(body, target);
  if (const auto* request = accepted(completion)) check(*request, target);
  const auto chat = cohort::parse_chat_completion(body, target);
  if (const auto* request = accepted(chat)) check(*request, target);
  accepted(cohort::parse_tokenize(body, target));
  const auto ids = cohort::parse_detokenize(body, target);
  if (const auto* list = accepted(ids))
    for (const cohort::TokenId id : *list) require(id >= 0 && id < target.vocab);
  return 0;
}
