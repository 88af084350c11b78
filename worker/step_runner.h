// SPDX-License-Identifier: Apache-2.0
// Executes step plans on one rank: this is where a forward pass happens (docs/step.md). Used by the
// rank's step thread alone; where() may be read by any thread.
#pragma once
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "base/buffer.h"
#include "base/status.h"
#include "base/task.h"
#include "kernels/rope_table.h"
#include "parallel/group.h"
#include "parallel/mesh.h"
#include "parallel/units.h"
#include "worker/kv_pool.h"
#include "worker/layers/decoder_layer.h"
#include "worker/slot_table.h"
#include "worker/stage_ends.h"
#include "worker/token_route.h"
#include "worker/weights.h"

namespace cohort {

// What a rank's step runner is made of; borrowed, and constant after construction.
struct StageParts {
  const ModelConfig& config;
  const Partition& partition;
  const Mesh& mesh;
  int rank;
  const StepLimits& limits;
  ActivationMode activations;
  const Weights& weights;
  const KvPool& pool;
  Stream& stream;
  Communicator& tp;     // the ranks of this stage
  Communicator& pp;     // the ranks of this tp index, by stage
  Communicator& world;  // everybody
};

class StepRunner {
 public:
  explicit StepRunner(const StageParts& parts);

  // The result, on the rank that samples; nothing on the others. After an error the rank cannot go
  // on: its peers may be anywhere in the step.
  Result<std::optional<StepResult>> execute(const StepPlan& plan);

  Where& where() { return where_; }

 private:
  std::unique_ptr<StageInput> make_input(const StageParts& parts);
  std::unique_ptr<StageOutput> make_output(const StageParts& parts);
  void make_layers(const StageParts& parts);
  AttentionBatch batch_of(const StepPlan& plan) const;
  Task forward(Step& step, std::vector<SlotResult>& slots);

  Stream& stream_;
  const KvGeometry geometry_;
  const int64_t hidden_;
  const bool samples_;
  Where where_;
  Group tp_, pp_, world_;
  const TreePlan attention_plan_, ffn_plan_;
  const RopeTable rope_;
  SlotTable slots_;
  TokenRoute route_;
  Workspace work_;
  Buffer x_;  // the residual stream: f32 [tokens, hidden], then i32 [tokens] error codes
  std::unique_ptr<StageInput> input_;
  std::vector<DecoderLayer> layers_;
  std::unique_ptr<StageOutput> output_;
};

}  // namespace cohort
