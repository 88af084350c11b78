// SPDX-License-Identifier: Apache-2.0
#include "worker/stage.h"

#include <algorithm>
#include <utility>

namespace cohort {
namespace {

int most_pieces(const TreePlan& plan, int rank) { return int(plan.pieces(rank).size()); }

WorkspaceShape workspace_shape(const StageParts& parts, int pieces) {
  const KvGeometry& kv = parts.pool.geometry();
  const int tp = parts.mesh.coordinates(parts.rank).tp;
  const ModelUnits& units = parts.partition.units;
  return {.rows = parts.limits.max_rows,
          .hidden = parts.config.hidden,
          .q = int64_t(kv.heads) * kv.dim,
          .qkv = int64_t(kv.heads + 2 * kv.kv_heads) * kv.dim,
          .ffn = parts.partition.ffn[size_t(tp)].size() * units.ffn_columns,
          .pieces = std::max(pieces, 1),
          .mode = parts.activations};
}

}  // namespace

Stage::Stage(const StageParts& parts)
    : first_(parts.mesh.coordinates(parts.rank).pp == 0),
      last_(parts.mesh.coordinates(parts.rank).pp + 1 == parts.mesh.pp()),
      samples_(parts.mesh.is_sampler(parts.rank)),
      hidden_(parts.config.hidden),
      geometry_(parts.pool.geometry()),
      eps_(float(parts.config.norm_eps)),
      tp_(parts.tp),
      attention_plan_(parts.partition.units.attention, parts.partition.attention),
      ffn_plan_(parts.partition.units.ffn, parts.partition.ffn),
      rope_(parts.stream.device(), rope_frequencies(parts.config.rope), parts.limits.max_context,
            parts.config.rope.pairing == RopePairing::neighbours),
      work_(parts.stream, tp_,
            workspace_shape(parts, std::max(most_pieces(attention_plan_, tp_.rank()),
                                            most_pieces(ffn_plan_, tp_.rank())))) {
  const int first = parts.partition.layers[size_t(parts.mesh.coordinates(parts.rank).pp)].begin;
  const LayerParts shared{rope_, tp_, attention_plan_, ffn_plan_, eps_};
  const std::vector<LayerWeights>& weights = parts.weights.layers;
  if (!weights.empty()) first_norm_ = weights[0].attention_norm.tensor();
  for (size_t i = 0; i < weights.size(); i++)
    layers_.emplace_back(
        weights[i], first + int64_t(i), parts.pool.layer(int64_t(i)), shared,
        i + 1 < weights.size() ? weights[i + 1].attention_norm.tensor() : Tensor());
}

VocabularyEmbedding Stage::make_embedding(const StageParts& parts) {
  const int tp = parts.mesh.coordinates(parts.rank).tp;
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
    ops::rms_norm(step.stream, step.work.h.rows(step.rows), x, first_norm_, eps_);
  for (DecoderLayer& layer : layers_) co_await layer.forward(step, x);
}

}  // namespace cohort
