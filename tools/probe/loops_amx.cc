// SPDX-License-Identifier: Apache-2.0
#include <immintrin.h>

#include "tools/probe/loops.h"

namespace cohort {

// Four chains of products of 16 x 32 by 32 x 16 bf16, all zeros. The form of the configuration:
// Intel SDM volume 1, 18.3.
double tiles_amx(int64_t rounds) {
  alignas(64) unsigned char config[64] = {1}, zeros[1024] = {};
  for (int tile = 0; tile < 8; tile++) {
    config[16 + 2 * tile] = 64;  // bytes of a row
    config[48 + tile] = 16;      // rows
  }
  asm volatile("ldtilecfg %0" ::"m"(config));
  _tile_zero(0);
  _tile_zero(1);
  _tile_zero(2);
  _tile_zero(3);
  _tile_loadd(6, zeros, 64);
  _tile_loadd(7, zeros, 64);
  for (int64_t i = 0; i < rounds; i++) {
    _tile_dpbf16ps(0, 6, 7);
    _tile_dpbf16ps(1, 6, 7);
    _tile_dpbf16ps(2, 6, 7);
    _tile_dpbf16ps(3, 6, 7);
  }
  _tile_release();
  return double(rounds) * 4 * 16 * 16 * 32 * 2;
}

}  // namespace cohort
