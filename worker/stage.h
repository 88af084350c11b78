// SPDX-License-Identifier: Apache-2.0
// What a rank computes of the model: the consecutive layers of its pipeline stage, its share of
// each, and at the ends the table of the vocabulary. The same on every device. Used by the step
// thread alone.
#pragma once
#include <cstdint>
#include <vector>

#include "base/task.h"
#include "base/unit_tree.h"
#include "kernels/rope_table.h"
#include "parallel/group.h"
#include "parallel/mesh.h"
#include "parallel/units.h"
#include "parallel/vocabulary.h"
#include "worker/kv_pool.h"
#include "worker/layers/decoder_layer.h"
#include "worker/layers/head.h"
#include "worker/step.h"
#include "worker/step_plan.h"
#include "worker/weights.h"
#include "worker/workspace.h"

namespace cohort {

// What a rank's step runner is made of; borrowed, and constant after construction.
struct StageParts {
  const ModelConfig& config;
  const Partition& partition;
  const Mesh& mesh;
  int rank;
  const StepLimits& limits;
  ActivationMode activations;
  bool graphs;  // a GPU's decode steps are captured once and replayed
  const Weights& weights;
  const KvPool& pool;
  Stream& stream;
  // Of the stream's device: what layers talk to.
  Communicator& tp;      // the ranks of this stage
  Communicator& pp;      // the ranks of this tp index, by stage
  Communicator& tokens;  // where sampled tokens travel: on the CPU everybody, on a GPU as pp
};

class Stage {
 public:
  explicit Stage(const StageParts& parts);

  bool first() const { return first_; }
  bool last() const { return last_; }
  bool samples() const { return samples_; }  // this rank draws, and tells the result
  int64_t hidden() const { return hidden_; }
  const KvGeometry& geometry() const { return geometry_; }
  Workspace& work() { return work_; }
  Group& tp() { return tp_; }
  // First stage: x f32 [tokens, hidden] of ids i32 [tokens].
  VocabularyEmbedding make_embedding(const StageParts& parts);
  // Last stage; max_rows: of logits at once.
  Head make_head(const StageParts& parts, int64_t max_rows);

  // x f32 [tokens, hidden] through all layers of the stage.
  Task forward(Step& step, Tensor x);

 private:
  const bool first_, last_, samples_;
  const int64_t hidden_;
  const KvGeometry geometry_;
  const float eps_;
  Group tp_;
  const TreePlan attention_plan_, ffn_plan_;
  const RopeTable rope_;
  Workspace work_;
  Tensor first_norm_;
  std::vector<DecoderLayer> layers_;
};

}  // namespace cohort
