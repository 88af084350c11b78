// SPDX-License-Identifier: Apache-2.0
// The loops have no branches, so that compilers turn them into vectors of whatever width the target
// has: beside the products of a step they cost little, and need no form per instruction set.
#include "kernels/cpu/cache_row.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <limits>

#include "base/half.h"

namespace cohort::cpu {
namespace {

constexpr int32_t kInfinity = 0x7f800000;

int32_t magnitude_bits(float x) { return std::bit_cast<int32_t>(x) & 0x7fffffff; }

// float_to_half, except that a finite value beyond f16's range becomes the largest one: infinity
// would poison every later token. NaN and infinity stay.
void to_halves(const float* __restrict x, int n, uint16_t* __restrict out) {
  constexpr int32_t kLargest = 0x477fe000, kLeastNormal = 0x38800000;  // 65504, 2^-14
  for (int i = 0; i < n; i++) {
    const int32_t all = magnitude_bits(x[i]), m = std::min(all, kLargest);
    // Adding 0.5 aligns a value below 2^-14 to multiples of 2^-24, where the hardware rounds.
    const int32_t denormal = std::bit_cast<int32_t>(std::bit_cast<float>(m) + 0.5f) - 0x3f000000;
    const int32_t normal = (m + 0xfff + (m >> 13 & 1) - 0x38000000) >> 13;
    // Chosen by masks: compilers make a branch of a choice that may save a sum of floats.
    const int32_t small = -int32_t(m < kLeastNormal), whole = -int32_t(all < kInfinity);
    const int32_t finite = (denormal & small) | (normal & ~small);
    const int32_t special = all > kInfinity ? 0x7e00 : 0x7c00;
    const int32_t sign = std::bit_cast<int32_t>(x[i]) >> 16 & 0x8000;
    out[i] = uint16_t(sign | (finite & whole) | (special & ~whole));
  }
}

void to_bf16(const float* __restrict x, int n, uint16_t* __restrict out) {
  for (int i = 0; i < n; i++) out[i] = float_to_bf16(x[i]);
}

// Returns the scale. A row with NaN or infinity has the scale NaN: whoever reads it sees that.
float to_integers(const float* __restrict x, int n, int8_t* __restrict out) {
  int32_t bits = 0;  // of the largest magnitude: as integers they order like the numbers
  for (int i = 0; i < n; i++) bits = std::max(bits, magnitude_bits(x[i]));
  const float largest = std::bit_cast<float>(bits);
  const bool finite = bits < kInfinity;
  // Below 2^-100 a row counts as zero: 127 / largest stays finite.
  if (!finite || largest < 0x1p-100f) {
    std::fill_n(out, n, int8_t(0));
    return finite ? 0 : std::numeric_limits<float>::quiet_NaN();
  }
  // Adding it rounds to an integer, ties to even, and leaves that in the low bits.
  constexpr float kShift = 0x1.8p23f;
  const float inverse = 127.0f / largest;
  for (int i = 0; i < n; i++) out[i] = int8_t(std::bit_cast<int32_t>(x[i] * inverse + kShift));
  return largest / 127.0f;
}

struct Row {
  alignas(64) std::byte bytes[kMaxHeadDim * sizeof(float)];
  float scale = 0;
};

void round_row(const KvGeometry& g, const float* x, Row& out) {
  if (g.dtype == DType::f32)
    std::memcpy(out.bytes, x, size_t(g.dim) * sizeof(float));
  else if (g.dtype == DType::bf16)
    to_bf16(x, g.dim, reinterpret_cast<uint16_t*>(out.bytes));
  else if (g.dtype == DType::i8)
    out.scale = to_integers(x, g.dim, reinterpret_cast<int8_t*>(out.bytes));
  else
    to_halves(x, g.dim, reinterpret_cast<uint16_t*>(out.bytes));
}

// Element i of a row goes to plane[i * 16].
template <class T>
void scatter(const Row& row, int dim, std::byte* plane, int slot) {
  const T* from = reinterpret_cast<const T*>(row.bytes);
  T* to = reinterpret_cast<T*>(plane) + slot;
  for (int i = 0; i < dim; i++) to[i * kBlockTokens] = from[i];
}

void store_scale(const KvGeometry& g, std::byte* scales, int slot, float scale) {
  if (g.dtype == DType::i8) reinterpret_cast<float*>(scales)[slot] = scale;
}

}  // namespace

void store_key(const KvGeometry& g, std::byte* chunk, int slot, const float* x) {
  Row row;
  round_row(g, x, row);
  if (g.dtype == DType::f32)
    scatter<float>(row, g.dim, chunk, slot);
  else if (g.dtype == DType::i8)
    scatter<int8_t>(row, g.dim, chunk, slot);
  else
    scatter<uint16_t>(row, g.dim, chunk, slot);
  store_scale(g, chunk + g.key_scales(), slot, row.scale);
}

void store_value(const KvGeometry& g, std::byte* chunk, int slot, const float* x) {
  Row row;
  round_row(g, x, row);
  const size_t bytes = size_t(bytes_of(g.dtype, g.dim));
  std::memcpy(chunk + g.plane_bytes() + size_t(slot) * bytes, row.bytes, bytes);
  store_scale(g, chunk + g.value_scales(), slot, row.scale);
}

}  // namespace cohort::cpu
