// SPDX-License-Identifier: Apache-2.0
// Scales and minima of packed weights, one at a time. Only for units of the baseline.
#pragma once
#include <cstring>

#include "base/half.h"
#include "kernels/packed.h"

namespace cohort {

// What all rows and blocks of a panel are read with. Borrows the panel.
class PanelScales {
 public:
  PanelScales(QuantForm form, const PanelShape& shape, const std::byte* panel)
      : form_(form), shape_(shape), panel_(panel) {}

  // Of columns 16 * half .. of block b; half is 0 unless the form has halves.
  float scale(int64_t b, int half, int lane) const { return value(b, 0, half, lane); }
  // 0 for forms without minima.
  float minimum(int64_t b, int lane) const { return form_.minimum ? value(b, 1, 1, lane) : 0; }

 private:
  float value(int64_t b, int float_index, int factor_index, int lane) const {
    const std::byte* record = panel_ + record_at(form_, shape_, b);
    uint16_t bits;
    std::memcpy(&bits, record + (float_index * kPanelRows + lane) * 2, 2);
    const float outer = half_to_float(bits);
    if (!form_.super) return outer;
    const int at = factors_at(form_, int(b % kSuperBlocks)) + factor_index * kPanelRows + lane;
    return outer * float(int8_t(record[at]));
  }

  const QuantForm form_;
  const PanelShape shape_;
  const std::byte* const panel_;
};

}  // namespace cohort
