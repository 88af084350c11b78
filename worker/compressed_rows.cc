// SPDX-License-Identifier: Apache-2.0
#include "worker/compressed_rows.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

namespace cohort {
namespace {

constexpr int64_t kBlock = 32;
constexpr float kLargest = 127;
// Below, 127 / a could overflow; such a block is zero beside any other.
constexpr float kLeast = 0x1p-100f;

int64_t blocks(int64_t columns) { return (columns + kBlock - 1) / kBlock; }
int64_t integer_bytes(int64_t rows, int64_t columns) { return (rows * columns + 3) / 4 * 4; }

float compress_block(int8_t* out, const float* x, int64_t n) {
  float largest = 0;
  for (int64_t i = 0; i < n; i++) {
    if (!std::isfinite(x[i])) largest = std::numeric_limits<float>::quiet_NaN();
    largest = largest >= std::fabs(x[i]) || std::isnan(largest) ? largest : std::fabs(x[i]);
  }
  const bool usable = largest >= kLeast;  // not so for NaN
  const float factor = usable ? kLargest / largest : 0;
  for (int64_t i = 0; i < n; i++) out[i] = usable ? int8_t(std::rint(x[i] * factor)) : int8_t(0);
  return std::isnan(largest) ? largest : usable ? largest / kLargest : 0;
}

}  // namespace

int64_t compressed_bytes(int64_t rows, int64_t columns) {
  return integer_bytes(rows, columns) + rows * blocks(columns) * int64_t(sizeof(float));
}

void compress(std::byte* out, Tensor x) {
  const int64_t rows = x.dim(0), columns = x.dim(1);
  auto* integers = reinterpret_cast<int8_t*>(out);
  std::byte* scales = out + integer_bytes(rows, columns);
  for (int64_t row = 0; row < rows; row++)
    for (int64_t at = 0; at < columns; at += kBlock) {
      const int64_t n = std::min(kBlock, columns - at), first = row * columns + at;
      const float scale = compress_block(integers + first, x.f32() + first, n);
      std::memcpy(scales, &scale, sizeof scale);
      scales += sizeof scale;
    }
}

void expand(Tensor x, const std::byte* in) {
  const int64_t rows = x.dim(0), columns = x.dim(1);
  const auto* integers = reinterpret_cast<const int8_t*>(in);
  const std::byte* scales = in + integer_bytes(rows, columns);
  for (int64_t row = 0; row < rows; row++)
    for (int64_t at = 0; at < columns; at += kBlock) {
      const int64_t n = std::min(kBlock, columns - at), first = row * columns + at;
      float scale = 0;
      std::memcpy(&scale, scales, sizeof scale);
      scales += sizeof scale;
      for (int64_t i = 0; i < n; i++) x.f32()[first + i] = scale * float(integers[first + i]);
    }
}

}  // namespace cohort
