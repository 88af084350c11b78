// SPDX-License-Identifier: Apache-2.0
// What is done to one row at a time, in a form per instruction set: the sums of norms, the largest
// logits and the weights of sampling. Included by units of every instruction set: plain structs
// only.
#pragma once
#include <cstdint>

namespace cohort {

struct RowSums {
  float squares;       // as rms_norm adds them (docs/arithmetic.md section 4)
  uint32_t magnitude;  // bits of the largest |x|; infinity's and above: not finite
};

[[maybe_unused]] static bool finite(const RowSums& sums) { return sums.magnitude < 0x7f800000u; }

// Of x [n].
using MeasureRow = RowSums(const float* x, int64_t n);
MeasureRow measure_row_portable, measure_row_avx2, measure_row_avx512;

// x = x + y, and of the result.
using AddRow = RowSums(float* x, const float* y, int64_t n);
AddRow add_row_portable, add_row_avx2, add_row_avx512;

// out_i = (x_i * scale) * weight_i. out may be x.
using ScaleRow = void(float* out, const float* x, float scale, const float* weight, int64_t n);
ScaleRow scale_row_portable, scale_row_avx2, scale_row_avx512;

// Blocks of 256 elements, the last one maybe shorter; in each, element i belongs to lane i % 16.
constexpr int kVocabBlock = 256, kVocabLanes = 16;

// maxima [blocks][16]: the largest of each lane of each block of x [n]; NaN is passed over, and
// lanes without elements are -infinity. Returns whether anything is NaN.
using LaneMaxima = bool(float* maxima, const float* x, int64_t n);
LaneMaxima lane_maxima_portable, lane_maxima_avx2, lane_maxima_avx512;

// sums [blocks]: of each block of x [n] that of its lanes, then of lanes 8, 4, 2 and 1 apart.
using BlockSums = void(double* sums, const float* x, int64_t n);
BlockSums block_sums_portable, block_sums_avx2, block_sums_avx512;

struct RowKernels {
  MeasureRow* measure;
  AddRow* add;
  ScaleRow* scale;
  LaneMaxima* lane_maxima;
  BlockSums* block_sums;
};
constexpr RowKernels kRowsPortable = {measure_row_portable, add_row_portable, scale_row_portable,
                                      lane_maxima_portable, block_sums_portable};
constexpr RowKernels kRowsAvx2 = {measure_row_avx2, add_row_avx2, scale_row_avx2, lane_maxima_avx2,
                                  block_sums_avx2};
constexpr RowKernels kRowsAvx512 = {measure_row_avx512, add_row_avx512, scale_row_avx512,
                                    lane_maxima_avx512, block_sums_avx512};

}  // namespace cohort
