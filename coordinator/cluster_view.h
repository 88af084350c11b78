// SPDX-License-Identifier: Apache-2.0
// What people and probes see of the replicas: an immutable picture that the core publishes and any
// thread may read.
#pragma once
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

namespace cohort {

enum class ReplicaState { connecting, sync, ready, suspect, draining, dead };
const char* name(ReplicaState state);

struct RankView {
  int rank = 0;
  std::string host;
  int pid = 0;
  int tp = 0, pp = 0;
  std::string device;
  int64_t last_progress_ms = 0;
  std::string where;
  // Since the rank started; all in seconds but the last.
  double compute = 0, communication = 0, hidden_communication = 0, idle = 0;
  uint64_t bytes_sent = 0;
};

// Of a mixture of experts.
struct ExpertView {
  struct Layer {
    int layer = 0;
    std::vector<uint64_t> tokens;  // by expert, since the replica started
  };
  std::vector<Layer> layers;
  double imbalance = 0;  // the largest load of a rank over the mean; 0: none
  int copies = 0;
};

struct ReplicaView {
  std::string name;
  ReplicaState state = ReplicaState::connecting;
  std::string problem;  // why it is not ready; "" if it is
  int tp = 1, pp = 1;
  std::vector<int> shares;
  int max_context = 0, max_batch = 0;
  int restarts = 0;
  int running = 0, queued = 0;
  int assigned = 0;  // sequences of ours that it has
  int64_t blocks_total = 0, blocks_free = 0, blocks_cached = 0;
  uint64_t preemptions = 0, steps = 0;
  std::vector<RankView> ranks;
  std::shared_ptr<const ExpertView> experts;  // null: it has told of none
};

struct ClusterView {
  std::vector<ReplicaView> replicas;
  int waiting = 0;  // sequences without a replica
  int running = 0;  // sequences on replicas
  int ready() const {
    int n = 0;
    for (const ReplicaView& r : replicas) n += r.state == ReplicaState::ready;
    return n;
  }
};

class ClusterBoard {
 public:
  void publish(std::shared_ptr<const ClusterView> view) {
    const std::lock_guard lock(mutex_);
    view_ = std::move(view);
  }
  std::shared_ptr<const ClusterView> read() const {
    const std::lock_guard lock(mutex_);
    return view_;
  }

 private:
  mutable std::mutex mutex_;
  std::shared_ptr<const ClusterView> view_ = std::make_shared<ClusterView>();
};

}  // namespace cohort
