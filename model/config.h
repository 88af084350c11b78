// SPDX-License-Identifier: Apache-2.0
// What a model is: shapes and constants, independent of the file format. A plain value.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace cohort {

// How the two numbers that a rotation turns are paired: neighbours (2i, 2i+1), as GGUF's permuted
// Llama weights want it, or halves (i, i + dim/2), as Hugging Face's checkpoints do.
enum class RopePairing { neighbours, halves };

struct RopeConfig {
  RopePairing pairing = RopePairing::halves;
  int dims = 0;  // leading dimensions of a head that are rotated
  double theta = 10000;
  // Llama 3's scaling (transformers' modeling_rope_utils `llama3`); absent: none.
  struct Llama3 {
    double factor = 8, low_freq_factor = 1, high_freq_factor = 4;
    int64_t original_context = 8192;
    friend bool operator==(const Llama3&, const Llama3&) = default;
  };
  std::optional<Llama3> llama3 = {};
  double linear_factor = 1;  // positions are divided by it
  // GGUF stores the result of a scaling as divisors of the frequencies (tensor rope_freqs); empty:
  // none. [dims / 2]
  std::vector<float> frequency_divisors = {};
  friend bool operator==(const RopeConfig&, const RopeConfig&) = default;
};

struct ModelConfig {
  std::string family;  // "llama"
  std::string name;    // for people
  int64_t hidden = 0;  // width of the residual stream
  int64_t layers = 0;
  int64_t heads = 0;     // query heads
  int64_t kv_heads = 0;  // divides heads
  int64_t head_dim = 0;
  int64_t ffn = 0;  // width of the feed-forward
  int64_t vocab = 0;
  int64_t context = 0;  // positions that the model was made for
  double norm_eps = 1e-5;
  bool tied_embedding = false;  // the head is the embedding table
  RopeConfig rope;
  friend bool operator==(const ModelConfig&, const ModelConfig&) = default;
};

// The `frequencies` [dims / 2] of the rotation, scaling applied: angle = position * frequency.
std::vector<double> rope_frequencies(const RopeConfig& rope);

}  // namespace cohort
