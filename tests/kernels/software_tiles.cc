// SPDX-License-Identifier: Apache-2.0
// The kernels for AMX on tiles in software, in place of those of the library: linked into a test,
// these are the ones that Isa::amx means. Compiled for AVX-512, as the others are.
#include "tests/kernels/software_tiles.h"

#include "kernels/cpu/matmul_amx.h"
#include "kernels/cpu/matmul_bf16_amx.h"

namespace cohort {

void matmul_amx(const MatmulJob& job, int64_t p0, int64_t p1) {
  multiply_on_tiles<SoftwareTiles<SpecifiedSum>>(job, p0, p1);
}

void tile_row_amx(const int8_t* q, int64_t blocks, int64_t block_bytes, uint16_t* tiled) {
  write_tile_row(q, blocks, block_bytes, tiled);
}

void matmul_bf16_amx(const MatmulJob& job, int64_t p0, int64_t p1) {
  multiply_bf16_on_tiles<SoftwareTiles<SpecifiedSum>>(job, p0, p1);
}

void bf16_pair_by_pair(const MatmulJob& job, int64_t p0, int64_t p1) {
  multiply_bf16_on_tiles<SoftwareTiles<PairByPairSum>>(job, p0, p1);
}

void bf16_with_denormals(const MatmulJob& job, int64_t p0, int64_t p1) {
  multiply_bf16_on_tiles<SoftwareTiles<DenormalSum>>(job, p0, p1);
}

int64_t software_tile_products() { return __atomic_load_n(&tile_products, __ATOMIC_RELAXED); }

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
