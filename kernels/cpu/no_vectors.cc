// SPDX-License-Identifier: Apache-2.0
// In place of the units of x86's instruction sets on other processors. None of them is supported()
// there, so nothing calls these.
#include "kernels/cpu/attention_job.h"
#include "kernels/cpu/elementwise.h"
#include "kernels/cpu/matmul_job.h"
#include "kernels/cpu/quantize.h"
#include "kernels/cpu/rows.h"

namespace cohort {

void quantize_avx2(const float* x, int64_t blocks, const QuantizedBlocks& out) {
  quantize_portable(x, blocks, out);
}
void quantize_avx512(const float* x, int64_t blocks, const QuantizedBlocks& out) {
  quantize_portable(x, blocks, out);
}
RowSums measure_row_avx2(const float* x, int64_t n) { return measure_row_portable(x, n); }
RowSums measure_row_avx512(const float* x, int64_t n) { return measure_row_portable(x, n); }
RowSums add_row_avx2(float* x, const float* y, int64_t n) { return add_row_portable(x, y, n); }
RowSums add_row_avx512(float* x, const float* y, int64_t n) { return add_row_portable(x, y, n); }
void scale_row_avx2(float* out, const float* x, float scale, const float* weight, int64_t n) {
  scale_row_portable(out, x, scale, weight, n);
}
void scale_row_avx512(float* out, const float* x, float scale, const float* weight, int64_t n) {
  scale_row_portable(out, x, scale, weight, n);
}
bool lane_maxima_avx2(float* maxima, const float* x, int64_t n) {
  return lane_maxima_portable(maxima, x, n);
}
bool lane_maxima_avx512(float* maxima, const float* x, int64_t n) {
  return lane_maxima_portable(maxima, x, n);
}
void block_sums_avx2(double* sums, const float* x, int64_t n) { block_sums_portable(sums, x, n); }
void block_sums_avx512(double* sums, const float* x, int64_t n) { block_sums_portable(sums, x, n); }
void matmul_avx2(const MatmulJob& job, int64_t p0, int64_t p1) { matmul_portable(job, p0, p1); }
void matmul_avx512(const MatmulJob& job, int64_t p0, int64_t p1) { matmul_portable(job, p0, p1); }
void matmul_amx(const MatmulJob& job, int64_t p0, int64_t p1) { matmul_portable(job, p0, p1); }
void matmul_bf16_amx(const MatmulJob& job, int64_t p0, int64_t p1) {
  matmul_bf16_portable(job, p0, p1);
}
void tile_row_amx(const int8_t*, int64_t, int64_t, uint16_t*) {}
void matmul_bf16_avx2(const MatmulJob& job, int64_t p0, int64_t p1) {
  matmul_bf16_portable(job, p0, p1);
}
void matmul_bf16_avx512(const MatmulJob& job, int64_t p0, int64_t p1) {
  matmul_bf16_portable(job, p0, p1);
}
void round_bf16_avx2(const float* x, int64_t n, float* wide, uint16_t* narrow) {
  round_bf16_portable(x, n, wide, narrow);
}
void round_bf16_avx512(const float* x, int64_t n, float* wide, uint16_t* narrow) {
  round_bf16_portable(x, n, wide, narrow);
}
void silu_mul_avx2(float* out, const float* gate, const float* up, int64_t n) {
  silu_mul_portable(out, gate, up, n);
}
void silu_mul_avx512(float* out, const float* gate, const float* up, int64_t n) {
  silu_mul_portable(out, gate, up, n);
}
void weigh_avx2(float* out, const float* x, float top, float scale, int64_t n) {
  weigh_portable(out, x, top, scale, n);
}
void weigh_avx512(float* out, const float* x, float top, float scale, int64_t n) {
  weigh_portable(out, x, top, scale, n);
}
void attend_avx2(const AttentionWork& work) { attend_portable(work); }
void attend_avx512(const AttentionWork& work) { attend_portable(work); }
void attend_amx(const AttentionWork& work) { attend_portable(work); }
void merge_avx2(const AttentionWork& work, const AttentionMerge& merge) {
  merge_portable(work, merge);
}
void merge_avx512(const AttentionWork& work, const AttentionMerge& merge) {
  merge_portable(work, merge);
}

}  // namespace cohort
