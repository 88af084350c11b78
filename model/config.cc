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

}  // namespace

std::vector<double> rope_frequencies(const RopeConfig& rope) {
  const size_t pairs = size_t(rope.dims / 2);
  COHORT_CHECK(rope.frequency_divisors.empty() || rope.frequency_divisors.size() == pairs);
  std::vector<double> frequencies(pairs);
  for (size_t i = 0; i < pairs; i++) {
    double frequency = std::pow(rope.theta, -2.0 * double(i) / rope.dims);
    if (rope.llama3) frequency = llama3_scaled(frequency, *rope.llama3);
    if (!rope.frequency_divisors.empty()) frequency /= double(rope.frequency_divisors[i]);
    frequencies[i] = frequency / rope.linear_factor;
  }
  return frequencies;
}

}  // namespace cohort
