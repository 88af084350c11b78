// SPDX-License-Identifier: Apache-2.0
#include "kernels/cpu/isa_table.h"

namespace cohort {

// Where no faster form exists, a set takes the one of the set before it.
const CpuKernels& cpu_kernels(Isa isa) {
  static constexpr CpuKernels kTable[] = {
      {matmul_portable, quantize_portable, nullptr, silu_mul_portable, weigh_portable,
       attend_portable, merge_portable, matmul_bf16_portable, round_bf16_portable, kRowsPortable},
      {matmul_avx2, quantize_avx2, nullptr, silu_mul_avx2, weigh_avx2, attend_avx2, merge_avx2,
       matmul_bf16_avx2, round_bf16_avx2, kRowsAvx2},
      {matmul_avx512, quantize_avx512, nullptr, silu_mul_avx512, weigh_avx512, attend_avx512,
       merge_avx512, matmul_bf16_avx512, round_bf16_avx512, kRowsAvx512},
      {matmul_amx, quantize_avx512, tile_row_amx, silu_mul_avx512, weigh_avx512, attend_amx,
       merge_avx512, matmul_bf16_amx, round_bf16_avx512, kRowsAvx512},
  };
  return kTable[size_t(isa)];
}

}  // namespace cohort
