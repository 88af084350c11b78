// SPDX-License-Identifier: Apache-2.0
// The text of one sequence, token by token: detokenised without ever splitting a character, cut at
// stop strings. Used by one thread.
#pragma once
#include <string>

#include "coordinator/request.h"
#include "coordinator/stop_matcher.h"
#include "model/tokenizer.h"

namespace cohort {

class TextStream {
 public:
  // last_prompt_token gives the decoder its surroundings: a word that follows the prompt keeps its
  // leading space.
  TextStream(const Tokenizer& tokenizer, const SamplingOptions& options,
             std::optional<TokenId> last_prompt_token);

  // ends: the token ended the sequence (end of turn): its text is not shown unless stop texts are.
  std::string push(TokenId id, bool ends);
  // Nothing follows: what was held back.
  std::string flush();
  // A stop string was found; the sequence is complete.
  bool stopped() const { return matcher_.stopped(); }
  // Bytes of text so far, all of them and those that were given out. The token that is pushed next
  // begins at decoded(), or at the character that it continues; a token is part of the answer if
  // it begins before the final shown().
  size_t decoded() const { return decoded_; }
  size_t shown() const { return shown_; }

 private:
  std::string take(std::string text);
  IncrementalDecoder decoder_;
  StopMatcher matcher_;
  const int min_tokens_;
  const bool include_stop_;
  int tokens_ = 0;
  size_t decoded_ = 0, shown_ = 0;
};

}  // namespace cohort
