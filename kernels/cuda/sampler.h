// SPDX-License-Identifier: Apache-2.0
// From logits to tokens on the GPU, by the rules of kernels/sampling.h and docs/arithmetic.md
// section 6: for the same logits, the same token as the CPU's sampler. Parameters of a step are
// written on the host into one block of bytes that is copied to the device in one piece.
#pragma once
#include <cstddef>
#include <cstdint>
#include <span>

#include "kernels/cuda/sampled_row.h"
#include "kernels/cuda/tokens.h"
#include "kernels/sampling.h"

namespace cohort::cuda {

// One row to sample. Its tokens are in the table: prompt at [0, prompt_tokens), output at
// [prompt_tokens, known). The sampled token is written to position `known`.
struct SamplerRow {
  const SamplingParams* params = nullptr;
  int32_t slot = 0, prompt_tokens = 0, known = 0;
};

SampledToken to_sampled_token(const SampledRow& row);

// Which kernels a step needs: part of what a captured step is chosen by.
struct SamplerFeatures {
  bool adjust = false;    // some row has a bias, a penalty or min_tokens
  bool draw = false;      // some row has a temperature
  bool truncate = false;  // some row has top_k or top_p
  bool logprobs = false;  // some row wants log-probabilities
  friend bool operator==(const SamplerFeatures&, const SamplerFeatures&) = default;
};
SamplerFeatures features_of(std::span<const SamplerRow> rows);

class Sampler {
 public:
  // Takes all memory that it will need. Borrows the table.
  Sampler(Stream& stream, const TokenTable& table, int32_t max_rows, int64_t vocab);

  // Of a step's parameters at most. A row's logit_bias and end_tokens must fit kMostExtras
  // together; rows that have more are refused when a request is read.
  static constexpr int kMostExtras = 1024;
  size_t input_bytes() const;
  // Writes the parameters of `rows`, padded to `launched` rows that do nothing. Returns how many
  // bytes are used.
  size_t fill(std::byte* host, std::span<const SamplerRow> rows, int64_t launched) const;

  // logits f32 [launched, vocab] (overwritten), inputs: the filled block in device memory, out:
  // [launched] in device memory. Enqueues only.
  void enqueue(Stream& stream, const SamplerFeatures& features, Tensor logits,
               const std::byte* inputs, SampledRow* out);

 private:
  const TokenTable& table_;
  int32_t max_rows_;
  int64_t vocab_;
  Buffer workspace_;
};

}  // namespace cohort::cuda
