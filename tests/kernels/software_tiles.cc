// SPDX-License-Identifier: Apache-2.0
// The kernels for AMX on tiles in software, in place of those of the library: linked into a test,
// these are the ones that Isa::amx means.
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

int64_t software_tile_products() { return __atomic_load_n(&tile_products, __ATOMIC_RELAXED); }

}  // namespace cohort
