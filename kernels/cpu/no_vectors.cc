// SPDX-License-Identifier: Apache-2.0
// In place of the units of x86's instruction sets on other processors. None of them is supported()
// there, so nothing calls these.
#include "kernels/cpu/attention_job.h"
#include "kernels/cpu/elementwise.h"
#include "kernels/cpu/matmul_job.h"
#include "kernels/cpu/quantize.h"

namespace cohort {

void quantize_avx2(const float* x, int8_t* q, float* d, int32_t* sum) {
  quantize_portable(x, q, d, sum);
}
void quantize_avx512(const float* x, int8_t* q, float* d, int32_t* sum) {
  quantize_portable(x, q, d, sum);
}
void matmul_avx2(const MatmulJob& job, int64_t p0, int64_t p1) { matmul_portable(job, p0, p1); }
void matmul_avx512(const MatmulJob& job, int64_t p0, int64_t p1) { matmul_portable(job, p0, p1); }
void matmul_amx(const MatmulJob& job, int64_t p0, int64_t p1) { matmul_portable(job, p0, p1); }
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
void merge_avx2(const AttentionWork& work, const AttentionMerge& merge) {
  merge_portable(work, merge);
}
void merge_avx512(const AttentionWork& work, const AttentionMerge& merge) {
  merge_portable(work, merge);
}

}  // namespace cohort
