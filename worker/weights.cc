// SPDX-License-Identifier: Apache-2.0
#include "worker/weights.h"

#include <algorithm>

#include "worker/weight_loader.h"

namespace cohort {
namespace {

// In pieces, so that no transport has to hold a whole table.
constexpr int64_t kTransferBytes = int64_t(4) << 20;

template <class Transfer>
Status transfer(const Buffer& buffer, Transfer one_piece) {
  const int64_t bytes = int64_t(buffer.size());
  for (int64_t at = 0; at < bytes; at += kTransferBytes)
    COHORT_RETURN_IF_ERROR(one_piece(buffer.data() + at, std::min(kTransferBytes, bytes - at)));
  return {};
}

// The table goes ahead with a word on whether it comes at all: a receiver must not wait for one
// that could not be read.
Status send_table(const Result<Matrix>& table, Communicator& pp) {
  const int64_t comes = table.ok();
  COHORT_RETURN_IF_ERROR(pp.send(&comes, sizeof comes, pp.size() - 1));
  if (!comes) return table.status();
  for (const MatrixPart& part : table->parts())
    COHORT_RETURN_IF_ERROR(transfer(part.packed, [&](std::byte* data, int64_t bytes) {
      return pp.send(data, bytes, pp.size() - 1);
    }));
  return {};
}

Result<Matrix> receive_table(DType dtype, int64_t rows, int64_t columns, Communicator& pp) {
  int64_t comes = 0;
  COHORT_RETURN_IF_ERROR(pp.recv(&comes, sizeof comes, 0));
  if (!comes)
    return unavailable("the first stage could not read the table that the last one shares");
  MatrixPart part{dtype, rows, Buffer(size_t(packed_bytes(dtype, rows, columns)))};
  COHORT_RETURN_IF_ERROR(transfer(
      part.packed, [&](std::byte* data, int64_t bytes) { return pp.recv(data, bytes, 0); }));
  Matrix table(columns, 0);
  table.adopt_part(std::move(part));
  return table;
}

// The table of the first stage, and the head of the last.
Status load_ends(Weights& weights, WeightLoader& loader, Checkpoint& checkpoint,
                 const WeightShard& shard, Stream& stream, Communicator& pp) {
  const ModelConfig& config = checkpoint.config();
  // Between GPUs' hosts a packed table would take two more copies than reading it again.
  const bool shared = config.tied_embedding && stream.kind() == DeviceKind::cpu;
  if (shard.first_stage) {
    Result<Matrix> table = loader.table("embedding");
    if (shared && !shard.last_stage) COHORT_RETURN_IF_ERROR(send_table(table, pp));
    if (!table.ok()) return table.status();
    weights.embedding = std::make_shared<const Matrix>(std::move(*table));
  }
  if (!shard.last_stage) return {};
  COHORT_ASSIGN_OR_RETURN(weights.final_norm,
                          loader.vector("final_norm", {0, config.hidden}, config.hidden));
  if (!config.tied_embedding) {
    COHORT_ASSIGN_OR_RETURN(Matrix table, loader.table("head"));
    weights.head = std::make_shared<const Matrix>(std::move(table));
  } else if (shard.first_stage) {
    weights.head = weights.embedding;
  } else if (!shared) {
    COHORT_ASSIGN_OR_RETURN(Matrix table, loader.table("embedding"));
    weights.head = std::make_shared<const Matrix>(std::move(table));
  } else {
    const WeightInfo* info = checkpoint.find("embedding");
    if (info == nullptr) return invalid_argument(checkpoint.path() + " has no weight embedding");
    const Slice rows = slice_of(shard.vocab, shard.units.vocab_rows, config.vocab);
    COHORT_ASSIGN_OR_RETURN(Matrix table,
                            receive_table(info->dtype, rows.size(), config.hidden, pp));
    weights.head = std::make_shared<const Matrix>(std::move(table));
  }
  return {};
}

bool has_dense_layers(const ModelConfig& config) {
  return config.experts.count == 0 || !config.experts.dense_layers.empty();
}

int64_t packed(const FeedForwardWeights& w) {
  return w.gate_up.packed_bytes() + w.down.packed_bytes();
}

int64_t packed(const LayerWeights& w) {
  int64_t bytes = w.qkv.packed_bytes() + w.o.packed_bytes() + packed(w.ffn);
  if (const LatentWeights* l = w.latent.get())
    bytes += l->q_down.packed_bytes() + l->q_up.packed_bytes() + l->kv_down.packed_bytes() +
             l->key_up.packed_bytes() + l->value_up.packed_bytes();
  if (const ExpertWeights* e = w.experts.get())
    bytes += e->router.packed_bytes() + e->gate_up.packed_bytes() + e->down.packed_bytes() +
             packed(e->shared) + e->shared_gate.packed_bytes();
  return bytes;
}

std::string to_text(const UnitRange& r) { return concat(r.begin, "-", r.end); }

// All that decides the packed weights of a rank, but for the format (weight_cache.h).
std::string cache_identity(const Checkpoint& checkpoint, const WeightShard& s) {
  const ModelUnits& u = s.units;
  return concat("model ", checkpoint.fingerprint(), "; files ", files_stamp(checkpoint.path()),
                "; units of ", u.heads_per_unit, " heads ", u.ffn_columns, " ",
                u.shared_ffn_columns, " ", u.vocab_rows, "; attention ", to_text(s.attention),
                "; ffn ", to_text(s.ffn), "; shared ffn ", to_text(s.shared_ffn), "; vocabulary ",
                to_text(s.vocab), "; experts ", to_text(s.experts), "; layers ", to_text(s.layers),
                s.first_stage ? "; first stage" : "", s.last_stage ? "; last stage" : "");
}

std::unique_ptr<WeightStore> make_store(const Checkpoint& checkpoint, const WeightShard& shard,
                                        Stream& stream, const std::string& cache) {
  if (cache.empty()) return std::make_unique<WeightStore>();
  const std::string identity = cache_identity(checkpoint, shard);
  return std::make_unique<WeightStore>(weight_cache_path(cache, checkpoint.path(), identity),
                                       identity, stream.threads());
}

}  // namespace

int64_t Weights::packed_bytes() const {
  int64_t bytes = embedding ? embedding->packed_bytes() : 0;
  if (head && head != embedding) bytes += head->packed_bytes();
  for (const LayerWeights& w : layers) bytes += packed(w);
  return bytes;
}

ModelShape shape_of(const Checkpoint& checkpoint) {
  const ModelConfig& config = checkpoint.config();
  ModelShape shape{.layers = config.layers,
                   .heads = config.heads,
                   .kv_heads = config.kv_heads,
                   .head_dim = config.head_dim,
                   .ffn = has_dense_layers(config) ? config.ffn : 0,
                   .shared_ffn = config.experts.shared_ffn,
                   .experts = config.experts.count,
                   .latent = config.latent.kv_rank > 0,
                   .value_dim = config.latent.value_dim,
                   .norms_rows = config.query_key_norm == QueryKeyNorm::rows,
                   .vocab = config.vocab};
  for (const WeightInfo& weight : checkpoint.weights()) {
    if (weight.name.ends_with(".attention.o"))
      shape.o_block = std::max(shape.o_block, column_block(weight.dtype));
    if (weight.name.ends_with(".feed_forward.down"))
      shape.down_block = std::max(shape.down_block, column_block(weight.dtype));
    if (weight.name.ends_with(".shared_expert.down"))
      shape.shared_down_block = std::max(shape.shared_down_block, column_block(weight.dtype));
  }
  return shape;
}

Result<std::unique_ptr<Weights>> load_weights(Checkpoint& checkpoint, const WeightShard& shard,
                                              Stream& stream, Communicator& pp,
                                              const LoadProgress& progress,
                                              const std::string& cache) {
  auto weights = std::make_unique<Weights>();
  if (stream.kind() == DeviceKind::cpu)
    weights->store = make_store(checkpoint, shard, stream, cache);
  WeightLoader loader(checkpoint, shard, stream, weights->store.get());
  const int64_t ends = shard.first_stage + shard.last_stage;
  COHORT_RETURN_IF_ERROR(load_ends(*weights, loader, checkpoint, shard, stream, pp));
  for (int n = shard.layers.begin; n < shard.layers.end; n++) {
    COHORT_ASSIGN_OR_RETURN(LayerWeights layer, loader.layer(n));
    weights->layers.push_back(std::move(layer));
    if (progress) progress(ends + int64_t(weights->layers.size()), ends + shard.layers.size());
  }
  if (weights->store != nullptr) weights->store->save();
  return weights;
}

Result<ExpertMatrices> load_expert(Checkpoint& checkpoint, Stream& stream, int64_t layer,
                                   int64_t expert) {
  return WeightLoader(checkpoint, WeightShard{}, stream, nullptr).expert(layer, expert);
}

}  // namespace cohort
