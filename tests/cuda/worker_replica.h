// SPDX-License-Identifier: Apache-2.0
// All ranks of a replica on emulated GPUs, driven by one thread: what is enqueued when, and so what
// a schedule of the emulation does, is the same every time.
#pragma once
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "tests/cuda/worker_fixture.h"
#include "worker/rank.h"

namespace cohort::testing {

// One layer for each stage, and little of all else: what runs hundreds of times.
inline TinyModel least_model(int pp) {
  TinyModel model = tiny_model(DType::f32);
  model.config.layers = pp;
  model.config.heads = 3;
  model.config.ffn = 96;
  return model;
}
inline ReplicaOptions small_options(int tp, int pp, bool graphs) {
  ReplicaOptions options = gpu_options(DType::f32, tp, pp);
  options.limits = {.max_slots = 3, .max_rows = 8, .max_context = 32, .blocks = 0, .in_flight = 0};
  options.gpu.graphs = graphs;
  return options;
}

class GpuReplica {
 public:
  explicit GpuReplica(const ReplicaOptions& options);
  // Ranks end together, whatever became of them.
  ~GpuReplica();

  int ranks() const { return int(ranks_.size()); }
  Rank& rank(int r) { return *ranks_[size_t(r)]; }

  using Hook = std::function<void(size_t step, int rank)>;
  struct Hooks {
    Hook before_launch, after_launch, before_collect, after_collect;  // step: index of the plan
    int first = 0;  // rank that is always ahead of the others; then come the next ones, cyclically
  };
  // The requests in turn, one in each step, so that steps need no token of the few before them, as
  // in a full pipeline; each first with its prompt, then with its latest token. What the sampler
  // said of each step. May follow an earlier run that went well. Failures are thrown as
  // std::runtime_error.
  std::vector<SlotResult> run(const std::vector<TestRequest>& requests, size_t steps,
                              const Hooks& hooks);

 private:
  std::vector<StepPlan> make_plans(const std::vector<TestRequest>& requests, size_t steps);

  std::vector<std::unique_ptr<Rank>> ranks_;
  uint64_t step_ = 0, checksum_ = 0;
  std::vector<int32_t> used_;  // slots that the earlier run left
};

}  // namespace cohort::testing
