// SPDX-License-Identifier: Apache-2.0
// What a rank other than the leader does all day: take plans from the control link, execute them,
// answer. Between plans it sleeps in the kernel, for as long as the leader lives.
#pragma once
#include <functional>

#include "comm/control.h"
#include "worker/rank.h"

namespace cohort {

// How a worker process ends. The supervisor restarts the replica after any but the first.
inline constexpr int kExitDone = 0;         // the leader said shutdown
inline constexpr int kExitRankFailed = 70;  // a collective failed, a step stalled, a peer is lost
inline constexpr int kExitLeaderGone = 71;

// Ends the process at once; tests put something else in its place.
using EndProcess = std::function<void(int exit_code)>;

// Until shutdown or a failure; the exit code that the process should end with. Uses the calling
// thread as step thread and two more: one reads the link, one is the watchdog. Where the step
// thread cannot be brought back after a stall, end_process is called.
int run_rank_loop(Rank& rank, ControlLink& link, const EndProcess& end_process);

}  // namespace cohort
