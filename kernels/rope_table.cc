// SPDX-License-Identifier: Apache-2.0
#include "kernels/rope_table.h"

#include <cmath>

namespace cohort {

RopeTable::RopeTable(Device& device, const std::vector<double>& frequencies, int64_t positions,
                     bool neighbours, double factor)
    : dims_(int(2 * frequencies.size())),
      neighbours_(neighbours),
      positions_(positions),
      values_(device.allocate(size_t(positions) * frequencies.size() * 2 * sizeof(float))) {
  std::vector<float> values;
  values.reserve(values_.size() / sizeof(float));
  for (int64_t p = 0; p < positions; p++) {
    for (double f : frequencies) values.push_back(float(factor * std::cos(double(p) * f)));
    for (double f : frequencies) values.push_back(float(factor * std::sin(double(p) * f)));
  }
  device.upload(values_.data(), values.data(), values_.size());
}

}  // namespace cohort
