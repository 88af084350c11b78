// SPDX-License-Identifier: Apache-2.0
// The tile unit of x86 processors with AMX (Intel SDM volume 2: LDTILECFG, TILELOADD, TDPBF16PS
// ..): eight registers of up to 16 rows by 64 bytes, which belong to a thread. Kernels on tiles are
// templates over this class, so that tiles in software can prove them where there is no such
// processor (tests/kernels/software_tiles.h). Included by units with AMX alone.
//
// The instructions are written down, not taken from a compiler's header: those differ in what
// memory they are said to touch, which lets compilers drop the bytes that a tile is loaded from.
#pragma once
#include <cstddef>
#include <cstdint>

namespace cohort {
namespace {

constexpr int kTileRows = 16, kTileRowBytes = 64;

// A tile's memory.
struct alignas(64) TileBytes {
  std::byte bytes[kTileRows * kTileRowBytes];
};

// What LDTILECFG reads: palette 1 has eight tiles.
struct alignas(64) TileConfig {
  uint8_t palette, start_row, reserved[14];
  uint16_t row_bytes[16];
  uint8_t rows[16];
};
static_assert(sizeof(TileConfig) == 64);

// Tiles 0 to 3 hold sums [rows][16] in f32; 4 and 5 factors [rows][2 * pairs] in bf16; 6 and 7
// the other factors [pairs][16][2], pairs of columns side by side. rows and pairs: at most 16.
__attribute__((always_inline)) inline TileConfig tile_config(int rows, int pairs) {
  TileConfig config = {};
  config.palette = 1;
  for (int i = 0; i < 8; i++) {
    config.row_bytes[i] = uint16_t(i == 4 || i == 5 ? 4 * pairs : kTileRowBytes);
    config.rows[i] = uint8_t(i < 6 ? rows : pairs);
  }
  return config;
}

class HardwareTiles {
 public:
  // See tile_config(). Zeroes all. Tiles can be used from here to release(), by this thread; while
  // they are in use the system saves 8 KiB more at every switch of threads.
  __attribute__((always_inline)) inline void configure(int rows, int pairs) {
    const TileConfig config = tile_config(rows, pairs);
    asm volatile("ldtilecfg %0" ::"m"(config));
  }
  __attribute__((always_inline)) inline void release() { asm volatile("tilerelease"); }

  template <int kTile>
  __attribute__((always_inline)) inline void zero() {
    asm volatile("tilezero %%tmm%c0" ::"i"(kTile));
  }

  // stride: bytes from row to row in memory.
  template <int kTile>
  __attribute__((always_inline)) inline void load(const void* from, int64_t stride) {
    asm volatile("tileloadd (%0,%1,1), %%tmm%c2" ::"r"(from), "r"(stride), "i"(kTile) : "memory");
  }
  template <int kTile>
  __attribute__((always_inline)) inline void store(void* to, int64_t stride) {
    asm volatile("tilestored %%tmm%c2, (%0,%1,1)" ::"r"(to), "r"(stride), "i"(kTile) : "memory");
  }

  // Sums += left times right: of each sum, products of the left columns of pairs are one FMA chain
  // from +0, those of the right ones another; their sum is added. Denormals count as zeros before
  // and after every operation.
  template <int kSums, int kLeft, int kRight>
  __attribute__((always_inline)) inline void dot() {
    asm volatile("tdpbf16ps %%tmm%c2, %%tmm%c1, %%tmm%c0" ::"i"(kSums), "i"(kLeft), "i"(kRight));
  }
};

}  // namespace
}  // namespace cohort
