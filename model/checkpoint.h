// SPDX-License-Identifier: Apache-2.0
// A model's weights on disk, behind one interface for GGUF and safetensors. Tensors have Cohort's
// names, whatever the file calls them:
//
//   embedding [vocab, hidden]   final_norm [hidden]   head [vocab, hidden] (absent when tied)
//   layers.N.attention_norm [hidden]     layers.N.attention.{q,k,v,o}
//   layers.N.feed_forward_norm [hidden]  layers.N.feed_forward.{gate,up,down}
//
// where the model has them: layers.N.attention.{q,k,v}_bias, layers.N.attention.{q,k}_norm; in a
// layer with experts, in place of the feed_forward matrices
//
//   layers.N.router [experts, hidden]    layers.N.router_bias [experts] (for the choice)
//   layers.N.experts.E.{gate,up,down}    layers.N.shared_expert.{gate,up,down}
//   layers.N.shared_gate [hidden]
//
// and with latent attention, in place of attention.{q,k,v}: attention.q, or q_down [q_rank,
// hidden], q_down_norm and q_up; kv_down [kv_rank + rope_dim, hidden], kv_down_norm [kv_rank] and
// kv_up [heads * (nope_dim + value_dim), kv_rank], each head's keys before its values.
//
// Matrices are [output rows, input columns], as y = W x. Files are memory-mapped and only the parts
// that are asked for are read; bytes_read() counts them. Thread-safe.
#pragma once
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/dtype.h"
#include "base/status.h"
#include "model/config.h"
#include "model/tokenizer.h"

namespace cohort {

struct WeightInfo {
  std::string name;         // Cohort's
  std::string source_name;  // the file's
  DType dtype;
  int64_t rows = 0;  // 1 for vectors
  int64_t columns = 0;
  int64_t bytes() const { return bytes_of(dtype, rows * columns); }
};

class Checkpoint {
 public:
  // path: a .gguf file, a .safetensors file, or a folder that holds config.json and
  // model.safetensors or model.safetensors.index.json. Checks that every tensor that the family
  // needs is there with the right shape, before any weight is read.
  static Result<std::unique_ptr<Checkpoint>> open(const std::string& path);
  virtual ~Checkpoint() = default;

  virtual const std::string& path() const = 0;
  virtual const std::string& format() const = 0;  // "GGUF v3", "safetensors"
  virtual const ModelConfig& config() const = 0;
  virtual const std::vector<WeightInfo>& weights() const = 0;
  virtual const WeightInfo* find(std::string_view name) const;  // null if absent

  // Copies rows [row_begin, row_end) x columns [column_begin, column_end) to out, row after row,
  // in the stored dtype. Columns must be whole blocks of the dtype.
  virtual Status read(const WeightInfo& weight, int64_t row_begin, int64_t row_end,
                      int64_t column_begin, int64_t column_end, std::byte* out) = 0;
  // Hints: that all of these rows will be read now, bit by bit, or that they have been.
  virtual void will_read(const WeightInfo&, int64_t /*row_begin*/, int64_t /*row_end*/) {}
  virtual void have_read(const WeightInfo&, int64_t /*row_begin*/, int64_t /*row_end*/) {}
  virtual int64_t bytes_read() const = 0;
  virtual int64_t total_weight_bytes() const = 0;

  // The tokenizer that came with the weights.
  virtual Result<std::unique_ptr<Tokenizer>> tokenizer() const = 0;

  // Identifies model and weights for replicas that want to work together: SHA-256, as hex, over the
  // config, all tensor names, types and shapes and a sample of the data.
  virtual const std::string& fingerprint() const = 0;
};

// Elements of `blocks` consecutive values of any weight dtype as f32: the definition of what a
// stored weight means. n must be whole blocks.
void dequantize(DType type, const std::byte* in, int64_t n, float* out);

}  // namespace cohort
