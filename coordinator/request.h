// SPDX-License-Identifier: Apache-2.0
// What a client asks, after validation: plain values, the same for HTTP and gRPC.
#pragma once
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "base/clock.h"
#include "model/tokenizer.h"

namespace cohort {

struct ChatInput;  // chat_input.h

struct SamplingOptions {
  float temperature = 1;
  float top_p = 1;
  int top_k = 0;  // 0: off
  float min_p = 0;
  std::optional<uint64_t> seed;  // absent: the coordinator draws one
  float frequency_penalty = 0;
  float presence_penalty = 0;
  float repetition_penalty = 1;
  std::vector<std::pair<TokenId, float>> logit_bias;
  std::optional<int> max_tokens;  // absent: what the context has room for
  int min_tokens = 0;
  std::vector<std::string> stop;
  std::vector<TokenId> stop_token_ids;
  bool ignore_eos = false;
  std::optional<int> logprobs;  // alternatives per token; absent: no logprobs
  bool include_stop_text = false;
  bool skip_special_tokens = true;
};

// Text to be encoded, or ids as they are.
using Prompt = std::variant<std::string, std::vector<TokenId>>;

struct GenerateRequest {
  std::string model;                      // empty: the one that is served
  std::vector<Prompt> prompts;            // of a completion; each gets its own n choices
  std::shared_ptr<const ChatInput> chat;  // of a chat, in place of prompts
  bool add_special_tokens = true;         // when prompts are encoded
  SamplingOptions sampling;
  int n = 1;
  std::string tenant;
  int priority = 0;  // lower goes first
  std::string cache_salt;
  std::optional<Duration> timeout;  // from submission to the last token

  int sequences() const { return n * (chat ? 1 : static_cast<int>(prompts.size())); }
};

// Bounds that hold whatever the model is.
struct RequestLimits {
  size_t body_bytes = 32 << 20;
  int json_depth = 64;
  int sequences = 128;  // n x prompts
  int stop_strings = 16;
  size_t stop_bytes = 1024;  // of one stop string
  int logprobs = 20;
  int logit_biases = 1024;
  int stop_token_ids = 64;
};

}  // namespace cohort
