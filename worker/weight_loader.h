// SPDX-License-Identifier: Apache-2.0
// Reads the weights of one rank out of a checkpoint, weight by weight, packed for the kernels.
#pragma once
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/status.h"
#include "worker/weights.h"

namespace cohort {

class WeightLoader {
 public:
  // Borrows all. store: where a CPU keeps matrices; null: each by itself.
  WeightLoader(Checkpoint& checkpoint, const WeightShard& shard, Stream& stream, PartStore* store);

  Result<VectorWeight> vector(const std::string& name, Slice part, int64_t all);
  Result<Matrix> table(const std::string& name);  // this rank's rows of the vocabulary
  Result<LayerWeights> layer(int64_t n);
  // [2 ffn, hidden] and [hidden, ffn].
  Result<ExpertMatrices> expert(int64_t layer, int64_t number);

 private:
  Result<std::vector<float>> read(const std::string& name, Slice part, int64_t all);
  VectorWeight upload(const std::vector<float>& values);
  Result<const WeightInfo*> find(const std::string& name, int64_t rows, int64_t columns) const;
  // Rows of column-parallel matrices [all, columns], stacked.
  struct RowsOf {
    std::string name;
    int64_t all;
    Slice rows;
  };
  Status add(Matrix& m, const std::vector<RowsOf>& parts);
  // Columns of a row-parallel matrix [hidden, all].
  Result<Matrix> columns(const std::string& name, int64_t all, Slice part, int64_t unit);
  Status load_attention(LayerWeights& w, int64_t n);
  Status load_query_key_norms(LayerWeights& w, int64_t n);
  Status load_latent(LayerWeights& w, int64_t n);
  Status load_heads(LatentWeights& w, const std::string& name);
  Result<Matrix> key_of_head(const WeightInfo& weight, int64_t head);
  Result<Matrix> value_of_head(const WeightInfo& weight, int64_t head);
  Result<FeedForwardWeights> feed_forward(const std::string& prefix, int64_t all, Slice part,
                                          int64_t unit);
  Result<std::unique_ptr<ExpertWeights>> experts(int64_t n);

  Checkpoint& checkpoint_;
  const ModelConfig& config_;
  const WeightShard& shard_;
  Stream& stream_;
  PartStore* const store_;
  Slice q_, kv_;  // rows of q, and of k and v
  Slice mixed_;   // columns of o
  Slice ffn_, shared_, vocab_;
  int64_t o_unit_ = 0;
};

}  // namespace cohort
