// SPDX-License-Identifier: Apache-2.0
// Cosines and sines of the rotary position embedding for all positions, computed once in double
// and rounded to f32.
#pragma once
#include <cstdint>
#include <vector>

#include "base/buffer.h"
#include "base/device.h"

namespace cohort {

class RopeTable {
 public:
  // frequencies [dims / 2]: angle = position * frequency. neighbours: pairs are (2i, 2i+1); else
  // (i, i + dims/2). Dimensions of a head from `dims` on are left alone.
  // All are multiplied by `factor` (YaRN's attention factor). Memory of the device.
  RopeTable(Device& device, const std::vector<double>& frequencies, int64_t positions,
            bool neighbours, double factor = 1);

  int dims() const { return dims_; }
  bool neighbours() const { return neighbours_; }
  int64_t positions() const { return positions_; }
  const float* cosines(int64_t position) const { return values_.as<float>() + position * dims_; }
  const float* sines(int64_t position) const { return cosines(position) + dims_ / 2; }

 private:
  int dims_;
  bool neighbours_;
  int64_t positions_;
  Buffer values_;  // [position][cosines [dims/2] | sines [dims/2]]
};

}  // namespace cohort
