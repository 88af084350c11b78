// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "tests/cuda/attention_world.h"

namespace cohort::test {
namespace {

using Parts = std::vector<AttentionPart>;

std::string describe(const KvGeometry& g, DType activations) {
  return concat(g.heads, "/", g.kv_heads, " dim ", g.dim, " ", name(g.dtype), ", activations ",
                name(activations));
}

struct Case {
  KvGeometry g;
  DType activations;
};

class AttentionTest : public RuntimeTest {
 protected:
  ~AttentionTest() override { emu::options() = {}; }
};

AttentionWorld world(const Case& c, const std::vector<int>& lengths) {
  return AttentionWorld(c.g, c.activations, lengths);
}

const std::vector<Case>& cases() {
  constexpr DType f32 = DType::f32, f16 = DType::f16, bf16 = DType::bf16, f8 = DType::f8_e4m3;
  static const std::vector<Case> all = {
      {{9, 3, 64, f16}, f16},  {{8, 2, 128, bf16}, bf16}, {{8, 8, 80, f16}, f16},
      {{14, 2, 64, f8}, bf16}, {{4, 1, 128, f8}, f16},    {{4, 2, 24, bf16}, bf16},
      {{2, 1, 8, f8}, f16},    {{4, 1, 96, bf16}, bf16},  {{2, 1, 256, f16}, f16},
      {{2, 1, 136, f8}, bf16}, {{20, 1, 32, f16}, f16},   {{9, 3, 64, f32}, f32},
      {{4, 1, 8, f32}, f32},   {{2, 1, 264, bf16}, bf16}, {{4, 2, 24, f16}, bf16},
      {{2, 1, 16, f8}, f32},
  };
  return all;
}

TEST_F(AttentionTest, IsCloseToDoublePrecision) {
  for (const Case& c : cases()) {
    SCOPED_TRACE(describe(c.g, c.activations));
    AttentionWorld w = world(c, {1, 40, 300, 131});
    // A decode step of each kind, chunks that begin and end anywhere, a whole prompt.
    w.step({{0, 0, 1}, {2, 299, 1}, {1, 17, 23}, {3, 130, 1}}, 1);
    EXPECT_LE(w.error(0, 0), 1);
    EXPECT_LE(w.error(1, 17), 1);
    EXPECT_LE(w.error(1, 39), 1);
    EXPECT_LE(w.error(2, 299), 1);
    EXPECT_LE(w.error(3, 130), 1);
  }
}

}  // namespace
}  // namespace cohort::test
