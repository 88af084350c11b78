// SPDX-License-Identifier: Apache-2.0
// Ranks as processes forked from the test. Groups are shm groups. An expectation that fails in a
// rank is printed there and fails the test.
#pragma once
#include <sys/types.h>

#include <functional>
#include <memory>
#include <vector>

#include "comm/communicator.h"

namespace cohort {

// To be made while the test has no other threads.
class ForkedRanks {
 public:
  ForkedRanks(int ranks, const std::function<void(World&)>& body);
  ~ForkedRanks();  // kills those that still run
  ForkedRanks(const ForkedRanks&) = delete;
  ForkedRanks& operator=(const ForkedRanks&) = delete;

  void signal(int rank, int number) const;
  // Waits for a rank; true if it ended by itself without a failed expectation.
  bool succeeded(int rank);

 private:
  std::vector<pid_t> pids_;
};

// All ranks succeed.
void run_forked_ranks(int ranks, const std::function<void(World&)>& body);

}  // namespace cohort
