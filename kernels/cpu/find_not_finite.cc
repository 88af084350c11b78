// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "kernels/cpu/state.h"
#include "kernels/ops.h"

namespace cohort::ops::cpu {
namespace {

bool finite(const uint32_t* bits, int64_t n) {
  uint32_t largest = 0;  // magnitudes as integers order like the numbers; infinity, then NaN on top
  for (int64_t i = 0; i < n; i++) largest = std::max(largest, bits[i] & 0x7fffffffu);
  return largest < 0x7f800000u;
}

}  // namespace

void find_not_finite(Stream& stream, Tensor errors, Tensor x, int32_t code) {
  const int64_t rows = x.dim(0), n = x.dim(1);
  cohort::cpu::for_rows(stream, rows, rows * n, [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; r++) {
      int32_t& error = errors.i32()[r];
      if (error == -1 && !finite(x.as<uint32_t>() + r * n, n)) error = code;
    }
  });
}

}  // namespace cohort::ops::cpu
