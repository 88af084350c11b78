// SPDX-License-Identifier: Apache-2.0
// The weights of one rank: its layers, and of each matrix its shard, packed for the kernels. Read
// once; immutable afterwards.
#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "base/buffer.h"
#include "base/status.h"
#include "base/stream.h"
#include "base/tensor.h"
#include "kernels/matrix.h"
#include "model/checkpoint.h"
#include "parallel/group.h"
#include "parallel/units.h"

namespace cohort {

// f32, whatever the file holds.
struct NormWeight {
  Buffer values;
  int64_t size = 0;
  Tensor tensor() const { return Tensor(values.data(), DType::f32, {size}); }
};

struct LayerWeights {
  NormWeight attention_norm, feed_forward_norm;  // [hidden]
  Matrix qkv;      // [(heads + 2 kv_heads) * dim, hidden]: q | k | v of this rank's heads
  Matrix o;        // [hidden, heads * dim]: this rank's columns
  Matrix gate_up;  // [2 ffn, hidden]: gate | up of this rank's units
  Matrix down;     // [hidden, ffn]: this rank's columns
};

struct Weights {
  std::shared_ptr<const Matrix> embedding;  // [vocab rows of this rank, hidden]; first stage
  std::vector<LayerWeights> layers;         // of this stage
  NormWeight final_norm;                    // last stage
  std::shared_ptr<const Matrix> head;       // last stage; the embedding itself where it is tied
  int64_t packed_bytes() const;
};

// Called now and then on the loading thread: how many parts of this rank's share (a layer, a table)
// are loaded, and of how many.
using LoadProgress = std::function<void(int64_t done, int64_t total)>;

// What a rank loads.
struct WeightShard {
  ModelUnits units;
  UnitRange attention, ffn, vocab;
  UnitRange layers;
  bool first_stage = true, last_stage = true;
};

// What decides the units of a model (parallel/units.h).
ModelShape shape_of(const Checkpoint& checkpoint);

// pp: the ranks of this tp index, by stage. A tied table is read by the first stage alone, which
// sends its packed shard to the last: no byte is read twice.
Result<std::unique_ptr<Weights>> load_weights(Checkpoint& checkpoint, const WeightShard& shard,
                                              Stream& stream, Communicator& pp,
                                              const LoadProgress& progress);

}  // namespace cohort
