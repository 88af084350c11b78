// SPDX-License-Identifier: Apache-2.0
#include "coordinator/router.h"

#include <algorithm>
#include <cmath>
#include <vector>

namespace cohort {

namespace {
// Before a replica has told its step times, only the proportions matter.
constexpr double kGuessedStepSeconds = 0.02, kGuessedTokenSeconds = 0.001;
// Decodes slow us down for as long as we decode, but far predictions are worth little.
constexpr int64_t kDecodeHorizon = 64;
constexpr double kNearTie = 0.02;  // share of the least cost

double step_seconds(const RouteCandidate& c) {
  return c.step_seconds > 0 ? c.step_seconds : kGuessedStepSeconds;
}
double token_seconds(const RouteCandidate& c) {
  return c.token_seconds > 0 ? c.token_seconds : kGuessedTokenSeconds;
}
}  // namespace

double predicted_wait(const RouteCandidate& c, int64_t prompt_tokens) {
  const double tokens = static_cast<double>(c.pending_prefill + prompt_tokens);
  const double steps = std::ceil(tokens / std::max(1, c.max_rows - c.running));
  return steps * (step_seconds(c) + c.running * token_seconds(c)) + tokens * token_seconds(c);
}

double predicted_cost(const RouteCandidate& c, int64_t prompt_tokens, int64_t output_tokens) {
  const double horizon = static_cast<double>(std::min(output_tokens, kDecodeHorizon));
  const double decode = horizon * (step_seconds(c) + (c.running + 1) * token_seconds(c));
  // Past 90 % of the blocks, somebody will be preempted and computed again.
  const double pressure = c.kv_used > 0.9 ? (c.kv_used - 0.9) * 10 * decode : 0;
  return predicted_wait(c, prompt_tokens) + decode + pressure;
}

std::optional<size_t> choose_replica(std::span<const RouteCandidate> candidates,
                                     int64_t prompt_tokens, int64_t output_tokens,
                                     std::mt19937_64& random) {
  if (candidates.empty()) return {};
  double least_wait = std::numeric_limits<double>::infinity();
  for (const auto& c : candidates)
    least_wait = std::min(least_wait, predicted_wait(c, prompt_tokens));
  std::vector<double> costs;
  for (const auto& c : candidates) {
    const double own_prefill = static_cast<double>(prompt_tokens) * token_seconds(c);
    const bool warm =
        predicted_wait(c, prompt_tokens) <= least_wait + std::max(1.0, 2 * own_prefill);
    const double credit = warm ? static_cast<double>(c.matched_tokens) * token_seconds(c) : 0;
    costs.push_back(predicted_cost(c, prompt_tokens, output_tokens) - credit);
  }
  const double least = *std::min_element(costs.begin(), costs.end());
  std::vector<size_t> ties;
  for (size_t i = 0; i < costs.size(); ++i) {
    if (costs[i] <= least * (1 + kNearTie)) ties.push_back(i);
  }
  return ties[std::uniform_int_distribution<size_t>(0, ties.size() - 1)(random)];
}

}  // namespace cohort
