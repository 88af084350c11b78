// SPDX-License-Identifier: Apache-2.0
// One record of quantised weights (quant_view.h) in registers: as operand A of mma, its scales, and
// what it adds to the sums of a warp. Shared by all kernels that multiply such weights.
#pragma once
#include <type_traits>

#include "kernels/cuda/portable.h"
#include "kernels/cuda/product.h"

namespace cohort::cuda {

// What kernels are compiled for; offset and width of scales are looked up as they run.
template <bool Nibbles, bool Halves, bool Minimum>
struct QuantKind {
  static constexpr bool kNibbles = Nibbles, kHalves = Halves, kMinimum = Minimum;
  static constexpr int kWords = Nibbles ? 1 : 2;  // 16-byte words of a lane
  static constexpr int kScales = Halves ? 2 : 1;  // of a row
};

// Calls f with the QuantKind of w. Host side.
template <class F>
cudaError_t with_kind(const QuantView& w, F f) {
  if (w.nibbles)
    return w.minimum ? f(QuantKind<true, false, true>()) : f(QuantKind<true, false, false>());
  if (w.halves) return f(QuantKind<false, true, false>());
  return w.minimum ? f(QuantKind<false, false, true>()) : f(QuantKind<false, false, false>());
}

// A lane's share of a record. Rows of index i are g, g + 8, g + 16, g + 24.
template <class Kind>
struct QuantRecord {
  uint4 word[Kind::kWords];
  float scale[4][Kind::kScales];
  float minimum[4];
};

template <class Kind>
GPU_FN void set_scales(QuantRecord<Kind>& r, int row, float first, float second) {
  r.scale[row][0] = first;
  if constexpr (Kind::kHalves) r.scale[row][1] = second;
  if constexpr (Kind::kMinimum) r.minimum[row] = second;
}

template <class Kind>
GPU_FN void load_scales(const QuantView& w, const unsigned char* record, int g,
                        QuantRecord<Kind>& r) {
  const unsigned char* p = record + w.quant_bytes;
  if constexpr (!Kind::kHalves && !Kind::kMinimum) {
    const auto two = gpu::load8<uint2>(p + g * 8);
    const float2 a = gpu::unpack2<__half>(two.x), b = gpu::unpack2<__half>(two.y);
    r.scale[0][0] = a.x;
    r.scale[1][0] = a.y;
    r.scale[2][0] = b.x;
    r.scale[3][0] = b.y;
  } else if (Kind::kHalves || w.wide) {
#pragma unroll
    for (int i = 0; i < 2; i++) {
      const auto v = gpu::load16<float4>(p + g * 32 + i * 16);
      set_scales(r, 2 * i, v.x, v.y);
      set_scales(r, 2 * i + 1, v.z, v.w);
    }
  } else {
    const auto four = gpu::load16<uint4>(p + g * 16);
    const std::uint32_t pairs[4] = {four.x, four.y, four.z, four.w};
#pragma unroll
    for (int i = 0; i < 4; i++) {
      const float2 v = gpu::unpack2<__half>(pairs[i]);
      set_scales(r, i, v.x, v.y);
    }
  }
}

template <class Kind>
GPU_FN void load_quants(const unsigned char* record, int lane, uint4 (&word)[Kind::kWords]) {
#pragma unroll
  for (int i = 0; i < Kind::kWords; i++)
    word[i] = gpu::load16_stream<uint4>(record + i * 512 + lane * 16);
}

template <class Kind>
GPU_FN void load_record(const QuantView& w, const unsigned char* record, int lane,
                        QuantRecord<Kind>& r) {
  load_quants<Kind>(record, lane, r.word);
  load_scales(w, record, lane / 4, r);
}

GPU_FN const unsigned char* record_at(const QuantView& w, std::int64_t panel, std::int64_t block) {
  return w.data + (panel * w.blocks + block) * w.record_bytes;
}

// ---- quants ----

// Four columns, as bytes, of row g (high 0) or g + 8 (high 1) of a tile, step 0 or 1. Nibbles
// before their offset; int8 as it is.
template <class Kind>
GPU_FN std::uint32_t quant_bytes_of(const QuantRecord<Kind>& r, int tile, int step, int high) {
  if constexpr (Kind::kNibbles) {
    const uint4 v = r.word[0];
    const std::uint32_t word = tile == 0 ? (step == 0 ? v.x : v.y) : (step == 0 ? v.z : v.w);
    return (high == 0 ? word : word >> 4) & 0x0f0f0f0fu;
  } else {
    const uint4 v = r.word[tile];
    return step == 0 ? (high == 0 ? v.x : v.y) : (high == 0 ? v.z : v.w);
  }
}

// The same as signed bytes with the offset (0 to 15) taken off.
template <class Kind>
GPU_FN std::uint32_t signed_quants(const QuantRecord<Kind>& r, int tile, int step, int high,
                                   int offset) {
  const std::uint32_t v = quant_bytes_of(r, tile, step, high);
  if constexpr (!Kind::kNibbles) return v;
  // q + 128 - offset cannot carry into the next byte; the top bit then makes it signed.
  return (v + (128u - static_cast<std::uint32_t>(offset)) * 0x01010101u) ^ 0x80808080u;
}

// Four unsigned bytes as exact numbers of type T less `offset`, in two pairs. A byte beside 0x64
// is the f16 number 1024 + byte; a nibble beside 0x43 is the bf16 number 128 + nibble.
template <class T>
GPU_FN void small_numbers(std::uint32_t v, int offset, std::uint32_t& first,
                          std::uint32_t& second) {
  constexpr bool kHalf = std::is_same_v<T, __half>;
  using Pair = std::conditional_t<kHalf, __half2, __nv_bfloat162>;
  constexpr std::uint32_t kBase = kHalf ? 0x64006400u : 0x43004300u;
  const auto bias =
      gpu::value_of<std::uint32_t, Pair>(kBase + static_cast<std::uint32_t>(offset) * 0x00010001u);
  const auto less = [&](std::uint32_t pair) {
    return gpu::value_of<Pair, std::uint32_t>(
        __hsub2(gpu::value_of<std::uint32_t, Pair>(pair), bias));
  };
  first = less(__byte_perm(v, kBase, 0x5150));
  second = less(__byte_perm(v, kBase, 0x5352));
}

// Four signed bytes as exact bf16 numbers: too wide for the trick above, so by way of f32, whose
// 2^23 + byte has the byte in its last bits.
GPU_FN float wide_number(std::uint32_t v, unsigned selector) {
  return __uint_as_float(__byte_perm(v, 0x4b000000u, selector)) - (8388608.0f + 128.0f);
}
GPU_FN void byte_numbers(std::uint32_t v, std::uint32_t& first, std::uint32_t& second) {
  const std::uint32_t u = v ^ 0x80808080u;
  const auto pair = [](float a, float b) {  // their upper halves
    return __byte_perm(__float_as_uint(a), __float_as_uint(b), 0x7632);
  };
  first = pair(wide_number(u, 0x7440), wide_number(u, 0x7441));
  second = pair(wide_number(u, 0x7442), wide_number(u, 0x7443));
}

// Operand A of m16n8k16 for one tile and step: integers, not yet scaled.
template <class T, class Kind>
GPU_FN void operand(const QuantRecord<Kind>& r, int tile, int step, int offset,
                    std::uint32_t (&a)[4]) {
#pragma unroll
  for (int high = 0; high < 2; high++) {
    const std::uint32_t v = quant_bytes_of(r, tile, step, high);
    if constexpr (Kind::kNibbles)
      small_numbers<T>(v, offset, a[high], a[2 + high]);
    else if constexpr (std::is_same_v<T, __half>)
      small_numbers<T>(v ^ 0x80808080u, 128, a[high], a[2 + high]);
    else
      byte_numbers(v, a[high], a[2 + high]);
  }
}

// ---- products ----

GPU_FN void mma(float (&d)[4], const std::uint32_t (&a)[4], const std::uint32_t (&b)[2], __half) {
  gpu::mma_m16n8k16_f16(d, a, b);
}
GPU_FN void mma(float (&d)[4], const std::uint32_t (&a)[4], const std::uint32_t (&b)[2],
                __nv_bfloat16) {
  gpu::mma_m16n8k16_bf16(d, a, b);
}

// Sums of 32 rows by 8 N tokens: [tile][token tile] as operand D of mma.
template <int N>
using QuantSums = float[2][N][4];
// Operand B of a record: [token tile][step].
template <int N>
using QuantTokens = std::uint32_t[N][2][2];

// Adds one record: sum += scale * (products of integers) + minimum * (sum of x), where both sums
// are those of mma over two steps. T() only chooses the type.
template <class T, class Kind, int N>
GPU_FN void add_record(const QuantRecord<Kind>& r, const QuantTokens<N>& x, int offset,
                       QuantSums<N>& sums) {
  float x_sum[N][4] = {};
  if constexpr (Kind::kMinimum) {
    constexpr std::uint32_t kOnes = std::is_same_v<T, __half> ? 0x3c003c00u : 0x3f803f80u;
    const std::uint32_t ones[4] = {kOnes, kOnes, kOnes, kOnes};
#pragma unroll
    for (int i = 0; i < N; i++)
#pragma unroll
      for (int step = 0; step < 2; step++) mma(x_sum[i], ones, x[i][step], T());
  }
#pragma unroll
  for (int tile = 0; tile < 2; tile++) {
    std::uint32_t a[2][4];
    operand<T>(r, tile, 0, offset, a[0]);
    operand<T>(r, tile, 1, offset, a[1]);
#pragma unroll
    for (int i = 0; i < N; i++) {
      float part[Kind::kScales][4] = {};
      mma(part[0], a[0], x[i][0], T());
      mma(part[Kind::kScales - 1], a[1], x[i][1], T());
#pragma unroll
      for (int j = 0; j < 4; j++) {
        float& sum = sums[tile][i][j];
        const int row = tile * 2 + j / 2;
#pragma unroll
        for (int s = 0; s < Kind::kScales; s++) sum = __fmaf_rn(r.scale[row][s], part[s][j], sum);
        if constexpr (Kind::kMinimum) sum = __fmaf_rn(r.minimum[row], x_sum[i][j], sum);
      }
    }
  }
}

// ---- results ----

// Element j of operand D of tile and token tile: its row in the panel and its token.
GPU_FN int result_row(int lane, int tile, int j) { return tile * 16 + j / 2 * 8 + lane / 4; }
GPU_FN int result_token(int lane, int i, int j) { return i * 8 + lane % 4 * 2 + j % 2; }

template <class T>
GPU_FN void put_result(const QuantProduct& p, std::int64_t unit, std::int64_t token,
                       std::int64_t row, float value) {
  if (token >= p.rows || row >= p.n) return;
  const std::int64_t at = unit * p.y_unit + token * p.y_stride + row;
  if (p.out == DType::f32)
    static_cast<float*>(p.y)[at] = value;
  else
    static_cast<T*>(p.y)[at] = gpu::from_float<T>(value);
}

}  // namespace cohort::cuda
