// SPDX-License-Identifier: Apache-2.0
// Ranks as threads.
#pragma once
#include <chrono>
#include <functional>

#include "base/clock.h"
#include "comm/communicator.h"

namespace cohort::testing {

// Calls fn(world of rank r) on n threads at once and waits for all. Rethrows the first exception.
// Where they are not done within the deadline the process ends with a message: threads that hang
// cannot be stopped.
void spawn_ranks(int n, const std::function<void(World&)>& fn,
                 Duration deadline = std::chrono::seconds(100));

// Throws std::runtime_error with the message of a failure.
void require_ok(const Status& status);
template <class T>
T require_ok(Result<T> result) {
  require_ok(result.status());
  return std::move(result).value();
}

}  // namespace cohort::testing
