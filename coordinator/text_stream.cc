// SPDX-License-Identifier: Apache-2.0
#include "coordinator/text_stream.h"

namespace cohort {

TextStream::TextStream(const Tokenizer& tokenizer, const SamplingOptions& options,
                       std::optional<TokenId> last_prompt_token)
    : decoder_(tokenizer, options.skip_special_tokens),
      matcher_(options.stop, options.include_stop_text),
      min_tokens_(options.min_tokens),
      include_stop_(options.include_stop_text) {
  if (last_prompt_token) {
    decoder_.push(*last_prompt_token);
    decoder_.flush();
  }
}

std::string TextStream::push(TokenId id, bool ends) {
  ++tokens_;
  if (ends && !include_stop_) return {};
  const std::string text = decoder_.push(id);
  decoded_ += text.size();
  return take(tokens_ <= min_tokens_ ? matcher_.pass(text) : matcher_.push(text));
}

std::string TextStream::flush() {
  const std::string tail = decoder_.flush();
  decoded_ += tail.size();
  std::string text = matcher_.push(tail);
  if (!matcher_.stopped()) text += matcher_.flush();
  return take(std::move(text));
}

std::string TextStream::take(std::string text) {
  shown_ += text.size();
  return text;
}

}  // namespace cohort
