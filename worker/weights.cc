// SPDX-License-Identifier: Apache-2.0
#include "worker/weights.h"

#include <algorithm>

namespace cohort {
namespace {

std::string layer_name(int64_t layer, const char* weight) {
  return concat("layers.", layer, ".", weight);
}

class Loader {
 public:
  Loader(Checkpoint& checkpoint, const WeightShard& shard, Stream& stream)
      : checkpoint_(checkpoint), config_(checkpoint.config()), shard_(shard), stream_(stream) {
    const int64_t kv_width = shard.units.kv_heads_per_unit * config_.head_dim;
    const int64_t group = config_.heads / config_.kv_heads;
    kv_ = slice_of(shard.attention, kv_width, config_.kv_heads * config_.head_dim);
    q_ = {kv_.begin * group, kv_.end * group};
    o_unit_ = kv_width * group;
    ffn_ = slice_of(shard.ffn, shard.units.ffn_columns, config_.ffn);
    vocab_ = slice_of(shard.vocab, shard.units.vocab_rows, config_.vocab);
  }

  Result<NormWeight> norm(const std::string& name) {
    COHORT_ASSIGN_OR_RETURN(const WeightInfo* weight, find(name, 1, config_.hidden));
    std::vector<std::byte> stored(size_t(weight->bytes()));
    COHORT_RETURN_IF_ERROR(
        checkpoint_.read(*weight, 0, weight->rows, 0, weight->columns, stored.data()));
    std::vector<float> values(size_t(config_.hidden));
    dequantize(weight->dtype, stored.data(), config_.hidden, values.data());
    Device& device = stream_.device();
    NormWeight norm{device.allocate(values.size() * sizeof(float)), config_.hidden};
    device.upload(norm.values.data(), values.data(), norm.values.size());
    return norm;
  }

  Result<Matrix> table(const std::string& name) {
    Matrix m(config_.hidden, 0);
    COHORT_RETURN_IF_ERROR(add(m, name, config_.vocab, vocab_));
    return m;
  }

  Result<LayerWeights> layer(int64_t n) {
    LayerWeights w;
    COHORT_ASSIGN_OR_RETURN(w.attention_norm, norm(layer_name(n, "attention_norm")));
    COHORT_ASSIGN_OR_RETURN(w.feed_forward_norm, norm(layer_name(n, "feed_forward_norm")));
    const int64_t q_rows = config_.heads * config_.head_dim;
    const int64_t kv_rows = config_.kv_heads * config_.head_dim;
    w.qkv = Matrix(config_.hidden, 0);
    COHORT_RETURN_IF_ERROR(add(w.qkv, layer_name(n, "attention.q"), q_rows, q_));
    COHORT_RETURN_IF_ERROR(add(w.qkv, layer_name(n, "attention.k"), kv_rows, kv_));
    COHORT_RETURN_IF_ERROR(add(w.qkv, layer_name(n, "attention.v"), kv_rows, kv_));
    // A GPU that may add in any order does a row-parallel product in one go.
    const bool ordered = stream_.fixed_order();
    w.o = Matrix(q_.size(), ordered ? o_unit_ : 0);
    COHORT_RETURN_IF_ERROR(add_columns(w.o, layer_name(n, "attention.o"), q_rows, q_));
    w.gate_up = Matrix(config_.hidden, 0);
    COHORT_RETURN_IF_ERROR(add(w.gate_up, layer_name(n, "feed_forward.gate"), config_.ffn, ffn_));
    COHORT_RETURN_IF_ERROR(add(w.gate_up, layer_name(n, "feed_forward.up"), config_.ffn, ffn_));
    w.down = Matrix(ffn_.size(), ordered ? shard_.units.ffn_columns : 0);
    COHORT_RETURN_IF_ERROR(
        add_columns(w.down, layer_name(n, "feed_forward.down"), config_.ffn, ffn_));
    return w;
  }

 private:
  Result<const WeightInfo*> find(const std::string& name, int64_t rows, int64_t columns) const {
    const WeightInfo* weight = checkpoint_.find(name);
    if (weight == nullptr)
      return invalid_argument(concat(checkpoint_.path(), " has no weight ", name));
    if (weight->rows != rows || weight->columns != columns)
      return invalid_argument(concat(checkpoint_.path(), ": ", weight->source_name, " is ",
                                     weight->rows, " x ", weight->columns, ", not ", rows, " x ",
                                     columns));
    return weight;
  }

  // Rows of a column-parallel matrix [all, hidden].
  Status add(Matrix& m, const std::string& name, int64_t all, Slice rows) {
    COHORT_ASSIGN_OR_RETURN(const WeightInfo* weight, find(name, all, config_.hidden));
    return m.add_part(stream_, weight->dtype, rows.size(),
                      [&](int64_t begin, int64_t end, std::byte* out) {
                        return checkpoint_.read(*weight, rows.begin + begin, rows.begin + end, 0,
                                                weight->columns, out);
                      });
  }

  // Columns of a row-parallel matrix [hidden, all].
  Status add_columns(Matrix& m, const std::string& name, int64_t all, Slice columns) {
    COHORT_ASSIGN_OR_RETURN(const WeightInfo* weight, find(name, config_.hidden, all));
    return m.add_part(
        stream_, weight->dtype, config_.hidden, [&](int64_t begin, int64_t end, std::byte* out) {
          return checkpoint_.read(*weight, begin, end, columns.begin, columns.end, out);
        });
  }

  Checkpoint& checkpoint_;
  const ModelConfig& config_;
  const WeightShard& shard_;
  Stream& stream_;
  Slice q_, kv_, ffn_, vocab_;
  int64_t o_unit_ = 0;
};

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
Status load_ends(Weights& weights, Loader& loader, Checkpoint& checkpoint, const WeightShard& shard,
                 Stream& stream, Communicator& pp) {
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
  COHORT_ASSIGN_OR_RETURN(weights.final_norm, loader.norm("final_norm"));
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

}  // namespace

int64_t Weights::packed_bytes() const {
  int64_t bytes = embedding ? embedding->packed_bytes() : 0;
  if (head && head != embedding) bytes += head->packed_bytes();
  for (const LayerWeights& w : layers)
    bytes += w.qkv.packed_bytes() + w.o.packed_bytes() + w.gate_up.packed_bytes() +
             w.down.packed_bytes();
  return bytes;
}

ModelShape shape_of(const Checkpoint& checkpoint) {
  const ModelConfig& config = checkpoint.config();
  ModelShape shape{.layers = config.layers,
                   .heads = config.heads,
                   .kv_heads = config.kv_heads,
                   .head_dim = config.head_dim,
                   .ffn = config.ffn,
                   .vocab = config.vocab};
  for (const WeightInfo& weight : checkpoint.weights()) {
    if (weight.name.ends_with(".attention.o"))
      shape.o_block = std::max(shape.o_block, column_block(weight.dtype));
    if (weight.name.ends_with(".feed_forward.down"))
      shape.down_block = std::max(shape.down_block, column_block(weight.dtype));
  }
  return shape;
}

Result<std::unique_ptr<Weights>> load_weights(Checkpoint& checkpoint, const WeightShard& shard,
                                              Stream& stream, Communicator& pp,
                                              const LoadProgress& progress) {
  Loader loader(checkpoint, shard, stream);
  const int64_t ends = shard.first_stage + shard.last_stage;
  auto weights = std::make_unique<Weights>();
  COHORT_RETURN_IF_ERROR(load_ends(*weights, loader, checkpoint, shard, stream, pp));
  for (int n = shard.layers.begin; n < shard.layers.end; n++) {
    COHORT_ASSIGN_OR_RETURN(LayerWeights layer, loader.layer(n));
    weights->layers.push_back(std::move(layer));
    if (progress) progress(ends + int64_t(weights->layers.size()), ends + shard.layers.size());
  }
  return weights;
}

}  // namespace cohort
