// SPDX-License-Identifier: Apache-2.0
// Ranks as threads of the test: runs `body` on every rank of a world and waits for all. An
// exception of a rank is thrown again here (the first by rank).
#pragma once
#include <exception>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "comm/communicator.h"

namespace cohort {

inline void run_worlds(const std::vector<std::unique_ptr<World>>& worlds,
                       const std::function<void(World&)>& body) {
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

inline void run_local_ranks(int ranks, const std::function<void(World&)>& body) {
  run_worlds(make_local_worlds(ranks), body);
}

// Ranks that act as if they stood on several hosts: {2, 1} are three ranks, the first two of them
// on host0 and the last on host1.
inline void run_local_hosts(const std::vector<int>& ranks_of_hosts,
                            const std::function<void(World&)>& body) {
  std::vector<std::string> hosts;
  for (size_t h = 0; h < ranks_of_hosts.size(); h++)
    hosts.insert(hosts.end(), size_t(ranks_of_hosts[h]), "host" + std::to_string(h));
  run_worlds(make_local_hosts(hosts), body);
}

}  // namespace cohort
