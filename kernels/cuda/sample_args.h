// SPDX-License-Identifier: Apache-2.0
// What the sampler's host code and its kernels agree on.
#pragma once
#include <cuda_runtime_api.h>

#include <cstdint>

#include "kernels/cuda/sampled_row.h"

namespace cohort::cuda {

// A step's parameters in device memory: the rows, then their extras.
struct RowInput {
  double u;      // what is drawn, in [0, 1)
  int32_t slot;  // -1: nothing is to be done
  int32_t prompt_tokens, known;
  float scale;    // of logits, to exponents of two; negative: greedy
  int32_t top_k;  // 0: off
  float top_p, min_p;
  float lowest;  // exponent of two below which a token certainly weighs nothing
  float frequency, presence, repetition;
  int32_t logprobs;  // -1: none
  // Of its extras: logit_bias entries in their order, then tokens that cannot be drawn.
  int32_t first_extra, biases, masked;
};
static_assert(sizeof(RowInput) == 72);

struct Extra {
  int32_t token;
  float bias;
};

// Largest logit of a tile of a row, the lowest token that has it, and the largest magnitude's bits
// (above infinity's: something is NaN).
struct alignas(16) TileSummary {
  unsigned long long key;  // as order_key of sample_device.h
  uint32_t magnitude;
};

// Device addresses; passed to kernels by value. `rows` below: of the launch.
struct SampleArgs {
  const RowInput* inputs;  // [rows]
  const Extra* extras;
  float* logits;  // [rows, vocab]
  int32_t* table;
  int32_t positions;  // of a slot in the table
  int32_t vocab, tiles, blocks;
  TileSummary *raw, *adjusted;  // [rows, tiles]
  float* block_sums;            // [rows, blocks]
  double* log_sums;             // [rows] of the raw weights' sums
  float* bias_raw;  // [rows, kMostExtras] logits before their bias; NaN: an earlier entry has it
  // [rows, vocab], all 0 between steps. How often a penalised token occurs in the output, as bits
  // kMarked + n of a NaN; once it is penalised, its logit before that, -0 for 0.
  uint32_t* marks;
  SampledRow* out;  // [rows]
};

inline constexpr int kMostExtrasOfRow = 1024;
inline constexpr int kTile = 4096;
inline constexpr int kWeightBlock = 256;  // tokens whose weights are one leaf of the tree
// Nodes of the tree over a row's blocks.
inline int tree_nodes(int blocks) {
  int total = 0;
  for (int n = blocks; n > 0; n = n > 1 ? (n + 1) / 2 : 0) total += n;
  return total;
}
// The sums of a tree over the blocks must fit into shared memory beside the candidates.
inline constexpr int kMostVocab = 320 * 1024;

enum class Pick { greedy, draw, truncate };

// Enqueue for `rows` rows. In the order of a step:
cudaError_t launch_survey(cudaStream_t stream, const SampleArgs& args, int rows);
cudaError_t launch_raw_weights(cudaStream_t stream, const SampleArgs& args, int rows);
cudaError_t launch_top_logprobs(cudaStream_t stream, const SampleArgs& args, int rows);
cudaError_t launch_count(cudaStream_t stream, const SampleArgs& args, int rows);
cudaError_t launch_penalise(cudaStream_t stream, const SampleArgs& args, int rows);
cudaError_t launch_adjusted_survey(cudaStream_t stream, const SampleArgs& args, int rows);
cudaError_t launch_weights(cudaStream_t stream, const SampleArgs& args, int rows);
cudaError_t launch_pick(cudaStream_t stream, const SampleArgs& args, int rows, Pick pick);
cudaError_t launch_unmark(cudaStream_t stream, const SampleArgs& args, int rows);

}  // namespace cohort::cuda
