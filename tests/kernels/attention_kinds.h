// SPDX-License-Identifier: Apache-2.0
// What attention in bf16 arithmetic is tested with: values of all kinds that its sums tell apart.
#pragma once
#include <cmath>
#include <limits>
#include <random>

#include "tests/kernels/attention_world.h"

namespace cohort {

enum class Kind { ordinary, wide, denormal, vanishing, not_finite };
inline constexpr Kind kKinds[] = {Kind::ordinary, Kind::wide, Kind::denormal, Kind::vanishing,
                                  Kind::not_finite};

// Products of what vanishes are around 2^-126; values are, and so are those of queries and keys.
inline void change(World& world, const KvGeometry& g, Kind kind, std::mt19937& random) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
  for (Sequence& s : world.sequences)
    for (size_t i = 0; i < s.qkv.size(); i++) {
      const size_t head = i % size_t(world.width()) / size_t(g.dim);
      const bool query = head < size_t(g.heads),
                 key = !query && head < size_t(g.heads + g.kv_heads);
      float& x = s.qkv[i];
      const uint32_t draw = random();
      if (kind == Kind::wide) x = std::ldexp(x, int(draw % 16) - (query || key ? 8 : 12));
      if (kind == Kind::denormal && !query && draw % 2) x *= 0x1p-128f;
      if (kind == Kind::denormal && query) x *= 0x1p+126f;
      if (kind == Kind::vanishing) x = std::ldexp(x, -int(draw % 12) - (query || key ? 60 : 122));
      if (kind == Kind::not_finite && draw % 4096 == 0) x = draw % 8192 ? kInfinity : kNan;
      if (kind == Kind::not_finite && !query && !key && draw % 128 == 1) x = std::ldexp(x, 126);
    }
}

}  // namespace cohort
