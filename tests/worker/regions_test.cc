// SPDX-License-Identifier: Apache-2.0
// A region of the thread pool costs about a microsecond, and a layer of a small model takes some
// tens: what little there is to do between products is done on the way, not by more regions.
#include <gtest/gtest.h>

#include "tests/support/replay.h"
#include "tests/support/spawn_ranks.h"
#include "tests/support/tiny_checkpoint.h"
#include "tests/worker/requests.h"
#include "worker/rank.h"

namespace cohort::testing {
namespace {

// Of one step of `rows` rows: new prompts of that many tokens together, or one token of each.
int64_t regions_per_step(int64_t layers, int rows, bool decode, bool wide = false) {
  int64_t counted = 0;
  spawn_ranks(1, [&](World& world) {
    TinyModel model = tiny_model(DType::q4_1);
    model.config.layers = layers;
    if (wide) {
      model.config.hidden = 576;
      model.config.ffn = 1536;
    }
    TinyCheckpoint checkpoint(model);
    ReplicaOptions options = tiny_options();
    options.threads = 2;
    options.isa = detect_isa();
    options.limits.max_slots = 16;
    const auto rank = require_ok(Rank::load(world, checkpoint, options, {}));
    std::vector<TestRequest> requests;
    if (decode)
      for (int i = 0; i < rows; i++)
        requests.push_back({some_tokens(3, uint32_t(i)), 4, greedy(0), 0});
    else
      requests.push_back({some_tokens(rows, 1), 2, greedy(0), 0});
    const auto plans = make_schedule(requests, rank->limits(), {}).plans;
    const size_t step = decode ? 2 : 0;
    for (size_t i = 0; i <= step; i++) {
      const int64_t before = rank->regions();
      require_ok(rank->execute(plans[i]).status());
      counted = rank->regions() - before;
    }
    EXPECT_EQ(plans[step].rows(), rows);
  });
  return counted;
}

// Products of q, k and v, of attention's output, of gate and up, and of down; and attention.
TEST(RegionsTest, ALayerOfFewRowsTakesFiveRegions) {
  for (const bool decode : {false, true})
    for (const int rows : {1, 2, 8, 16}) {
      const int64_t few = regions_per_step(2, rows, decode);
      const int64_t many = regions_per_step(7, rows, decode);
      EXPECT_LE(many - few, 5 * 5) << rows << " rows";
      EXPECT_GT(many - few, 0);
      EXPECT_LE(few, 2 * 5 + 3) << rows << " rows";  // the head and what samples
    }
}

// Of a small real model's widths, whose rows are wide enough to be shared if many.
TEST(RegionsTest, TheWidthsOfASmallModelAddNone) {
  for (const int rows : {1, 4, 8, 16}) {
    const int64_t more =
        regions_per_step(2, rows, true, true) - regions_per_step(1, rows, true, true);
    EXPECT_LE(more, 5) << rows << " rows";
    EXPECT_GT(more, 0);
  }
}

}  // namespace
}  // namespace cohort::testing
