// SPDX-License-Identifier: Apache-2.0
// Which replica gets a sequence: the one with the least predicted seconds. Pure functions of
// values, so that a trace can test them.
//
//   wait(r) = steps * step_seconds + (pending prefill + prompt) * token_seconds
//   cost(r) = wait(r) - matched tokens * token_seconds + what its decodes cost us per step
//
// A warm prefix counts only while wait(r) is within a cap of the fleet's least wait: a hot prefix
// must not pull everybody to one replica.
#pragma once
#include <cstdint>
#include <optional>
#include <random>
#include <span>

namespace cohort {

struct RouteCandidate {
  int replica = 0;              // whatever the caller calls it
  int64_t pending_prefill = 0;  // tokens that it has to prefill before ours
  int running = 0;              // sequences that it decodes
  int max_rows = 256;           // tokens of one of its steps
  double step_seconds = 0;
  double token_seconds = 0;
  int64_t matched_tokens = 0;  // of our prompt, in its cache
  double kv_used = 0;          // share of its blocks that sequences hold, 0 to 1
};

// Predicted seconds until the first token, without credit for the prefix cache.
double predicted_wait(const RouteCandidate& candidate, int64_t prompt_tokens);
double predicted_cost(const RouteCandidate& candidate, int64_t prompt_tokens,
                      int64_t output_tokens);

// Index into candidates; absent if there are none. Random among near ties.
std::optional<size_t> choose_replica(std::span<const RouteCandidate> candidates,
                                     int64_t prompt_tokens, int64_t output_tokens,
                                     std::mt19937_64& random);

}  // namespace cohort
