// SPDX-License-Identifier: Apache-2.0
#include "kernels/rope_table.h"

#include <cmath>

namespace cohort {

RopeTable::RopeTable(const std::vector<double>& frequencies, int64_t positions, bool neighbours)
    : dims_(int(2 * frequencies.size())),
      neighbours_(neighbours),
      positions_(positions),
      values_(size_t(positions) * frequencies.size() * 2 * sizeof(float)) {
  float* out = values_.as<float>();
  for (int64_t p = 0; p < positions; p++) {
    for (double f : frequencies) *out++ = float(std::cos(double(p) * f));
    for (double f : frequencies) *out++ = float(std::sin(double(p) * f));
  }
}

}  // namespace cohort
