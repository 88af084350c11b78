// SPDX-License-Identifier: Apache-2.0
// The tile unit in software, in place of HardwareTiles (kernels/cpu/amx_tiles.h): TDPBF16PS as
// Intel SDM volume 2 describes it, and its refusals. Included by a unit compiled for AVX-512, too:
// plain structs and static functions only.
#pragma once
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>

#include "base/cpu.h"
#include "kernels/cpu/amx_tiles.h"
#include "kernels/cpu/matmul_job.h"

namespace cohort {

// Kernels on tile units that add otherwise: pair after pair onto the sums, and without flushing.
// They need AVX-512, as all kernels on tiles do.
MatmulPanels bf16_pair_by_pair, bf16_with_denormals;
// What this processor's FMA gives when it flushes denormals. Needs FMA.
float processor_flushed_fma(float a, float b, float c);
// How many tile products kernels for AMX have had from software, in this process.
int64_t software_tile_products();
// What attention for AMX that a test is linked with is made of beside tiles.
Isa isa_beside_tiles();

namespace {

[[maybe_unused]] int64_t tile_products = 0;  // of this unit

[[maybe_unused]] uint32_t bits_of(float x) { return __builtin_bit_cast(uint32_t, x); }
[[maybe_unused]] float float_of(uint32_t bits) { return __builtin_bit_cast(float, bits); }

// A denormal becomes a zero of its sign.
[[maybe_unused]] float without_denormal(float x) {
  return (bits_of(x) & 0x7f800000u) == 0 ? float_of(bits_of(x) & 0x80000000u) : x;
}

// Whether a * b + c, not zero and near 2^-126, is below that once rounded to 24 bits with no limit
// to its exponent. The double is rounded to odd, so that rounding it again is exact.
[[maybe_unused]] bool is_tiny(float a, float b, float c) {
  const double product = double(a) * double(b), addend = double(c);
  double sum = product + addend;
  const double part = sum - product, error = (product - (sum - part)) + (addend - part);
  uint64_t bits = __builtin_bit_cast(uint64_t, sum);
  if (error != 0 && (bits & 1) == 0) bits += (error > 0) == (sum > 0) ? 1 : uint64_t(-1);
  sum = __builtin_bit_cast(double, bits);
  return __builtin_fabsf(float(sum * 0x1p64)) < 0x1p-62f;
}

// Of normal numbers and zeros, flushed as IEEE 754 has it for detection after rounding.
[[maybe_unused]] float flushed_fma(float a, float b, float c) {
  const float sum = __builtin_fmaf(a, b, c);
  if (sum == 0 || !(__builtin_fabsf(sum) < 0x1p-125f)) return sum;
  return is_tiny(a, b, c) ? float_of(bits_of(sum) & 0x80000000u) : sum;
}

// Sums of f32 are exact where they are tiny.
[[maybe_unused]] float flushed_add(float a, float b) { return without_denormal(a + b); }

// What a tile operation does to one of its sums.
struct SpecifiedSum {
  static float of_input(float x) { return without_denormal(x); }
  // left, right: `pairs` pairs; those of right are 16 pairs apart.
  static float of(float sum, const float* left, const float* right, int pairs) {
    float even = 0, odd = 0;
    for (int k = 0; k < pairs; k++) {
      even = flushed_fma(left[2 * k], right[32 * k], even);
      odd = flushed_fma(left[2 * k + 1], right[32 * k + 1], odd);
    }
    return flushed_add(without_denormal(sum), flushed_add(even, odd));
  }
};

// Not what it does.
struct PairByPairSum {
  static float of_input(float x) { return without_denormal(x); }
  static float of(float sum, const float* left, const float* right, int pairs) {
    for (int k = 0; k < pairs; k++)
      sum = flushed_fma(left[2 * k + 1], right[32 * k + 1],
                        flushed_fma(left[2 * k], right[32 * k], without_denormal(sum)));
    return sum;
  }
};

struct DenormalSum {
  static float of_input(float x) { return x; }
  static float of(float sum, const float* left, const float* right, int pairs) {
    float even = 0, odd = 0;
    for (int k = 0; k < pairs; k++) {
      even = __builtin_fmaf(left[2 * k], right[32 * k], even);
      odd = __builtin_fmaf(left[2 * k + 1], right[32 * k + 1], odd);
    }
    return sum + (even + odd);
  }
};

// The eight registers, by number.
template <class Sum>
class TileRegisters {
 public:
  // config: the 64 bytes of LDTILECFG.
  void configure(const uint8_t* config) {
    check(config[0] == 1, "a palette other than 1");
    for (int i = 1; i < 16; i++) check(config[i] == 0, "a start row or reserved bytes");
    for (int i = 0; i < 8; i++) {
      const int row_bytes = config[16 + 2 * i] + 256 * config[17 + 2 * i], rows = config[48 + i];
      check(row_bytes <= kTileRowBytes && rows <= kTileRows, "a shape that no tile has");
      check((row_bytes == 0) == (rows == 0), "rows without columns or columns without rows");
      tiles_[i] = {rows, row_bytes, {}};
    }
    for (int i = 8; i < 16; i++)
      check(config[16 + 2 * i] == 0 && config[17 + 2 * i] == 0 && config[48 + i] == 0,
            "more than eight tiles");
  }
  void release() {
    for (Tile& tile : tiles_) tile = {};
  }
  void zero(int i) { __builtin_memset(configured(i).bytes, 0, sizeof(Tile::bytes)); }
  void load(int i, const void* from, int64_t stride) {
    zero(i);
    Tile& tile = tiles_[i];
    for (int r = 0; r < tile.rows; r++)
      __builtin_memcpy(tile.bytes + r * kTileRowBytes,
                       static_cast<const std::byte*>(from) + r * stride, size_t(tile.row_bytes));
  }
  void store(int i, void* to, int64_t stride) {
    const Tile& tile = configured(i);
    for (int r = 0; r < tile.rows; r++)
      __builtin_memcpy(static_cast<std::byte*>(to) + r * stride, tile.bytes + r * kTileRowBytes,
                       size_t(tile.row_bytes));
  }
  void dot(int to, int by_rows, int by_columns) {
    Tile& sums = configured(to);
    const Tile &left = configured(by_rows), &right = configured(by_columns);
    check(to != by_rows && to != by_columns && by_rows != by_columns, "one tile in two roles");
    check(sums.rows == left.rows && sums.row_bytes == right.row_bytes &&
              left.row_bytes / 4 == right.rows,
          "tiles that do not fit each other");
    __atomic_fetch_add(&tile_products, 1, __ATOMIC_RELAXED);
    float a[16][32], b[16][32], c[16][16];
    widen(left, a);
    widen(right, b);
    __builtin_memcpy(c, sums.bytes, sizeof c);
    for (int m = 0; m < sums.rows; m++)
      for (int n = 0; n < sums.row_bytes / 4; n++)
        c[m][n] = Sum::of(c[m][n], a[m], b[0] + 2 * n, right.rows);
    __builtin_memcpy(sums.bytes, c, sizeof c);
  }

 private:
  struct Tile {
    int rows, row_bytes;  // 0: not configured
    std::byte bytes[kTileRows * kTileRowBytes];
  };

  // The processor raises an exception, and a kernel that meets one is wrong.
  static void check(bool fine, const char* what) {
    if (fine) return;
    std::fprintf(stderr, "tiles: %s\n", what);
    std::abort();
  }
  Tile& configured(int i) {
    check(tiles_[i].rows != 0, "used without having been configured");
    return tiles_[i];
  }
  static void widen(const Tile& tile, float (&out)[16][32]) {
    for (int r = 0; r < 16; r++)
      for (int i = 0; i < 32; i++) {
        uint16_t half;
        __builtin_memcpy(&half, tile.bytes + r * kTileRowBytes + 2 * i, 2);
        out[r][i] = Sum::of_input(float_of(uint32_t(half) << 16));
      }
  }

  Tile tiles_[8] = {};
};

// In place of HardwareTiles.
template <class Sum>
class SoftwareTiles {
 public:
  void configure(int rows, int pairs) {
    const TileConfig config = tile_config(rows, pairs);
    registers_.configure(reinterpret_cast<const uint8_t*>(&config));
  }
  void release() { registers_.release(); }
  template <int kTile>
  void zero() {
    registers_.zero(kTile);
  }
  template <int kTile>
  void load(const void* from, int64_t stride) {
    registers_.load(kTile, from, stride);
  }
  template <int kTile>
  void store(void* to, int64_t stride) {
    registers_.store(kTile, to, stride);
  }
  template <int kSums, int kLeft, int kRight>
  void dot() {
    registers_.dot(kSums, kLeft, kRight);
  }

 private:
  TileRegisters<Sum> registers_;
};

}  // namespace
}  // namespace cohort
