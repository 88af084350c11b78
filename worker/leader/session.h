// SPDX-License-Identifier: Apache-2.0
// The leader's connection to the coordinator (docs/wire.md): it connects out, says who it is, takes
// sequences for the batch loop and sends their tokens. When the connection breaks generation goes
// on; after the reconnect what was not acknowledged is sent again. A coordinator that stays away
// for longer than `orphan_limit` loses its sequences.
//
// Threads: one reads commands, one writes events and load. publish() is called by the batch loop.
#pragma once
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/status.h"
#include "comm/control.h"
#include "worker/leader/batch_loop.h"
#include "worker/leader/expert_board.h"

namespace cohort {

struct RankState {
  int rank = 0;
  std::string host;
  int pid = 0;
  int tp = 0, pp = 0, dp = 0;
  std::string device;  // "cpu avx2, 1 thread"
  std::chrono::milliseconds last_progress{0};
  std::string where;
  WorkTotals work = {};
};

struct ReplicaDescription {
  std::string name;
  uint64_t epoch = 0;
  std::string model_fingerprint, model_path;
  int tp = 1, pp = 1;
  std::vector<int> shares;
  StepLimits limits;
};

struct SessionOptions {
  std::string coordinator;  // host:port
  // Asked by the writing thread at each expert_interval; empty: not told.
  std::function<ExpertReport()> experts = [] { return ExpertReport(); };
  Duration expert_interval = std::chrono::seconds(3);
  Duration load_interval = std::chrono::milliseconds(100);
  Duration least_load_interval = std::chrono::milliseconds(10);  // when something changed
  Duration welcome_timeout = std::chrono::seconds(10);
  Duration first_retry = std::chrono::milliseconds(100), longest_retry = std::chrono::seconds(2);
  Duration orphan_limit = std::chrono::seconds(30);
  int64_t unacknowledged_tokens = 1 << 20;
};

class Session : public EventSink {
 public:
  // ranks: their present state, called by the writing thread.
  static std::unique_ptr<Session> create(ReplicaDescription description, SessionOptions options,
                                         std::function<std::vector<RankState>()> ranks);

  // Connects for as long as stop() is not called. The loop must outlive the session's stop().
  virtual void start(BatchLoop& loop) = 0;
  // Tells the coordinator that no new work is taken, then ends the stream. Waits for the threads.
  virtual void stop() = 0;
  virtual bool connected() const = 0;  // and welcome
  // Why the coordinator will not have this replica; OK if it did not say so.
  virtual Status rejected() const = 0;
};

}  // namespace cohort
