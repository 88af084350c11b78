// SPDX-License-Identifier: Apache-2.0
// What a step of a model reads and computes, by the shapes and types of its weights.
#pragma once
#include <cstdint>

#include "kernels/activations.h"
#include "model/checkpoint.h"
#include "tools/bench/demand.h"

namespace cohort::bench {

struct WorkOptions {
  ActivationMode activations = ActivationMode::int8;
  DType kv_dtype = DType::f16;
  int tp = 1;
  bool choose_kv_dtype = false;  // then bf16 where that is how weights are multiplied
};

class ModelWork {
 public:
  ModelWork(const Checkpoint& checkpoint, const WorkOptions& options);

  // A step of one token each of `sequences`, which see `keys` positions: all weights once, of the
  // experts those that are expected to be chosen if all are equally likely, and the KV cache.
  // Embedding rows, norms and biases are left out: they are small.
  Demand decode(int64_t sequences, double keys) const;
  // A prompt of so many tokens, the last of which is sampled.
  Demand prefill(int64_t tokens) const;

  // Of all matrices as they lie in the memory of one rank that has everything.
  int64_t packed_bytes() const {
    return table_bytes_ + dense_.bytes + head_.bytes + experts_.bytes;
  }

 private:
  // Some of the matrices: what a token that passes through all of them needs.
  struct Sum {
    int64_t bytes = 0;  // packed
    double int8_operations = 0, bf16_operations = 0, fma_operations = 0;
    void add(DType dtype, int64_t rows, int64_t columns, ActivationMode mode);
  };
  void add(const WeightInfo& weight);
  void add_latent(const WeightInfo& weight);
  double expert_share() const;                     // of a layer's experts, that a token has
  double cache_bytes(double keys) const;           // of the keys and values of one sequence
  double attention_operations(double keys) const;  // of one token
  bool attention_is_bf16() const;
  Demand operations(double tokens, double sampled, double keys) const;

  const ModelConfig config_;
  const WorkOptions options_;
  int kv_heads_ = 0;         // of all ranks: a KV head counts once for each that has it
  int64_t table_bytes_ = 0;  // of an embedding table that is not the head too
  Sum dense_, head_, experts_;
};

}  // namespace cohort::bench
