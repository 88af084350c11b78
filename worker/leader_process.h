// SPDX-License-Identifier: Apache-2.0
// What rank 0 does besides computing: it meets its ranks, schedules their steps and serves the
// coordinator until it is told to end or the replica fails.
//
// Its standard output is for the supervisor, one line each: "progress 0.43" while weights are read,
// "serving" when the coordinator has welcomed the replica.
#pragma once
#include <memory>

#include "comm/communicator.h"
#include "comm/control.h"
#include "worker/end_signals.h"
#include "worker/options.h"
#include "worker/rank_loop.h"
#include "worker/rank_states.h"

namespace cohort {

// All ranks connect to their leader outside MPI: hub on rank 0 of several, link on the others.
struct Control {
  std::unique_ptr<ControlHub> hub;
  std::unique_ptr<ControlLink> link;
  std::vector<RankState> ranks;
};
// Called by all ranks together.
Result<Control> connect_ranks(World& world, const WorkerOptions& options);

// How a rank that could not be loaded ends: kExitUsage where the model, the layout or the memory is
// at fault, kExitRankFailed where another try may go better.
int load_exit_code(const Status& why);

// SIGTERM and SIGINT must be blocked in all threads; they end the replica in order, with exit code
// 0. `loading` takes them until the rank is loaded. A failed replica gives kExitRankFailed; its
// ranks may hang in a collective then, so the caller has to end the process without waiting for
// anything.
int lead(World& world, Control& control, const WorkerOptions& options,
         const EndProcess& end_process, std::unique_ptr<EndOnSignal> loading);

}  // namespace cohort
