// SPDX-License-Identifier: Apache-2.0
// Requests that the worker's tests share.
#pragma once
#include <cstdint>
#include <vector>

#include "tests/support/replay.h"

namespace cohort::testing {

// `length` token ids that depend on the seed alone.
inline std::vector<int32_t> some_tokens(int length, uint32_t seed, int32_t vocab = 203) {
  std::vector<int32_t> tokens;
  uint32_t state = seed * 2654435761u + 1;
  for (int i = 0; i < length; i++) {
    state = state * 1664525u + 1013904223u;
    tokens.push_back(int32_t((state >> 8) % uint32_t(vocab)));
  }
  return tokens;
}

inline SamplingParams greedy(int logprobs = 3) {
  SamplingParams params;
  params.temperature = 0;
  params.logprobs = logprobs;
  return params;
}

// Greedy and drawn, with and without penalties, long and short, coming at different times.
inline std::vector<TestRequest> mixed_requests() {
  std::vector<TestRequest> requests;
  requests.push_back({some_tokens(5, 1), 9, greedy(), 0});
  SamplingParams drawn;
  drawn.seed = 77;
  drawn.temperature = 1.3f;
  drawn.logprobs = 2;
  requests.push_back({some_tokens(37, 2), 7, drawn, 0});
  drawn.top_k = 20;
  drawn.top_p = 0.9f;
  drawn.repetition_penalty = 1.4f;
  drawn.frequency_penalty = 0.3f;
  requests.push_back({some_tokens(1, 3), 12, drawn, 2});
  requests.push_back({some_tokens(17, 4), 5, greedy(), 3});
  SamplingParams penalised = greedy();
  penalised.presence_penalty = 1.5f;
  penalised.logit_bias = {{7, 2.0f}, {9, -100.0f}};
  requests.push_back({some_tokens(16, 5), 10, penalised, 1});
  return requests;
}

}  // namespace cohort::testing
