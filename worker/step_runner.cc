// SPDX-License-Identifier: Apache-2.0
#include "worker/step_runner.h"

#include <algorithm>
#include <utility>

namespace cohort {
namespace {

WorkspaceShape workspace_shape(const StageParts& parts, int attention_pieces, int ffn_pieces) {
  const KvGeometry& kv = parts.pool.geometry();
  const int tp = parts.mesh.coordinates(parts.rank).tp;
  const ModelUnits& units = parts.partition.units;
  return {.rows = parts.limits.max_rows,
          .hidden = parts.config.hidden,
          .q = int64_t(kv.heads) * kv.dim,
          .qkv = int64_t(kv.heads + 2 * kv.kv_heads) * kv.dim,
          .ffn = parts.partition.ffn[size_t(tp)].size() * units.ffn_columns,
          .pieces = std::max({attention_pieces, ffn_pieces, 1}),
          .mode = parts.activations};
}

}  // namespace

StepRunner::StepRunner(const StageParts& parts)
    : stream_(parts.stream),
      geometry_(parts.pool.geometry()),
      hidden_(parts.config.hidden),
      samples_(parts.rank == parts.mesh.sampler()),
      tp_(parts.tp),
      pp_(parts.pp),
      world_(parts.world),
      attention_plan_(parts.partition.units.attention, parts.partition.attention),
      ffn_plan_(parts.partition.units.ffn, parts.partition.ffn),
      rope_(rope_frequencies(parts.config.rope), parts.limits.max_context,
            parts.config.rope.pairing == RopePairing::neighbours),
      slots_(parts.limits, parts.config.vocab),
      route_(parts.mesh, parts.rank, world_, slots_),
      work_(workspace_shape(parts, int(attention_plan_.pieces(tp_.rank()).size()),
                            int(ffn_plan_.pieces(tp_.rank()).size()))),
      x_(size_t(parts.limits.max_rows) * (size_t(hidden_) * sizeof(float) + sizeof(int32_t))),
      input_(make_input(parts)),
      output_(make_output(parts)) {
  make_layers(parts);
}

std::unique_ptr<StageInput> StepRunner::make_input(const StageParts& parts) {
  const Coordinates at = parts.mesh.coordinates(parts.rank);
  if (at.pp > 0) return std::make_unique<ReceiveInput>(pp_);
  const Slice rows = slice_of(parts.partition.vocab[size_t(at.tp)],
                              parts.partition.units.vocab_rows, parts.config.vocab);
  return std::make_unique<EmbeddingInput>(VocabularyEmbedding(*parts.weights.embedding, rows, tp_),
                                          parts.limits.max_rows, slots_, route_);
}

std::unique_ptr<StageOutput> StepRunner::make_output(const StageParts& parts) {
  if (parts.mesh.coordinates(parts.rank).pp + 1 < parts.mesh.pp())
    return std::make_unique<SendOutput>(pp_);
  std::vector<Slice> rows;
  for (const UnitRange& units : parts.partition.vocab)
    rows.push_back(slice_of(units, parts.partition.units.vocab_rows, parts.config.vocab));
  Head head(parts.weights.final_norm.tensor(), float(parts.config.norm_eps), *parts.weights.head,
            std::move(rows), std::min<int64_t>(SampleOutput::kRows, parts.limits.max_rows), tp_);
  return std::make_unique<SampleOutput>(std::move(head), samples_, slots_, route_);
}

void StepRunner::make_layers(const StageParts& parts) {
  const int first = parts.partition.layers[size_t(parts.mesh.coordinates(parts.rank).pp)].begin;
  const LayerParts shared{rope_, tp_, attention_plan_, ffn_plan_, float(parts.config.norm_eps)};
  for (size_t i = 0; i < parts.weights.layers.size(); i++)
    layers_.emplace_back(parts.weights.layers[i], first + int64_t(i), parts.pool.layer(int64_t(i)),
                         shared);
}

AttentionBatch StepRunner::batch_of(const StepPlan& plan) const {
  std::vector<AttentionEntry> entries;
  entries.reserve(plan.entries.size());
  int64_t row = 0;
  for (const StepEntry& entry : plan.entries) {
    entries.push_back({slots_.at(entry.slot).blocks.data(), row, entry.start, entry.length});
    row += entry.length;
  }
  return AttentionBatch(geometry_, std::move(entries), stream_.threads().size());
}

Result<std::optional<StepResult>> StepRunner::execute(const StepPlan& plan) {
  const TimePoint started = std::chrono::steady_clock::now();
  COHORT_RETURN_IF_ERROR(slots_.apply(plan));
  StepResult result{.step = plan.step, .slots = {}, .compute_seconds = 0};
  if (!plan.entries.empty()) {
    const AttentionBatch batch = batch_of(plan);
    const int64_t rows = plan.rows();
    Step step{plan,
              stream_,
              work_,
              where_,
              batch,
              rows,
              std::span(reinterpret_cast<int32_t*>(x_.as<float>() + rows * hidden_), size_t(rows))};
    try {
      Task task = forward(step, result.slots);
      task.start();
      task.result();
    } catch (const Failure& failure) {
      return failure.status().annotate(concat("step ", plan.step, ", ", where_.text()));
    }
  }
  where_.set(Operation::idle);
  if (!samples_) return std::optional<StepResult>();
  result.compute_seconds = seconds(std::chrono::steady_clock::now() - started);
  return std::optional<StepResult>(std::move(result));
}

Task StepRunner::forward(Step& step, std::vector<SlotResult>& slots) {
  const Tensor x(x_.data(), DType::f32, {step.rows, hidden_});
  co_await input_->fill(step, x);
  for (DecoderLayer& layer : layers_) co_await layer.forward(step, x);
  co_await output_->finish(step, x, slots);
}

}  // namespace cohort
