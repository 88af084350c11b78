// SPDX-License-Identifier: Apache-2.0
// What a rank computes of the model: the consecutive layers of its pipeline stage, its share of
// each, and at the ends the table of the vocabulary. The same on every device. Used by the step
// thread alone.
#pragma once
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
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
#include "worker/layers/experts.h"
#include "worker/layers/head.h"
#include "worker/replica_options.h"
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
  bool graphs;       // a GPU's decode steps are captured once and replayed
  Weights& weights;  // copies of experts come and go
  const KvPool& pool;
  Stream& stream;
  // Of the stream's device: what layers talk to.
  Communicator& tp;      // the ranks of this stage and dp group
  Communicator& dp;      // the ranks of this stage and tp index, by dp group
  Communicator& pp;      // the ranks of this tp index and dp group, by stage
  Communicator& tokens;  // where sampled tokens travel: on the CPU everybody, on a GPU as pp
  // Reads an expert that this rank is to have a copy of; layer and expert of the model.
  std::function<Result<ExpertMatrices>(int64_t layer, int64_t expert)> load_expert;
  bool compress_activations = false;  // between stages, on the CPU
  int lanes = 1;               // micro-batches that are under way at once, each with a workspace
  VerbLine* verbs = nullptr;   // how the groups' verbs run; null: at once
  const Mark* mark = nullptr;  // where the step thread is; lives as long as the runner
  TraceOptions trace = {};
};

class Stage {
 public:
  explicit Stage(const StageParts& parts);

  bool first() const { return first_; }
  bool last() const { return last_; }
  bool samples() const { return samples_; }  // this rank draws, and tells the result
  int64_t hidden() const { return hidden_; }
  const KvGeometry& geometry() const { return geometry_; }
  Workspace& work(int lane = 0) { return *work_[size_t(lane)]; }
  Group& tp() { return tp_; }
  // First stage: x f32 [tokens, hidden] of ids i32 [tokens].
  VocabularyEmbedding make_embedding(const StageParts& parts);
  // Last stage; max_rows: of logits at once.
  Head make_head(const StageParts& parts, int64_t max_rows);

  // x f32 [tokens, hidden] through all layers of the stage.
  Task forward(Step& step, Tensor x);

  // Before a step: what the plan says of copies of experts. All ranks of the stage alike.
  Status change_experts(const std::vector<ExpertCopy>& copies);
  // How often each expert of each layer was chosen by this rank's tokens since the last call; empty
  // for layers without experts.
  std::vector<std::vector<int64_t>> take_expert_load();

 private:
  std::unique_ptr<Block> make_attention(const StageParts& parts, size_t index);
  std::unique_ptr<Block> make_feed_forward(const StageParts& parts, size_t index);

  const bool first_, last_, samples_;
  const int64_t hidden_;
  const KvGeometry geometry_;
  const float eps_;
  const int first_layer_, dp_rank_;
  Group tp_;
  const TreePlan attention_plan_, ffn_plan_, shared_plan_, expert_plan_;
  const RopeTable rope_;
  std::vector<std::unique_ptr<Workspace>> work_;  // by lane
  const std::function<Result<ExpertMatrices>(int64_t, int64_t)> load_expert_;
  Tensor first_norm_;
  std::deque<DecoderLayer> layers_;
  std::vector<ExpertLayer*> experts_;  // by layer of the stage; null: a dense one
};

}  // namespace cohort
