// SPDX-License-Identifier: Apache-2.0
#include "tests/cuda_emulation/mma.h"

#include <algorithm>

#include "tests/cuda_emulation/block.h"
#include "tests/cuda_emulation/race.h"

namespace emu {
namespace {
constexpr std::uint32_t kWholeWarp = ~0u;

void need_whole_warp(std::uint32_t mask) {
  if (mask != kWholeWarp) Block::current().fail("a matrix instruction needs all lanes of a warp");
}

// ---- ldmatrix ----
struct LoadArg {
  const void* row;
  std::uint32_t* r;
};
const std::uint16_t* row_of(void** args, int matrix, int row) {
  return static_cast<const std::uint16_t*>(static_cast<LoadArg*>(args[8 * matrix + row])->row);
}

// 8 rows of 16 bytes are read at once: without conflicts they touch each of 32 banks once.
void count_conflicts(void** args, int matrix) {
  Stats& s = Block::current().stats();
  unsigned hits[32] = {}, worst = 0;
  for (int i = 0; i < 8; ++i) {
    const auto word = reinterpret_cast<std::uintptr_t>(row_of(args, matrix, i)) / 4;
    for (unsigned w = 0; w < 4; ++w) worst = std::max(worst, ++hits[(word + w) % 32]);
  }
  ++s.ldmatrix_phases;
  s.ldmatrix_conflicts += worst - 1;
}

template <int Matrices, bool Transposed>
void load_fragments(void** args, std::uint32_t mask) {
  need_whole_warp(mask);
  for (int m = 0; m < Matrices; ++m) {
    count_conflicts(args, m);
    for (int t = 0; t < 32; ++t) {
      const int row = t / 4, column = 2 * (t % 4);
      const std::uint32_t low =
          Transposed ? row_of(args, m, column)[row] : row_of(args, m, row)[column];
      const std::uint32_t high =
          Transposed ? row_of(args, m, column + 1)[row] : row_of(args, m, row)[column + 1];
      static_cast<LoadArg*>(args[t])->r[m] = low | high << 16;
    }
  }
}

template <int Matrices, bool Transposed>
void ldmatrix(std::uint32_t* r, const void* row, Site site, void* caller) {
  Block& block = Block::current();
  block.lane().site = site;
  if (lane_id() < 8 * Matrices) {  // the addresses of the other lanes do not count
    if (reinterpret_cast<std::uintptr_t>(row) % 16 != 0)
      block.fail("ldmatrix needs addresses that are multiples of 16");
    if (!block.in_shared(row, 16)) block.fail("ldmatrix reads outside of shared memory");
    const Frame frame(caller);
    reads(row, 16);
  }
  LoadArg a{row, r};
  block.collective(kWholeWarp, &a, &load_fragments<Matrices, Transposed>, false, site);
}

// ---- mma ----
template <class Sum>
struct MmaArg {
  Sum* d;
  const std::uint32_t* a;
  const std::uint32_t* b;
};

struct Bf16 {
  using Sum = float;
  using Value = float;
  static constexpr int kPerRegister = 2;
  static float value(std::uint32_t r, int i) {
    return __uint_as_float((r >> (16 * i) & 0xffffu) << 16);
  }
};
struct F16 {
  using Sum = float;
  using Value = float;
  static constexpr int kPerRegister = 2;
  static float value(std::uint32_t r, int i) {
    return __half2float(__half(__half_raw{static_cast<unsigned short>(r >> (16 * i))}));
  }
};
struct S8 {
  using Sum = std::int32_t;
  using Value = std::uint32_t;  // sums wrap
  static constexpr int kPerRegister = 4;
  static std::uint32_t value(std::uint32_t r, int i) {
    return static_cast<std::uint32_t>(std::int32_t{static_cast<std::int8_t>(r >> (8 * i))});
  }
};

template <class Type>
void multiply(void** args, std::uint32_t mask) {
  using Value = typename Type::Value;
  using Arg = MmaArg<typename Type::Sum>;
  constexpr int kPer = Type::kPerRegister, kHalf = 4 * kPer, kDepth = 2 * kHalf;
  need_whole_warp(mask);
  Value a[16][kDepth], b[kDepth][8];
  for (int t = 0; t < 32; ++t) {
    const Arg& lane = *static_cast<Arg*>(args[t]);
    const int group = t / 4, k = t % 4 * kPer;
    for (int i = 0; i < kPer; ++i) {
      for (int r = 0; r < 4; ++r)
        a[group + r % 2 * 8][k + i + r / 2 * kHalf] = Type::value(lane.a[r], i);
      for (int r = 0; r < 2; ++r) b[k + i + r * kHalf][group] = Type::value(lane.b[r], i);
    }
  }
  Value d[16][8];
  auto exchange = [&](auto move) {
    for (int t = 0; t < 32; ++t)
      for (int i = 0; i < 4; ++i)
        move(static_cast<Arg*>(args[t])->d[i], d[t / 4 + i / 2 * 8][t % 4 * 2 + i % 2]);
  };
  exchange([](auto& lane, Value& v) { v = static_cast<Value>(lane); });
  for (int row = 0; row < 16; ++row)
    for (int k = 0; k < kDepth; ++k)
      for (int column = 0; column < 8; ++column) d[row][column] += a[row][k] * b[k][column];
  exchange([](auto& lane, Value& v) { lane = static_cast<typename Type::Sum>(v); });
}

template <class Type>
void mma(typename Type::Sum* d, const std::uint32_t* a, const std::uint32_t* b, Site site) {
  MmaArg<typename Type::Sum> arg{d, a, b};
  Block::current().collective(kWholeWarp, &arg, &multiply<Type>, false, site);
}
}  // namespace
}  // namespace emu

namespace gpu {
void ldmatrix_x4(std::uint32_t (&r)[4], const void* row, emu::Site site) {
  emu::ldmatrix<4, false>(r, row, site, __builtin_return_address(0));
}
void ldmatrix_x4_trans(std::uint32_t (&r)[4], const void* row, emu::Site site) {
  emu::ldmatrix<4, true>(r, row, site, __builtin_return_address(0));
}
void ldmatrix_x2(std::uint32_t (&r)[2], const void* row, emu::Site site) {
  emu::ldmatrix<2, false>(r, row, site, __builtin_return_address(0));
}
void ldmatrix_x2_trans(std::uint32_t (&r)[2], const void* row, emu::Site site) {
  emu::ldmatrix<2, true>(r, row, site, __builtin_return_address(0));
}
void mma_m16n8k16_bf16(float (&d)[4], const std::uint32_t (&a)[4], const std::uint32_t (&b)[2],
                       emu::Site site) {
  emu::mma<emu::Bf16>(d, a, b, site);
}
void mma_m16n8k16_f16(float (&d)[4], const std::uint32_t (&a)[4], const std::uint32_t (&b)[2],
                      emu::Site site) {
  emu::mma<emu::F16>(d, a, b, site);
}
void mma_m16n8k32_s8(std::int32_t (&d)[4], const std::uint32_t (&a)[4], const std::uint32_t (&b)[2],
                     emu::Site site) {
  emu::mma<emu::S8>(d, a, b, site);
}
}  // namespace gpu
