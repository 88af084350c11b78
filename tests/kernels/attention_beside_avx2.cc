// SPDX-License-Identifier: Apache-2.0
// Attention for AMX made of tiles and AVX2, in place of the library's of tiles and AVX-512: linked
// into a test, these are the kernels that Isa::amx means.
#include "kernels/cpu/attention_amx.h"
#include "kernels/cpu/attention_avx2.h"
#include "tests/kernels/software_tiles.h"

namespace cohort {

void attend_amx(const AttentionWork& work) {
  return worth_tiles(work) ? attend_on_tiles<Avx2, HardwareTiles>(work) : attend_avx2(work);
}
void attend_avx512(const AttentionWork& work) { attend_avx2(work); }
void merge_avx512(const AttentionWork& work, const AttentionMerge& m) { merge_avx2(work, m); }

// The trial of tiles (kernels/cpu/amx_check.h) is of products, which need AVX-512.
void matmul_bf16_amx(const MatmulJob& job, int64_t p0, int64_t p1) {
  matmul_bf16_portable(job, p0, p1);
}

Isa isa_beside_tiles() { return Isa::avx2; }

}  // namespace cohort
