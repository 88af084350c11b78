// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <thread>
#include <utility>

#include "base/clock.h"
#include "worker/rank_loop.h"

namespace cohort {

// After a SIGTERM of its own mpirun waits for one second before it kills (and ends with 1, whatever
// its ranks ended with).
inline constexpr Duration kEndLimit = std::chrono::milliseconds(900);

// An end in order has begun: should it take longer than kEndLimit, it is cut short.
inline void bound_the_end(EndProcess end_process) {
  std::thread([end = std::move(end_process)] {
    std::this_thread::sleep_for(kEndLimit);
    end(kExitDone);
  }).detach();
}

}  // namespace cohort
