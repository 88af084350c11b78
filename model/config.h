// SPDX-License-Identifier: Apache-2.0
// What a model is: shapes and constants, independent of the file format. A plain value.
#pragma once
#include <algorithm>
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
  // YaRN (arXiv 2309.00071; transformers' modeling_rope_utils `yarn`); absent: none.
  struct Yarn {
    double factor = 1;
    int64_t original_context = 4096;
    double beta_fast = 32, beta_slow = 1;
    bool truncate = true;         // correction range rounded to whole dimensions
    double attention_factor = 1;  // cosines and sines are multiplied by it
    friend bool operator==(const Yarn&, const Yarn&) = default;
  };
  std::optional<Yarn> yarn = {};
  double linear_factor = 1;  // positions are divided by it
  // GGUF stores the result of a scaling as divisors of the frequencies (tensor rope_freqs); empty:
  // none. [dims / 2]
  std::vector<float> frequency_divisors = {};
  friend bool operator==(const RopeConfig&, const RopeConfig&) = default;
};

// A mixture of experts in place of the feed-forward.
struct ExpertsConfig {
  int64_t count = 0;         // routed experts of a layer; 0: the model has none
  int64_t per_token = 0;     // of them, chosen for each token
  int64_t ffn = 0;           // width of one
  int64_t shared_ffn = 0;    // width of the expert that every token has; 0: none
  bool shared_gate = false;  // its output is multiplied by sigmoid(shared_gate . h)
  // How router logits become scores, and the chosen scores weights.
  enum class Score { softmax, sigmoid };
  Score score = Score::softmax;  // softmax: over all experts
  bool choice_bias = false;      // a bias per expert is added to the scores, for the choice alone
  // The experts are cut into so many groups, and only those of the best groups can be chosen.
  int64_t groups = 1, groups_per_token = 1;
  enum class GroupScore { largest, two_largest };  // of its experts (their sum)
  GroupScore group_score = GroupScore::largest;
  bool normalise = false;             // chosen weights are divided by their sum
  double scale = 1;                   // and multiplied by this
  std::vector<int64_t> dense_layers;  // ascending: layers with a plain feed-forward instead

  bool in_layer(int64_t layer) const {
    return count > 0 && !std::binary_search(dense_layers.begin(), dense_layers.end(), layer);
  }
  friend bool operator==(const ExpertsConfig&, const ExpertsConfig&) = default;
};

// Multi-head latent attention (DeepSeek-V2, arXiv 2405.04434 section 2.1): keys and values of all
// heads are made from one latent row per token, which is what the cache holds, and one rotated key
// that all heads share.
struct LatentConfig {
  int64_t q_rank = 0;     // width of the latent queries; 0: queries come from h directly
  int64_t kv_rank = 0;    // width of the latent row; 0: the model has plain attention
  int64_t nope_dim = 0;   // of a head, not rotated
  int64_t rope_dim = 0;   // of a head, rotated
  int64_t value_dim = 0;  // of a head
  friend bool operator==(const LatentConfig&, const LatentConfig&) = default;
};

// What is normed of queries and keys before their rotation: each head alone (Qwen3), or all heads
// of the model as one row (OLMoE).
enum class QueryKeyNorm { none, heads, rows };

struct ModelConfig {
  std::string family;  // "llama"
  std::string name;    // for people
  int64_t hidden = 0;  // width of the residual stream
  int64_t layers = 0;
  int64_t heads = 0;     // query heads
  int64_t kv_heads = 0;  // divides heads
  int64_t head_dim = 0;
  int64_t ffn = 0;  // width of the feed-forward; 0: every layer has experts
  int64_t vocab = 0;
  int64_t context = 0;  // positions that the model was made for
  double norm_eps = 1e-5;
  bool tied_embedding = false;  // the head is the embedding table
  bool qkv_bias = false;
  QueryKeyNorm query_key_norm = QueryKeyNorm::none;
  double score_scale = 0;  // of attention's scores; 0: 1 / sqrt(head_dim)
  ExpertsConfig experts = {};
  LatentConfig latent = {};  // with it kv_heads is heads and head_dim is nope_dim + rope_dim
  int64_t draft_layers = 0;  // stored behind `layers`, for guessing further tokens; never used
  RopeConfig rope;
  friend bool operator==(const ModelConfig&, const ModelConfig&) = default;
};

// The `frequencies` [dims / 2] of the rotation, scaling applied: angle = position * frequency.
std::vector<double> rope_frequencies(const RopeConfig& rope);

}  // namespace cohort
