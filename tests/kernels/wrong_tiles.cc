// SPDX-License-Identifier: Apache-2.0
// What tiles in software are compared with: tile units that add otherwise, and a processor's FMA.
#include "kernels/cpu/matmul_bf16_amx.h"
#include "tests/kernels/software_tiles.h"

namespace cohort {

void bf16_pair_by_pair(const MatmulJob& job, int64_t p0, int64_t p1) {
  multiply_bf16_on_tiles<SoftwareTiles<PairByPairSum>>(job, p0, p1);
}

void bf16_with_denormals(const MatmulJob& job, int64_t p0, int64_t p1) {
  multiply_bf16_on_tiles<SoftwareTiles<DenormalSum>>(job, p0, p1);
}

// FTZ and DAZ: Intel SDM volume 1, section 10.2.3. One piece of assembly, because compilers do not
// know that FMA depends on the mode.
float processor_flushed_fma(float a, float b, float c) {
  unsigned mode;
  asm volatile("stmxcsr %0" : "=m"(mode));
  const unsigned flushing = mode | 0x8040u;
  asm volatile(
      "ldmxcsr %[flushing]\n\t"
      "vfmadd213ss %[c], %[b], %[a]\n\t"
      "ldmxcsr %[mode]"
      : [a] "+x"(a)
      : [b] "x"(b), [c] "x"(c), [flushing] "m"(flushing), [mode] "m"(mode));
  return a;
}

}  // namespace cohort
