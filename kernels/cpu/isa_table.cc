// SPDX-License-Identifier: Apache-2.0
#include "kernels/cpu/isa_table.h"

namespace cohort {

// Where no faster form exists, a set takes the one of the set before it.
const CpuKernels& cpu_kernels(Isa isa) {
  static constexpr CpuKernels kTable[] = {
      {matmul_portable, quantize_portable, silu_mul_portable, weigh_portable, attend_portable,
       merge_portable},
      {matmul_avx2, quantize_avx2, silu_mul_avx2, weigh_avx2, attend_avx2, merge_avx2},
      {matmul_avx512, quantize_avx512, silu_mul_avx512, weigh_avx512, attend_avx512, merge_avx512},
      {matmul_amx, quantize_avx512, silu_mul_avx512, weigh_avx512, attend_avx512, merge_avx512},
  };
  return kTable[size_t(isa)];
}

}  // namespace cohort
