// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

#include "kernels/cpu/quantize.h"

namespace cohort {
namespace {

void quantize_block(const float* x, int8_t* q, float* d, int32_t* sum) {
  uint32_t bits = 0;  // of the largest magnitude: as integers they order like the numbers
  for (int i = 0; i < 32; i++) bits = std::max(bits, std::bit_cast<uint32_t>(x[i]) & 0x7fffffffu);
  const float largest = std::bit_cast<float>(bits);
  const bool finite = bits < 0x7f800000u;
  // Below 2^-100 a block counts as zero: 127 / largest stays finite and the scale normal.
  const bool zero = largest < 0x1p-100f;
  *d = !finite ? std::numeric_limits<float>::quiet_NaN() : zero ? 0 : largest / 127.0f;
  const float inverse = 127.0f / largest;
  *sum = 0;
  for (int i = 0; i < 32; i++) {
    q[i] = zero || !finite ? int8_t(0) : int8_t(std::nearbyint(x[i] * inverse));  // ties to even
    *sum += q[i];
  }
}

}  // namespace

void quantize_portable(const float* x, int64_t blocks, const QuantizedBlocks& out) {
  for (int64_t b = 0, slot = 0; b < blocks; b++, slot += kRowTile) {
    quantize_block(x + b * 32, out.q + b * out.block_bytes, out.d + slot, out.sum + slot);
    out.s[slot] = out.d[slot] * float(out.sum[slot]);
  }
}

}  // namespace cohort
