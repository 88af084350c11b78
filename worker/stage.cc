// SPDX-License-Identifier: Apache-2.0
#include "worker/stage.h"

#include <algorithm>
#include <utility>

#include "worker/layers/attention.h"
#include "worker/layers/feed_forward.h"
#include "worker/layers/latent_attention.h"

namespace cohort {
namespace {

int pieces(const TreePlan& plan, int rank) { return int(plan.pieces(rank).size()); }

Coordinates place_of(const StageParts& parts) { return parts.mesh.coordinates(parts.rank); }

ExpertShape expert_shape(const StageParts& parts, const TreePlan& plan) {
  const ExpertsConfig& c = parts.config.experts;
  if (c.count == 0) return {};
  const Coordinates at = place_of(parts);
  const int owned = parts.partition.experts[size_t(at.tp * parts.mesh.dp() + at.dp)].size();
  return {.rows = parts.limits.max_rows,
          .hidden = parts.config.hidden,
          .experts = int(c.count),
          .per_token = int(c.per_token),
          .ffn = c.ffn,
          .pieces = std::max(1, pieces(plan, at.tp)),
          .most_held = parts.mesh.dp() > 1 ? owned + kMostExpertCopies : owned,
          .mode = parts.activations};
}

WorkspaceShape workspace_shape(const StageParts& parts, int most_pieces, ExpertShape experts) {
  const KvGeometry& kv = parts.pool.geometry();
  const int tp = place_of(parts).tp;
  const ModelUnits& units = parts.partition.units;
  return {.rows = parts.limits.max_rows,
          .hidden = parts.config.hidden,
          .q = int64_t(kv.heads) * kv.dim,
          .qkv = int64_t(kv.heads + 2 * kv.kv_heads) * kv.dim,
          .ffn = std::max(parts.partition.ffn[size_t(tp)].size() * units.ffn_columns,
                          parts.partition.shared_ffn[size_t(tp)].size() * units.shared_ffn_columns),
          .pieces = std::max(most_pieces, 1),
          .mode = parts.activations,
          .experts = experts,
          .latent = {parts.limits.max_rows, kv.heads, parts.config.latent, parts.activations},
          .squares = parts.config.query_key_norm == QueryKeyNorm::rows};
}

bool room_for(const ExpertPlacement& placement, const ExpertCopy& copy) {
  if (copy.dp >= placement.ranks()) return false;
  const std::vector<int>& held = placement.held(copy.dp);
  if (placement.local(copy.dp)[size_t(copy.expert)] >= 0) return true;  // it is there
  return std::ranges::count_if(held, [&](int e) { return placement.owner(e) != copy.dp; }) <
         kMostExpertCopies;
}

// By dp rank: the experts of the ranks with this tp index.
std::vector<UnitRange> column_of(const StageParts& parts) {
  const auto first = parts.partition.experts.begin() + place_of(parts).tp * parts.mesh.dp();
  return {first, first + parts.mesh.dp()};
}

}  // namespace

Stage::Stage(const StageParts& parts)
    : first_(place_of(parts).pp == 0),
      last_(place_of(parts).pp + 1 == parts.mesh.pp()),
      samples_(parts.mesh.is_sampler(parts.rank)),
      hidden_(parts.config.hidden),
      geometry_(parts.pool.geometry()),
      eps_(float(parts.config.norm_eps)),
      first_layer_(parts.partition.layers[size_t(place_of(parts).pp)].begin),
      dp_rank_(place_of(parts).dp),
      tp_(parts.tp, GroupKind::tp, parts.verbs, parts.mark),
      attention_plan_(parts.partition.units.attention, parts.partition.attention),
      ffn_plan_(parts.partition.units.ffn, parts.partition.ffn),
      shared_plan_(parts.partition.units.shared_ffn, parts.partition.shared_ffn),
      expert_plan_(parts.partition.units.experts, parts.partition.expert_columns),
      rope_(parts.stream.device(), rope_frequencies(parts.config.rope), parts.limits.max_context,
            parts.config.rope.pairing == RopePairing::neighbours,
            parts.config.rope.yarn ? parts.config.rope.yarn->attention_factor : 1),
      load_expert_(parts.load_expert) {
  const int tp = tp_.rank();
  const int most =
      std::max({pieces(attention_plan_, tp), pieces(ffn_plan_, tp), pieces(shared_plan_, tp)});
  for (int lane = 0; lane < parts.lanes; lane++)
    work_.push_back(std::make_unique<Workspace>(
        parts.stream, tp_, Group(parts.dp, GroupKind::dp, parts.verbs, parts.mark),
        workspace_shape(parts, most, expert_shape(parts, expert_plan_))));
  const std::vector<LayerWeights>& weights = parts.weights.layers;
  if (!weights.empty()) first_norm_ = weights[0].attention_norm.tensor();
  for (size_t i = 0; i < weights.size(); i++)
    layers_.emplace_back(
        weights[i], first_layer_ + int64_t(i), eps_, make_attention(parts, i),
        make_feed_forward(parts, i),
        i + 1 < weights.size() ? weights[i + 1].attention_norm.tensor() : Tensor());
}

std::unique_ptr<Block> Stage::make_attention(const StageParts& parts, size_t index) {
  const LayerWeights& weights = parts.weights.layers[index];
  if (weights.latent != nullptr)
    return std::make_unique<LatentAttention>(weights, first_layer_ + int64_t(index),
                                             parts.pool.layer(int64_t(index)), rope_, parts.config,
                                             tp_, attention_plan_);
  return std::make_unique<Attention>(weights, first_layer_ + int64_t(index),
                                     parts.pool.layer(int64_t(index)), rope_, parts.config, tp_,
                                     attention_plan_);
}

std::unique_ptr<Block> Stage::make_feed_forward(const StageParts& parts, size_t index) {
  LayerWeights& weights = parts.weights.layers[index];
  const int64_t layer = first_layer_ + int64_t(index);
  experts_.push_back(nullptr);
  if (weights.experts == nullptr)
    return std::make_unique<FeedForward>(weights.ffn, layer, tp_, ffn_plan_);
  auto experts = std::make_unique<ExpertLayer>(
      *weights.experts, layer, ExpertPlacement(parts.partition.units.experts, column_of(parts)),
      ExpertParts{parts.config.experts, tp_, expert_plan_, shared_plan_, dp_rank_});
  experts_.back() = experts.get();
  return experts;
}

VocabularyEmbedding Stage::make_embedding(const StageParts& parts) {
  const int tp = place_of(parts).tp;
  const Slice rows = slice_of(parts.partition.vocab[size_t(tp)], parts.partition.units.vocab_rows,
                              parts.config.vocab);
  return VocabularyEmbedding(*parts.weights.embedding, rows, tp_);
}

Head Stage::make_head(const StageParts& parts, int64_t max_rows) {
  std::vector<Slice> rows;
  for (const UnitRange& units : parts.partition.vocab)
    rows.push_back(slice_of(units, parts.partition.units.vocab_rows, parts.config.vocab));
  return Head(parts.stream.device(), parts.weights.final_norm.tensor(), eps_, *parts.weights.head,
              std::move(rows), max_rows, tp_);
}

Task Stage::forward(Step& step, Tensor x) {
  if (!layers_.empty())
    ops::rms_norm_prepare(step.stream, step.work.linear.activations, step.work.h.rows(step.rows), x,
                          first_norm_, eps_);
  for (DecoderLayer& layer : layers_) co_await layer.forward(step, x);
}

Status Stage::change_experts(const std::vector<ExpertCopy>& copies) {
  for (const ExpertCopy& copy : copies) {
    const int64_t index = copy.layer - first_layer_;
    if (index < 0 || index >= int64_t(experts_.size())) continue;
    ExpertLayer* layer = experts_[size_t(index)];
    if (layer == nullptr || copy.expert < 0 || copy.expert >= layer->placement().experts())
      return internal_error(concat("layer ", copy.layer, " has no expert ", copy.expert));
    if (layer->placement().owner(copy.expert) < 0) continue;  // another column's
    if (copy.add && !room_for(layer->placement(), copy))
      return internal_error(concat("layer ", copy.layer, " has no dp rank ", copy.dp,
                                   " with room for a copy of expert ", copy.expert));
    ExpertMatrices matrices;
    if (copy.add && copy.dp == dp_rank_) {
      COHORT_ASSIGN_OR_RETURN(matrices, load_expert_(copy.layer, copy.expert));
    }
    layer->change(copy, &matrices);
  }
  return {};
}

std::vector<std::vector<int64_t>> Stage::take_expert_load() {
  std::vector<std::vector<int64_t>> load;
  for (ExpertLayer* layer : experts_)
    load.push_back(layer == nullptr ? std::vector<int64_t>() : layer->take_load());
  return load;
}

}  // namespace cohort
