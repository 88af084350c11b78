// SPDX-License-Identifier: Apache-2.0
#include "worker/weight_loader.h"

#include <atomic>
#include <cstring>
#include <deque>
#include <mutex>
#include <tuple>
#include <vector>

namespace cohort {
namespace {

std::string layer_name(int64_t layer, const std::string& weight) {
  return concat("layers.", layer, ".", weight);
}

// What a matrix reads a part from. Read by several threads at once: the first says how far it goes.
class StoredPart {
 public:
  StoredPart(Checkpoint& checkpoint, const WeightInfo& weight, Slice rows, Slice columns)
      : checkpoint_(checkpoint), weight_(weight), rows_(rows), columns_(columns) {}
  ~StoredPart() {
    if (begun_) checkpoint_.have_read(weight_, rows_.begin, rows_.end);
  }
  StoredPart(const StoredPart&) = delete;
  StoredPart& operator=(const StoredPart&) = delete;

  Status operator()(int64_t begin, int64_t end, std::byte* out) const {
    if (!begun_.exchange(true)) checkpoint_.will_read(weight_, rows_.begin, rows_.end);
    return checkpoint_.read(weight_, rows_.begin + begin, rows_.begin + end, columns_.begin,
                            columns_.end, out);
  }
  Matrix::PartSource source(std::string_view name) const {
    return {name, weight_.dtype, rows_.size(), *this};
  }
  Matrix::PartSource source() const { return source(weight_.name); }

 private:
  Checkpoint& checkpoint_;
  const WeightInfo& weight_;
  const Slice rows_, columns_;
  mutable std::atomic<bool> begun_{false};
};

}  // namespace

WeightLoader::WeightLoader(Checkpoint& checkpoint, const WeightShard& shard, Stream& stream,
                           PartStore* store)
    : checkpoint_(checkpoint),
      config_(checkpoint.config()),
      shard_(shard),
      stream_(stream),
      store_(store) {
  const bool latent = config_.latent.kv_rank > 0;
  const int64_t head = latent ? config_.latent.value_dim : config_.head_dim;
  const HeadRanges heads = heads_of(shard.units, shard.attention);
  kv_ = slice_of(heads.kv, config_.head_dim, config_.kv_heads * config_.head_dim);
  q_ = slice_of(heads.query, config_.head_dim, config_.heads * config_.head_dim);
  o_unit_ = shard.units.heads_per_unit * head;
  mixed_ = slice_of(shard.attention, o_unit_, config_.heads * head);
  ffn_ = slice_of(shard.ffn, shard.units.ffn_columns, config_.ffn);
  shared_ = slice_of(shard.shared_ffn, shard.units.shared_ffn_columns, config_.experts.shared_ffn);
  vocab_ = slice_of(shard.vocab, shard.units.vocab_rows, config_.vocab);
}

Result<std::vector<float>> WeightLoader::read(const std::string& name, Slice part, int64_t all) {
  COHORT_ASSIGN_OR_RETURN(const WeightInfo* weight, find(name, 1, all));
  std::vector<std::byte> stored(size_t(weight->bytes()));
  COHORT_RETURN_IF_ERROR(checkpoint_.read(*weight, 0, 1, 0, all, stored.data()));
  std::vector<float> values(static_cast<size_t>(all));
  dequantize(weight->dtype, stored.data(), all, values.data());
  return std::vector<float>(values.begin() + part.begin, values.begin() + part.end);
}

VectorWeight WeightLoader::upload(const std::vector<float>& values) {
  Device& device = stream_.device();
  VectorWeight vector{device.allocate(values.size() * sizeof(float)), int64_t(values.size())};
  device.upload(vector.values.data(), values.data(), vector.values.size());
  return vector;
}

Result<VectorWeight> WeightLoader::vector(const std::string& name, Slice part, int64_t all) {
  COHORT_ASSIGN_OR_RETURN(const std::vector<float> values, read(name, part, all));
  return upload(values);
}

Result<Matrix> WeightLoader::table(const std::string& name) {
  Matrix m(config_.hidden, 0);
  COHORT_RETURN_IF_ERROR(add(m, {{name, config_.vocab, vocab_}}));
  return m;
}

Result<LayerWeights> WeightLoader::layer(int64_t n) {
  LayerWeights w;
  const Slice all{0, config_.hidden};
  COHORT_ASSIGN_OR_RETURN(w.attention_norm,
                          vector(layer_name(n, "attention_norm"), all, config_.hidden));
  COHORT_ASSIGN_OR_RETURN(w.feed_forward_norm,
                          vector(layer_name(n, "feed_forward_norm"), all, config_.hidden));
  COHORT_RETURN_IF_ERROR(config_.latent.kv_rank > 0 ? load_latent(w, n) : load_attention(w, n));
  const int64_t mixed = config_.latent.kv_rank > 0 ? config_.heads * config_.latent.value_dim
                                                   : config_.heads * config_.head_dim;
  COHORT_ASSIGN_OR_RETURN(w.o, columns(layer_name(n, "attention.o"), mixed, mixed_, o_unit_));
  if (config_.experts.in_layer(n)) {
    COHORT_ASSIGN_OR_RETURN(w.experts, experts(n));
  } else {
    COHORT_ASSIGN_OR_RETURN(w.ffn, feed_forward(layer_name(n, "feed_forward"), config_.ffn, ffn_,
                                                shard_.units.ffn_columns));
  }
  return w;
}

Status WeightLoader::load_attention(LayerWeights& w, int64_t n) {
  const int64_t q_rows = config_.heads * config_.head_dim;
  const int64_t kv_rows = config_.kv_heads * config_.head_dim;
  w.qkv = Matrix(config_.hidden, 0);
  COHORT_RETURN_IF_ERROR(add(w.qkv, {{layer_name(n, "attention.q"), q_rows, q_},
                                     {layer_name(n, "attention.k"), kv_rows, kv_},
                                     {layer_name(n, "attention.v"), kv_rows, kv_}}));
  if (config_.query_key_norm != QueryKeyNorm::none)
    COHORT_RETURN_IF_ERROR(load_query_key_norms(w, n));
  if (!config_.qkv_bias) return {};
  std::vector<float> biases;
  for (const auto& [name, part, all] :
       {std::tuple{"attention.q_bias", q_, q_rows}, std::tuple{"attention.k_bias", kv_, kv_rows},
        std::tuple{"attention.v_bias", kv_, kv_rows}}) {
    COHORT_ASSIGN_OR_RETURN(const std::vector<float> bias, read(layer_name(n, name), part, all));
    biases.insert(biases.end(), bias.begin(), bias.end());
  }
  w.qkv_bias = upload(biases);
  return {};
}

Status WeightLoader::load_query_key_norms(LayerWeights& w, int64_t n) {
  const bool heads = config_.query_key_norm == QueryKeyNorm::heads;
  const Slice head{0, config_.head_dim};
  COHORT_ASSIGN_OR_RETURN(w.q_norm,
                          vector(layer_name(n, "attention.q_norm"), heads ? head : q_,
                                 heads ? config_.head_dim : config_.heads * config_.head_dim));
  COHORT_ASSIGN_OR_RETURN(w.k_norm,
                          vector(layer_name(n, "attention.k_norm"), heads ? head : kv_,
                                 heads ? config_.head_dim : config_.kv_heads * config_.head_dim));
  return {};
}

Status WeightLoader::load_latent(LayerWeights& w, int64_t n) {
  const LatentConfig& c = config_.latent;
  w.latent = std::make_unique<LatentWeights>();
  LatentWeights& latent = *w.latent;
  const int64_t q_rows = config_.heads * config_.head_dim;
  if (c.q_rank > 0) {
    const Slice all{0, c.q_rank};
    latent.q_down = Matrix(config_.hidden, 0);
    COHORT_RETURN_IF_ERROR(
        add(latent.q_down, {{layer_name(n, "attention.q_down"), c.q_rank, all}}));
    COHORT_ASSIGN_OR_RETURN(latent.q_norm,
                            vector(layer_name(n, "attention.q_down_norm"), all, c.q_rank));
  }
  latent.q_up = Matrix(c.q_rank > 0 ? c.q_rank : config_.hidden, 0);
  COHORT_RETURN_IF_ERROR(add(
      latent.q_up, {{layer_name(n, c.q_rank > 0 ? "attention.q_up" : "attention.q"), q_rows, q_}}));
  latent.kv_down = Matrix(config_.hidden, 0);
  COHORT_RETURN_IF_ERROR(add(
      latent.kv_down,
      {{layer_name(n, "attention.kv_down"), c.kv_rank + c.rope_dim, {0, c.kv_rank + c.rope_dim}}}));
  COHORT_ASSIGN_OR_RETURN(
      latent.kv_norm, vector(layer_name(n, "attention.kv_down_norm"), {0, c.kv_rank}, c.kv_rank));
  return load_heads(latent, layer_name(n, "attention.kv_up"));
}

// Keys and values of each of this rank's heads.
Status WeightLoader::load_heads(LatentWeights& w, const std::string& name) {
  const LatentConfig& c = config_.latent;
  COHORT_ASSIGN_OR_RETURN(const WeightInfo* weight,
                          find(name, config_.heads * (c.nope_dim + c.value_dim), c.kv_rank));
  for (int64_t head = q_.begin / config_.head_dim; head < q_.end / config_.head_dim; head++) {
    COHORT_ASSIGN_OR_RETURN(Matrix key, key_of_head(*weight, head));
    COHORT_ASSIGN_OR_RETURN(Matrix value, value_of_head(*weight, head));
    w.key_up.matrices.push_back(std::move(key));
    w.value_up.matrices.push_back(std::move(value));
  }
  prepare_group(stream_, w.key_up);
  prepare_group(stream_, w.value_up);
  return {};
}

// What makes keys is turned, because queries absorb it: q . (K c) = (K^T q) . c. Turned once, by
// the first thread that asks, and not at all where the store has it.
Result<Matrix> WeightLoader::key_of_head(const WeightInfo& weight, int64_t head) {
  const LatentConfig& c = config_.latent;
  const int64_t first = head * (c.nope_dim + c.value_dim), size = c.nope_dim * c.kv_rank;
  std::vector<float> turned;
  Status status;
  std::once_flag once;
  const auto turn = [&] {
    std::vector<std::byte> stored(size_t(bytes_of(weight.dtype, size)));
    std::vector<float> keys(static_cast<size_t>(size));
    status = checkpoint_.read(weight, first, first + c.nope_dim, 0, c.kv_rank, stored.data());
    dequantize(weight.dtype, stored.data(), size, keys.data());
    turned.resize(keys.size());
    for (int64_t i = 0; i < c.nope_dim; i++)
      for (int64_t j = 0; j < c.kv_rank; j++)
        turned[size_t(j * c.nope_dim + i)] = keys[size_t(i * c.kv_rank + j)];
  };
  const auto read = [&](int64_t begin, int64_t end, std::byte* out) -> Status {
    std::call_once(once, turn);
    COHORT_RETURN_IF_ERROR(status);
    std::memcpy(out, &turned[size_t(begin * c.nope_dim)],
                size_t((end - begin) * c.nope_dim) * sizeof(float));
    return {};
  };
  const std::string name = concat(weight.name, ".", head, ".key");
  const Matrix::PartSource source{name, DType::f32, c.kv_rank, read};
  Matrix key(c.nope_dim, 0);
  COHORT_RETURN_IF_ERROR(key.add_parts(stream_, {&source, 1}, store_));
  return key;
}

Result<Matrix> WeightLoader::value_of_head(const WeightInfo& weight, int64_t head) {
  const LatentConfig& c = config_.latent;
  const int64_t first = head * (c.nope_dim + c.value_dim) + c.nope_dim;
  const StoredPart part(checkpoint_, weight, {first, first + c.value_dim}, {0, c.kv_rank});
  const std::string name = concat(weight.name, ".", head, ".value");
  const Matrix::PartSource source = part.source(name);
  Matrix value(c.kv_rank, 0);
  COHORT_RETURN_IF_ERROR(value.add_parts(stream_, {&source, 1}, store_));
  return value;
}

Result<FeedForwardWeights> WeightLoader::feed_forward(const std::string& prefix, int64_t all,
                                                      Slice part, int64_t unit) {
  FeedForwardWeights w;
  w.gate_up = Matrix(config_.hidden, 0);
  COHORT_RETURN_IF_ERROR(
      add(w.gate_up, {{prefix + ".gate", all, part}, {prefix + ".up", all, part}}));
  COHORT_ASSIGN_OR_RETURN(w.down, columns(prefix + ".down", all, part, unit));
  return w;
}

Result<std::unique_ptr<ExpertWeights>> WeightLoader::experts(int64_t n) {
  const ExpertsConfig& e = config_.experts;
  auto w = std::make_unique<ExpertWeights>();
  w->router = Matrix(config_.hidden, 0);
  COHORT_RETURN_IF_ERROR(add(w->router, {{layer_name(n, "router"), e.count, {0, e.count}}}));
  if (e.choice_bias) {
    COHORT_ASSIGN_OR_RETURN(w->router_bias,
                            vector(layer_name(n, "router_bias"), {0, e.count}, e.count));
  }
  for (int number = shard_.experts.begin; number < shard_.experts.end; number++) {
    COHORT_ASSIGN_OR_RETURN(ExpertMatrices one, expert(n, number));
    w->gate_up.matrices.push_back(std::move(one.gate_up));
    w->down.matrices.push_back(std::move(one.down));
  }
  prepare_group(stream_, w->gate_up);
  prepare_group(stream_, w->down);
  if (e.shared_ffn == 0) return w;
  COHORT_ASSIGN_OR_RETURN(w->shared, feed_forward(layer_name(n, "shared_expert"), e.shared_ffn,
                                                  shared_, shard_.units.shared_ffn_columns));
  if (!e.shared_gate) return w;
  w->shared_gate = Matrix(config_.hidden, 0);
  COHORT_RETURN_IF_ERROR(add(w->shared_gate, {{layer_name(n, "shared_gate"), 1, {0, 1}}}));
  return w;
}

Result<ExpertMatrices> WeightLoader::expert(int64_t layer, int64_t number) {
  const std::string prefix = layer_name(layer, concat("experts.", number));
  const int64_t ffn = config_.experts.ffn;
  ExpertMatrices w{Matrix(config_.hidden, 0), {}};
  COHORT_RETURN_IF_ERROR(
      add(w.gate_up, {{prefix + ".gate", ffn, {0, ffn}}, {prefix + ".up", ffn, {0, ffn}}}));
  COHORT_ASSIGN_OR_RETURN(w.down, columns(prefix + ".down", ffn, {0, ffn}, 0));
  return w;
}

Result<const WeightInfo*> WeightLoader::find(const std::string& name, int64_t rows,
                                             int64_t columns) const {
  const WeightInfo* weight = checkpoint_.find(name);
  if (weight == nullptr)
    return invalid_argument(concat(checkpoint_.path(), " has no weight ", name));
  if (weight->rows != rows || weight->columns != columns)
    return invalid_argument(concat(checkpoint_.path(), ": ", weight->source_name, " is ",
                                   weight->rows, " x ", weight->columns, ", not ", rows, " x ",
                                   columns));
  return weight;
}

Status WeightLoader::add(Matrix& m, const std::vector<RowsOf>& parts) {
  std::deque<StoredPart> stored;
  std::vector<Matrix::PartSource> sources;
  for (const RowsOf& part : parts) {
    COHORT_ASSIGN_OR_RETURN(const WeightInfo* weight, find(part.name, part.all, m.columns()));
    sources.push_back(
        stored.emplace_back(checkpoint_, *weight, part.rows, Slice{0, weight->columns}).source());
  }
  return m.add_parts(stream_, sources, store_);
}

Result<Matrix> WeightLoader::columns(const std::string& name, int64_t all, Slice part,
                                     int64_t unit) {
  COHORT_ASSIGN_OR_RETURN(const WeightInfo* weight, find(name, config_.hidden, all));
  // A GPU that may add in any order does a row-parallel product in one go.
  Matrix m(part.size(), stream_.fixed_order() ? unit : 0);
  const StoredPart stored(checkpoint_, *weight, {0, config_.hidden}, part);
  const Matrix::PartSource source = stored.source();
  COHORT_RETURN_IF_ERROR(m.add_parts(stream_, {&source, 1}, store_));
  return m;
}

}  // namespace cohort
