// SPDX-License-Identifier: Apache-2.0
// One rank of a replica: a device's threads, a shard of the weights, its part of the KV cache, its
// groups and the runner of steps. There are no globals, so several ranks can live in one process.
//
// Threads: load and execute by one thread (the step thread); abort, progress and where by any.
#pragma once
#include <atomic>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "comm/communicator.h"
#include "comm/control.h"
#include "model/checkpoint.h"
#include "worker/expert_load.h"
#include "worker/pinning.h"
#include "worker/replica_options.h"
#include "worker/step_runner.h"
#include "worker/weights.h"

namespace cohort {

class Rank {
 public:
  // Opens the checkpoint, agrees with the other ranks of the world on what is loaded and on the
  // size of the KV cache, reads this rank's shard and builds its groups. Fails before any weight is
  // read where the layout or the memory does not fit; if one rank fails, all do, with its message.
  static Result<std::unique_ptr<Rank>> load(World& world, const ReplicaOptions& options,
                                            const LoadProgress& progress);
  // The same with an opened checkpoint, used during the call only.
  static Result<std::unique_ptr<Rank>> load(World& world, Checkpoint& checkpoint,
                                            const ReplicaOptions& options,
                                            const LoadProgress& progress);
  ~Rank();

  const ModelConfig& config() const { return config_; }
  const StepLimits& limits() const { return limits_; }  // blocks and in_flight filled in
  const Mesh& mesh() const { return mesh_; }
  const Partition& partition() const { return partition_; }
  int rank() const { return rank_; }
  const std::string& host() const { return host_; }
  const std::string& fingerprint() const { return fingerprint_; }  // of the checkpoint
  // "int8 activations, KV f16": what decides results beside the checkpoint.
  const std::string& arithmetic() const { return arithmetic_; }
  int64_t weight_bytes() const { return weights_->packed_bytes(); }
  Duration step_timeout() const { return step_timeout_; }

  // How often its steps have set other threads to work (ThreadPool::regions). By the step thread.
  int64_t regions() const { return stream_->threads().regions(); }

  // How long a collective may wait from now on: as long as a whole step may take, because a peer
  // may have a step's work to do before it comes. By the step thread, between steps.
  void set_patience(Duration patience);
  Duration patience() const { return patience_; }

  // A step in two halves, so that a GPU can be given the next one while it computes: at most
  // depth() plans are launched and not yet collected; collect is of the oldest, and gives the
  // result on the rank that samples, nothing on the others. After an error only abort is of use.
  int depth() const { return runner_->depth(); }
  Status launch(const StepPlan& plan);
  bool finished() const { return runner_->finished(); }  // collect would not wait
  Result<std::optional<StepResult>> collect();
  // Both halves at once.
  Result<std::optional<StepResult>> execute(const StepPlan& plan);

  // Before the first step, by the thread that runs steps from then on.
  void pin_step_thread() const { pinning_.pin_step_thread(); }

  // Between steps, by the step thread: what this rank's tokens chose since the last call; nothing
  // where that is nothing or another rank of the dp group tells it.
  std::optional<ExpertLoad> take_expert_load();

  // Ends every collective that waits now or later on this rank.
  void abort(const Status& why);
  Progress progress() const;
  // Where the time of its steps went. Any thread.
  const StepTimesBoard& times() const { return runner_->times(); }

 private:
  friend class RankLoader;
  Rank() : mesh_(1, 1) {}

  ModelConfig config_;
  std::string fingerprint_, arithmetic_, host_;
  Mesh mesh_;
  int rank_ = 0;
  StepLimits limits_;
  Duration step_timeout_{};
  Partition partition_;
  Pinning pinning_;
  std::unique_ptr<Stream> stream_;
  std::vector<Communicator*> communicators() const;
  WorkTotals work() const;

  std::unique_ptr<Communicator> tp_, dp_, pp_, world_;  // between hosts' memories
  // Between GPUs' memories; empty on the CPU.
  std::unique_ptr<Communicator> device_tp_, device_pp_, device_tokens_;
  std::unique_ptr<Weights> weights_;
  std::unique_ptr<KvPool> pool_;
  std::unique_ptr<StepRunner> runner_;  // borrows all of the above
  Duration patience_{};
  std::deque<uint64_t> launched_;  // steps that are not collected
  std::atomic<uint64_t> finished_{0};
  std::atomic<bool> busy_{false};
};

}  // namespace cohort
