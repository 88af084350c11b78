// SPDX-License-Identifier: Apache-2.0
#include "kernels/cpu/matmul_amx.h"

namespace cohort {

void tile_row_amx(const int8_t* q, int64_t blocks, int64_t block_bytes, uint16_t* tiled) {
  write_tile_row(q, blocks, block_bytes, tiled);
}

void matmul_amx(const MatmulJob& job, int64_t p0, int64_t p1) {
  multiply_on_tiles<HardwareTiles>(job, p0, p1);
}

}  // namespace cohort
