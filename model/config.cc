// SPDX-License-Identifier: Apache-2.0
#include "model/config.h"

#include <cmath>
#include <numbers>

#include "base/check.h"

namespace cohort {
namespace {

// Llama 3's stretch of the context: fast rotations stay, slow ones are divided by `factor`, those
// between are blended by how many turns they make within the original context.
double llama3_scaled(double frequency, const RopeConfig::Llama3& scaling) {
  const double turns = double(scaling.original_context) * frequency / (2 * std::numbers::pi);
  if (turns > scaling.high_freq_factor) return frequency;
  if (turns < scaling.low_freq_factor) return frequency / scaling.factor;
  const double keep =
      (turns - scaling.low_freq_factor) / (scaling.high_freq_factor - scaling.low_freq_factor);
  return keep * frequency + (1 - keep) * frequency / scaling.factor;
}

// YaRN: by how far each pair's frequency is taken from the unscaled one, 1 (fast pairs), to the one
// divided by `factor`, 0. The ramp runs over the pairs whose number of turns within the original
// context lies between beta_fast and beta_slow.
class YarnRamp {
 public:
  YarnRamp(const RopeConfig& rope, const RopeConfig::Yarn& yarn)
      : low_(pair_with_turns(rope, yarn, yarn.beta_fast)),
        high_(pair_with_turns(rope, yarn, yarn.beta_slow)) {
    if (yarn.truncate) {
      low_ = std::floor(low_);
      high_ = std::ceil(high_);
    }
    low_ = std::max(low_, 0.0);
    high_ = std::min(high_, double(rope.dims - 1));
    if (low_ == high_) high_ += 0.001;
  }
  double kept(size_t pair) const {
    return 1 - std::clamp((double(pair) - low_) / (high_ - low_), 0.0, 1.0);
  }

 private:
  static double pair_with_turns(const RopeConfig& rope, const RopeConfig::Yarn& yarn,
                                double turns) {
    const double wavelength = double(yarn.original_context) / (turns * 2 * std::numbers::pi);
    return rope.dims * std::log(wavelength) / (2 * std::log(rope.theta));
  }

  double low_, high_;
};

}  // namespace

std::vector<double> rope_frequencies(const RopeConfig& rope) {
  const size_t pairs = size_t(rope.dims / 2);
  COHORT_CHECK(rope.frequency_divisors.empty() || rope.frequency_divisors.size() == pairs);
  std::vector<double> frequencies(pairs);
  std::optional<YarnRamp> ramp;
  if (rope.yarn) ramp.emplace(rope, *rope.yarn);
  for (size_t i = 0; i < pairs; i++) {
    double frequency = std::pow(rope.theta, -2.0 * double(i) / rope.dims);
    if (rope.llama3) frequency = llama3_scaled(frequency, *rope.llama3);
    if (ramp) {
      const double kept = ramp->kept(i);
      frequency = frequency / rope.yarn->factor * (1 - kept) + frequency * kept;
    }
    if (!rope.frequency_divisors.empty()) frequency /= double(rope.frequency_divisors[i]);
    frequencies[i] = frequency / rope.linear_factor;
  }
  return frequencies;
}

}  // namespace cohort
