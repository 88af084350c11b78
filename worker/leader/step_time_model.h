// SPDX-License-Identifier: Apache-2.0
// Learns how long a step of n tokens takes, t = step_seconds + token_seconds * n, from the steps
// that were run: least squares with forgetting, so that it follows contexts that grow and hosts
// that slow down. One thread.
#pragma once
#include <algorithm>
#include <cstdint>

namespace cohort {

// A prefill may make a step at most so many times longer than its decodes alone would: what a
// client sees as the time between tokens stays even.
inline constexpr double kPrefillSlowdown = 1.5;

class StepTimeModel {
 public:
  void add(int64_t tokens, double seconds) {
    // A step of long ago weighs half after 64 more.
    constexpr double kKeep = 0.9892;
    const double n = double(tokens);
    weight_ = weight_ * kKeep + 1;
    n_ = n_ * kKeep + n;
    t_ = t_ * kKeep + seconds;
    nn_ = nn_ * kKeep + n * n;
    nt_ = nt_ * kKeep + n * seconds;
  }

  // 0 until steps of different sizes are known; never negative.
  double token_seconds() const {
    if (!knows_slope()) return 0;
    return std::max(0.0, (nt_ * weight_ - n_ * t_) / (nn_ * weight_ - n_ * n_));
  }
  double step_seconds() const {
    return weight_ == 0 ? 0 : std::max(0.0, (t_ - token_seconds() * n_) / weight_);
  }

  // Whether steps of different sizes are known.
  bool knows_slope() const { return weight_ > 0 && nn_ * weight_ - n_ * n_ >= 1e-6 * n_ * n_; }
  double mean_tokens() const { return weight_ == 0 ? 0 : n_ / weight_; }
  double mean_seconds() const { return weight_ == 0 ? 0 : t_ / weight_; }

  // The most tokens of a step that takes at most `factor` times as long as one of `tokens`.
  int32_t tokens_within(double factor, int32_t tokens, int32_t most) const {
    const double per_token = token_seconds();
    if (per_token <= 0) return most;
    const double limit = factor * (step_seconds() + per_token * tokens);
    return static_cast<int32_t>(
        std::clamp((limit - step_seconds()) / per_token, 1.0, double(most)));
  }

 private:
  double weight_ = 0, n_ = 0, t_ = 0, nn_ = 0, nt_ = 0;
};

}  // namespace cohort
