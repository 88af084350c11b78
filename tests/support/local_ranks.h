// SPDX-License-Identifier: Apache-2.0
// Ranks as threads of the test: runs `body` on every rank of a world and waits for all. An
// exception of a rank is thrown again here (the first by rank).
#pragma once
#include <exception>
#include <functional>
#include <memory>
#include <thread>
#include <vector>

#include "comm/communicator.h"

namespace cohort {

inline void run_local_ranks(int ranks, const std::function<void(World&)>& body) {
  std::vector<std::unique_ptr<World>> worlds = make_local_worlds(ranks);
  std::vector<std::exception_ptr> errors(worlds.size());
  std::vector<std::thread> threads;
  for (size_t r = 0; r < worlds.size(); r++)
    threads.emplace_back([&, r] {
      try {
        body(*worlds[r]);
      } catch (...) {
        errors[r] = std::current_exception();
      }
    });
  for (std::thread& thread : threads) thread.join();
  for (const std::exception_ptr& error : errors)
    if (error) std::rethrow_exception(error);
}

}  // namespace cohort
