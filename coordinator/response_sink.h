// SPDX-License-Identifier: Apache-2.0
// Where the answer to one request goes. Calls come one at a time, from the coordinator's core
// thread or from a tokenizer thread, and must not block: accepted() at most once, then output() any
// number of times, then exactly one of finished() and failed(). After cancel() there may be none.
#pragma once
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "coordinator/failure.h"
#include "model/tokenizer.h"

namespace cohort {

enum class FinishReason { stop, length };
inline const char* name(FinishReason reason) {
  return reason == FinishReason::stop ? "stop" : "length";
}

struct TokenChance {
  TokenId id = 0;
  float logprob = 0;
  std::string bytes;  // exactly what the token stands for; may be part of a character
};

struct TokenRecord {
  TokenChance chosen;
  std::vector<TokenChance> top;
};

// News of one choice.
struct OutputDelta {
  int choice = 0;
  std::string text;  // whole UTF-8 characters
  std::vector<TokenId> tokens;
  // If they were asked for: one per token that is part of the text, not of what a stop string or
  // the end of turn cut off. They may come later than the token.
  std::vector<TokenRecord> logprobs;
  std::optional<FinishReason> finish;  // on the last delta of the choice
};

struct Usage {
  int64_t prompt_tokens = 0;
  int64_t completion_tokens = 0;
  int64_t cached_tokens = 0;
};

using TokenList = std::shared_ptr<const std::vector<TokenId>>;

class ResponseSink {
 public:
  virtual ~ResponseSink() = default;
  // The request is valid and waits for its turn. One list per prompt.
  virtual void accepted(std::vector<TokenList> prompts) = 0;
  virtual void output(OutputDelta delta) = 0;
  virtual void finished(const Usage& usage) = 0;
  virtual void failed(const Failure& failure) = 0;
};

}  // namespace cohort
