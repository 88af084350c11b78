// SPDX-License-Identifier: Apache-2.0
// The ranks of a replica as threads, with a real control channel between them.
#pragma once
#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <vector>

#include "comm/control.h"
#include "tests/support/replay.h"
#include "tests/support/spawn_ranks.h"
#include "tests/support/tiny_checkpoint.h"
#include "worker/rank.h"

namespace cohort::testing {

inline constexpr ControlTimes kTimes{.heartbeat = std::chrono::milliseconds(50),
                                     .lease = std::chrono::milliseconds(1500)};
inline constexpr Duration kStart = std::chrono::seconds(20);

inline void never(int exit_code) { ADD_FAILURE() << "the process would end with " << exit_code; }

// What options.model names; a small dense model where it names none.
inline std::shared_ptr<Checkpoint> open_tiny(const ReplicaOptions& options) {
  if (options.model.empty()) return std::make_shared<TinyCheckpoint>(tiny_model(DType::q4_1));
  return require_ok(Checkpoint::open(options.model));
}

inline std::unique_ptr<Rank> load_tiny(World& world, const ReplicaOptions& options) {
  return require_ok(Rank::load(world, *open_tiny(options), options, {}));
}

// The leader's side and the others', as a worker process does it. leader may end the hub early.
inline void run_replica(const ReplicaOptions& options,
                        const std::function<void(Rank&, std::unique_ptr<ControlHub>&)>& leader,
                        const std::function<void(Rank&, std::unique_ptr<ControlLink>)>& other) {
  spawn_ranks(options.layout.ranks(), [&](World& world) {
    std::unique_ptr<ControlHub> hub;
    if (world.rank() == 0) hub = require_ok(ControlHub::listen("127.0.0.1", kTimes));
    const auto addresses = require_ok(world.exchange(hub ? hub->address() : "", kStart));
    std::unique_ptr<ControlLink> link;
    if (hub)
      require_ok(hub->accept(world.size(), kStart));
    else
      link = require_ok(
          ControlLink::connect(addresses[0], world.rank(), world.host(), kTimes, kStart));
    const auto rank = load_tiny(world, options);
    if (hub)
      leader(*rank, hub);
    else
      other(*rank, std::move(link));
  });
}

inline void expect_same(const std::vector<StepResult>& a, const std::vector<StepResult>& b) {
  ASSERT_EQ(a.size(), b.size());
  for (size_t i = 0; i < a.size(); i++) {
    EXPECT_EQ(a[i].step, b[i].step);
    EXPECT_EQ(a[i].slots, b[i].slots);
  }
}

}  // namespace cohort::testing
