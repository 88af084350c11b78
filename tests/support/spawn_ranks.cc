// SPDX-License-Identifier: Apache-2.0
#include "tests/support/spawn_ranks.h"

#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <mutex>
#include <stdexcept>
#include <thread>
#include <vector>

namespace cohort::testing {

void spawn_ranks(int n, const std::function<void(World&)>& fn, Duration deadline) {
  const auto worlds = make_local_worlds(n);
  std::mutex mutex;
  std::condition_variable changed;
  int running = n;
  std::exception_ptr first;
  std::vector<std::thread> threads;
  for (int r = 0; r < n; r++)
    threads.emplace_back([&, r] {
      std::exception_ptr error;
      try {
        fn(*worlds[size_t(r)]);
      } catch (...) {
        error = std::current_exception();
      }
      const std::lock_guard lock(mutex);
      if (error && !first) first = error;
      running--;
      changed.notify_all();
    });
  {
    std::unique_lock lock(mutex);
    if (!changed.wait_for(lock, deadline, [&] { return running == 0; })) {
      std::fprintf(stderr, "%d of %d ranks are not done after %g s\n", running, n,
                   seconds(deadline));
      std::abort();
    }
  }
  for (std::thread& t : threads) t.join();
  if (first) std::rethrow_exception(first);
}

void require_ok(const Status& status) {
  if (!status.ok()) throw std::runtime_error(status.to_string());
}

}  // namespace cohort::testing
