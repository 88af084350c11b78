// SPDX-License-Identifier: Apache-2.0
#include "tools/bench/model_work.h"

#include <charconv>
#include <cmath>
#include <string_view>

#include "kernels/kv_layout.h"
#include "kernels/matrix.h"
#include "parallel/units.h"
#include "worker/weights.h"

namespace cohort::bench {
namespace {

// Of "layers.17.attention.q": 17; -1 where there is none.
int64_t layer_of(std::string_view name) {
  constexpr std::string_view kPrefix = "layers.";
  if (!name.starts_with(kPrefix)) return -1;
  int64_t layer = -1;
  std::from_chars(name.data() + kPrefix.size(), name.data() + name.size(), layer);
  return layer;
}

// Every rank has the latent rows, of which there is one head, and otherwise the KV heads that its
// query heads read.
int held_kv_heads(const Checkpoint& checkpoint, int tp) {
  if (checkpoint.config().latent.kv_rank > 0) return tp;
  const auto cut = partition(shape_of(checkpoint), {.tp = tp, .pp = 1});
  if (!cut.ok()) return int(checkpoint.config().kv_heads);  // nor will such ranks start
  int held = 0;
  for (const UnitRange& units : cut->attention) held += heads_of(cut->units, units).kv.size();
  return held;
}

}  // namespace

void ModelWork::Sum::add(DType dtype, int64_t rows, int64_t columns, ActivationMode mode) {
  bytes += cohort::packed_bytes(dtype, rows, columns);
  const double operations = 2.0 * double(rows) * double(columns);
  const bool int8 = is_quantized(dtype) && wants_int8(mode);
  const bool bf16 = dtype == DType::bf16 && mode == ActivationMode::bf16;
  (int8 ? int8_operations : bf16 ? bf16_operations : fma_operations) += operations;
}

ModelWork::ModelWork(const Checkpoint& checkpoint, const WorkOptions& options)
    : config_(checkpoint.config()),
      options_(options),
      kv_heads_(held_kv_heads(checkpoint, options.tp)) {
  for (const WeightInfo& weight : checkpoint.weights()) add(weight);
}

void ModelWork::add(const WeightInfo& weight) {
  const std::string_view name = weight.name;
  // Layers behind the last are for guessing further tokens, and never loaded.
  if (layer_of(name) >= config_.layers) return;
  // A vector is no matrix, but the gate of a shared expert is one of a single row.
  if (weight.rows == 1 && !name.ends_with(".shared_gate")) return;
  if (name.ends_with(".kv_up")) return add_latent(weight);
  const bool table = name == "embedding";
  if (table && !config_.tied_embedding) {
    table_bytes_ += cohort::packed_bytes(weight.dtype, weight.rows, weight.columns);
    return;
  }
  const bool head = table || name == "head", expert = name.find(".experts.") != name.npos;
  Sum& sum = head ? head_ : expert ? experts_ : dense_;
  sum.add(weight.dtype, weight.rows, weight.columns, options_.activations);
}

// What makes keys is absorbed by the queries of each head, in f32; values are made of what
// attention has mixed.
void ModelWork::add_latent(const WeightInfo& weight) {
  const LatentConfig& latent = config_.latent;
  for (int64_t head = 0; head < config_.heads; head++) {
    dense_.add(DType::f32, latent.kv_rank, latent.nope_dim, options_.activations);
    dense_.add(weight.dtype, latent.value_dim, latent.kv_rank, options_.activations);
  }
}

double ModelWork::cache_bytes(double keys) const {
  const LatentConfig& latent = config_.latent;
  const bool f32 = options_.activations == ActivationMode::f32;
  KvGeometry geometry{.heads = int(config_.heads),
                      .kv_heads = kv_heads_,
                      .dim = int(config_.head_dim),
                      .dtype = f32 ? DType::f32 : options_.kv_dtype};
  if (latent.kv_rank > 0) geometry.dim = int(latent.rope_dim + latent.kv_rank);
  return double(geometry.block_bytes()) / kBlockTokens * keys * double(config_.layers);
}

double ModelWork::attention_operations(double keys) const {
  const LatentConfig& latent = config_.latent;
  const double dim =
      double(latent.kv_rank > 0 ? latent.rope_dim + latent.kv_rank : config_.head_dim);
  return 4 * double(config_.heads) * dim * keys * double(config_.layers);
}

bool ModelWork::attention_is_bf16() const {
  if (options_.activations != ActivationMode::bf16) return false;
  const bool any = dense_.bf16_operations + experts_.bf16_operations + head_.bf16_operations > 0;
  return options_.choose_kv_dtype ? any : options_.kv_dtype == DType::bf16;
}

double ModelWork::expert_share() const {
  const ExpertsConfig& e = config_.experts;
  return e.count == 0 ? 0 : double(e.per_token) / double(e.count);
}

// sampled: tokens that the head is computed for.
Demand ModelWork::operations(double tokens, double sampled, double keys) const {
  const double share = expert_share();
  const auto of = [&](double Sum::*kind) {
    return tokens * (dense_.*kind + share * experts_.*kind) + sampled * head_.*kind;
  };
  Demand demand{.int8_operations = of(&Sum::int8_operations),
                .bf16_operations = of(&Sum::bf16_operations),
                .fma_operations = of(&Sum::fma_operations)};
  (attention_is_bf16() ? demand.bf16_operations : demand.fma_operations) +=
      tokens * attention_operations(keys);
  return demand;
}

Demand ModelWork::decode(int64_t sequences, double keys) const {
  const double n = double(sequences);
  // The part of the experts that somebody chose.
  const double chosen = 1 - std::pow(1 - expert_share(), n);
  Demand demand = operations(n, n, keys);
  demand.memory_bytes =
      double(dense_.bytes + head_.bytes) + chosen * double(experts_.bytes) + n * cache_bytes(keys);
  return demand;
}

Demand ModelWork::prefill(int64_t tokens) const {
  const double n = double(tokens);
  Demand demand = operations(n, 1, (n + 1) / 2);  // keys that a token sees on average
  demand.memory_bytes = double(dense_.bytes + head_.bytes + experts_.bytes);
  return demand;
}

}  // namespace cohort::bench
