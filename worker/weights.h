// SPDX-License-Identifier: Apache-2.0
// The weights of one rank: its layers, and of each matrix its shard, packed for the kernels. Read
// once; immutable afterwards.
#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/buffer.h"
#include "base/status.h"
#include "base/stream.h"
#include "base/tensor.h"
#include "kernels/matrix.h"
#include "kernels/matrix_group.h"
#include "model/checkpoint.h"
#include "parallel/group.h"
#include "parallel/units.h"
#include "worker/weight_store.h"

namespace cohort {

// A vector or a few of them, f32 whatever the file holds: norms and biases. Empty where the model
// has none.
struct VectorWeight {
  Buffer values;
  int64_t size = 0;
  // Of rank 0 if it is empty.
  Tensor tensor() const { return size == 0 ? Tensor() : Tensor(values.data(), DType::f32, {size}); }
};

// A gated feed-forward of this rank: its units of the width.
struct FeedForwardWeights {
  Matrix gate_up;  // [2 ffn, hidden]: gate | up
  Matrix down;     // [hidden, ffn]: columns
};

// A mixture of experts: whole experts, those of this rank.
struct ExpertWeights {
  Matrix router;              // [experts, hidden]
  VectorWeight router_bias;   // [experts]; for the choice alone
  MatrixGroup gate_up, down;  // [2 ffn, hidden] and [hidden, ffn] of each
  FeedForwardWeights shared;  // the expert of every token, cut by units; may be empty
  Matrix shared_gate;         // [1, hidden]; may be empty
};

// What a latent attention has in place of qkv. Of this rank's heads, but for what makes the latent
// rows, which every rank has.
struct LatentWeights {
  Matrix q_down;         // [q_rank, hidden]; empty: queries come from h
  VectorWeight q_norm;   // [q_rank]
  Matrix q_up;           // [heads * (nope + rope), q_rank or hidden]
  Matrix kv_down;        // [kv_rank + rope, hidden]
  VectorWeight kv_norm;  // [kv_rank]
  MatrixGroup key_up;    // of each head [kv_rank, nope]: transposed, as it is absorbed by queries
  MatrixGroup value_up;  // of each head [value, kv_rank]
};

struct LayerWeights {
  VectorWeight attention_norm, feed_forward_norm;  // [hidden]
  Matrix qkv;             // [(heads + 2 kv_heads) * dim, hidden]: q | k | v of this rank's heads
  VectorWeight qkv_bias;  // likewise
  VectorWeight q_norm, k_norm;             // [dim], or of this rank's columns (QueryKeyNorm)
  Matrix o;                                // [hidden, heads * dim]: this rank's columns
  std::unique_ptr<LatentWeights> latent;   // in place of qkv
  FeedForwardWeights ffn;                  // a dense layer
  std::unique_ptr<ExpertWeights> experts;  // in place of ffn
};

struct Weights {
  std::unique_ptr<WeightStore> store;  // of a CPU: memory of the matrices below; null: their own
  std::shared_ptr<const Matrix> embedding;  // [vocab rows of this rank, hidden]; first stage
  std::vector<LayerWeights> layers;         // of this stage
  VectorWeight final_norm;                  // last stage
  std::shared_ptr<const Matrix> head;       // last stage; the embedding itself where it is tied
  int64_t packed_bytes() const;
};

// Called now and then on the loading thread: how many parts of this rank's share (a layer, a table)
// are loaded, and of how many.
using LoadProgress = std::function<void(int64_t done, int64_t total)>;

// What a rank loads.
struct WeightShard {
  ModelUnits units;
  UnitRange attention, ffn, shared_ffn, vocab;
  UnitRange experts;  // that it has of each layer
  UnitRange layers;
  bool first_stage = true, last_stage = true;
};

// One more expert of a layer, as MatrixGroup's of ExpertWeights have them: for copies of hot ones.
struct ExpertMatrices {
  Matrix gate_up, down;
};
Result<ExpertMatrices> load_expert(Checkpoint& checkpoint, Stream& stream, int64_t layer,
                                   int64_t expert);

// What decides the units of a model (parallel/units.h).
ModelShape shape_of(const Checkpoint& checkpoint);

// pp: the ranks of this tp index, by stage. A tied table is read by the first stage alone, which
// sends its packed shard to the last: no byte is read twice. cache: a folder for packed weights of
// CPUs (weight_cache.h); "": none.
Result<std::unique_ptr<Weights>> load_weights(Checkpoint& checkpoint, const WeightShard& shard,
                                              Stream& stream, Communicator& pp,
                                              const LoadProgress& progress,
                                              const std::string& cache = "");

}  // namespace cohort
