// SPDX-License-Identifier: Apache-2.0
#include "tools/gpu_check/random_checkpoint.h"

#include <cmath>
#include <cstring>

#include "tests/support/tiny_checkpoint.h"
#include "tools/gpu_check/arrays.h"

namespace cohort::gpu_check {

ModelConfig llama_8b() {
  return {.family = "llama",
          .name = "random 8B",
          .hidden = 4096,
          .layers = 32,
          .heads = 32,
          .kv_heads = 8,
          .head_dim = 128,
          .ffn = 14336,
          .vocab = 128256,
          .context = 8448,
          .norm_eps = 1e-5,
          .tied_embedding = false,
          .rope = {.pairing = RopePairing::halves, .dims = 128, .theta = 500000}};
}

ModelConfig small_llama() {
  return {.family = "llama",
          .name = "random small",
          .hidden = 256,
          .layers = 4,
          .heads = 8,
          .kv_heads = 4,
          .head_dim = 64,
          .ffn = 512,
          .vocab = 1000,
          .context = 512,
          .norm_eps = 1e-5,
          .tied_embedding = false,
          .rope = {.pairing = RopePairing::halves, .dims = 64, .theta = 500000}};
}

RandomCheckpoint::RandomCheckpoint(const ModelConfig& config, DType matrices) : config_(config) {
  const ModelConfig& c = config_;
  const int64_t q = c.heads * c.head_dim, kv = c.kv_heads * c.head_dim;
  add("embedding", matrices, c.vocab, c.hidden);
  for (int64_t n = 0; n < c.layers; n++) {
    const std::string layer = concat("layers.", n, ".");
    add(layer + "attention_norm", DType::f32, 1, c.hidden);
    add(layer + "attention.q", matrices, q, c.hidden);
    add(layer + "attention.k", matrices, kv, c.hidden);
    add(layer + "attention.v", matrices, kv, c.hidden);
    add(layer + "attention.o", matrices, c.hidden, q);
    add(layer + "feed_forward_norm", DType::f32, 1, c.hidden);
    add(layer + "feed_forward.gate", matrices, c.ffn, c.hidden);
    add(layer + "feed_forward.up", matrices, c.ffn, c.hidden);
    add(layer + "feed_forward.down", matrices, c.hidden, c.ffn);
  }
  add("final_norm", DType::f32, 1, c.hidden);
  add("head", matrices, c.vocab, c.hidden);
  fingerprint_ = concat("random-", c.name, "-", int(matrices));
}

// Matrices spread so that activations stay near 1; norms are near 1 themselves.
void RandomCheckpoint::add(const std::string& name, DType dtype, int64_t rows, int64_t columns) {
  weights_.push_back({name, name, dtype, rows, columns});
  std::vector<std::byte>& stored = rows_[{dtype, columns}];
  if (!stored.empty()) return;
  const bool norm = dtype == DType::f32 && rows == 1;
  const float spread = norm ? 0.1f : 1.7f / std::sqrt(float(columns)), mean = norm ? 1 : 0;
  std::vector<float> values(size_t(kDistinct * columns));
  uint32_t state = uint32_t(columns) * 2654435761u + 1;
  for (float& x : values) {
    state = state * 1664525u + 1013904223u;
    x = mean + spread * (float(state >> 8) * 0x1p-23f - 1);
  }
  stored = is_quantized(dtype) ? testing::quantize(dtype, values) : encode(dtype, values);
}

Status RandomCheckpoint::read(const WeightInfo& weight, int64_t row_begin, int64_t row_end,
                              int64_t column_begin, int64_t column_end, std::byte* out) {
  const std::vector<std::byte>& stored = rows_.at({weight.dtype, weight.columns});
  const int64_t bytes = bytes_of(weight.dtype, column_end - column_begin);
  const int64_t first = &weight - weights_.data();  // so that matrices differ
  for (int64_t row = row_begin; row < row_end; row++, out += bytes) {
    const int64_t at = (row + first) % kDistinct * weight.columns + column_begin;
    std::memcpy(out, stored.data() + bytes_of(weight.dtype, at), size_t(bytes));
  }
  bytes_read_ += bytes * (row_end - row_begin);
  return {};
}

int64_t RandomCheckpoint::total_weight_bytes() const {
  int64_t bytes = 0;
  for (const WeightInfo& weight : weights_) bytes += weight.bytes();
  return bytes;
}

Result<std::unique_ptr<Tokenizer>> RandomCheckpoint::tokenizer() const {
  return unimplemented("random weights have no tokenizer");
}

}  // namespace cohort::gpu_check
