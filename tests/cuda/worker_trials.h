// SPDX-License-Identifier: Apache-2.0
// Runs of one replica with a mistake each, and what was found of it.
#pragma once
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "tests/cuda/worker_replica.h"

namespace cohort::testing {

class Trials {
 public:
  static constexpr size_t kSteps = 10;
  // Not captured before, so captured in this step where graphs are on.
  static constexpr size_t kFirstDecode = 3;
  // A decode step in the middle: others are in flight before it, and some come after it.
  static constexpr size_t kSteady = 6;
  // As a stream to hold back: the one that was not waited for.
  static constexpr int kSource = -2;

  Trials(int tp, int pp, bool graphs);
  ~Trials() { stop(); }

  int ranks() const { return int(options_.layout.ranks()); }
  int sampler() const { return replica_->rank(0).mesh().sampler(0); }

  // How often each rank calls it when it launches this step.
  std::vector<int> calls(const std::string& api, size_t step);

  // Where something is planted: on one rank, when it launches a step (by index), or collects it.
  struct Spot {
    int rank;
    size_t step;
    bool collect = false;
    bool fresh = false;  // on a replica that has captured only what it captures at its start
  };
  // Tries orders until one shows what was planted: first with each of these streams of the rank
  // held back from then on, then by chance. What was found; "" is nothing.
  std::string find(const Spot& spot, const std::vector<int>& held,
                   const std::function<void()>& plant);
  // The latest one, in words.
  const std::string& mistake() const { return mistake_; }

  void restart();

 private:
  void start();
  void stop();
  std::string trial(const Spot& spot, int first, int stream, int order,
                    const std::function<void()>& plant);
  std::string run(const GpuReplica::Hooks& hooks);

  const ReplicaOptions options_;
  std::unique_ptr<GpuReplica> replica_;
  // Several, so that what a step finds of the run before is not what it should, and a wrong token
  // is not always of the same slice of the vocabulary.
  std::vector<std::vector<TestRequest>> requests_;
  std::vector<std::vector<SlotResult>> expected_;
  size_t turn_ = 0;
  std::string mistake_;
};

}  // namespace cohort::testing
