// SPDX-License-Identifier: Apache-2.0
// From logits to a token. Everything that a draw depends on is in its arguments: the random number
// is Philox4x32-10 (Salmon et al., SC'11) of (seed, output index), so the same seed gives the same
// sample in any batch, slot, layout and attempt.
#pragma once
#include <cstdint>
#include <optional>
#include <span>
#include <utility>
#include <vector>

namespace cohort {

// Order of application, as in vLLM: logit_bias, penalties, min_tokens, then greedy if temperature
// is 0, else temperature, min_p, top_k, top_p, draw.
struct SamplingParams {
  float temperature = 1;
  int32_t top_k = 0;  // 0: off
  float top_p = 1;
  float min_p = 0;
  uint64_t seed = 0;
  float frequency_penalty = 0;  // subtracts penalty * count of the token in the output
  float presence_penalty = 0;   // subtracts penalty once if the token is in the output
  float repetition_penalty =
      1;  // divides positive, multiplies negative logits of tokens in prompt or output
  std::vector<std::pair<int32_t, float>> logit_bias;
  int32_t min_tokens = 0;  // until then end_tokens cannot be drawn
  std::vector<int32_t>
      end_tokens;  // tokens that end the sequence: eos (unless ignored) and stop_token_ids
  std::optional<int32_t> logprobs;  // how many alternatives to report; 0: only the token's own
  friend bool operator==(const SamplingParams&, const SamplingParams&) = default;
};

// One row to sample.
struct SampleRow {
  const SamplingParams* params = nullptr;
  std::span<const int32_t> prompt, output;  // tokens so far; output.size() is the draw's counter
};

struct TokenLogprob {
  int32_t token = 0;
  float logprob = 0;  // natural logarithm, of the raw logits (before penalties and temperature)
  friend bool operator==(const TokenLogprob&, const TokenLogprob&) = default;
};

struct SampledToken {
  int32_t token = 0;
  float logprob = 0;              // 0 unless logprobs were asked for
  std::vector<TokenLogprob> top;  // most likely first, equal ones by token id
  bool finite = true;  // false: the logits held NaN or +inf, or nothing could be drawn; token is 0
  friend bool operator==(const SampledToken&, const SampledToken&) = default;
};

}  // namespace cohort
