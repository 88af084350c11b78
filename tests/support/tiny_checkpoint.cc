// SPDX-License-Identifier: Apache-2.0
#include "tests/support/tiny_checkpoint.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "base/check.h"
#include "base/half.h"

namespace cohort::testing {
namespace {

constexpr int kBlock = 32;

void put(std::vector<std::byte>& out, uint16_t bits) {
  out.push_back(std::byte(bits & 255));
  out.push_back(std::byte(bits >> 8));
}

void put_half(std::vector<std::byte>& out, float value) { put(out, float_to_half(value)); }

void quantize_q8_0(const float* x, std::vector<std::byte>& out) {
  float largest = 0;
  for (int i = 0; i < kBlock; i++) largest = std::max(largest, std::abs(x[i]));
  const float scale = largest / 127;
  put_half(out, scale);
  for (int i = 0; i < kBlock; i++)
    out.push_back(std::byte(int8_t(scale > 0 ? std::lrint(x[i] / scale) : 0)));
}

void put_nibbles(const int (&q)[kBlock], std::vector<std::byte>& out) {
  for (int i = 0; i < kBlock / 2; i++) out.push_back(std::byte(q[i] | q[i + kBlock / 2] << 4));
}

void quantize_q4_0(const float* x, std::vector<std::byte>& out) {
  const float largest =
      *std::max_element(x, x + kBlock, [](float a, float b) { return std::abs(a) < std::abs(b); });
  const float scale = largest / -8;
  put_half(out, scale);
  int q[kBlock];
  for (int i = 0; i < kBlock; i++)
    q[i] = scale == 0 ? 8 : std::clamp(int(std::lrint(x[i] / scale)) + 8, 0, 15);
  put_nibbles(q, out);
}

void quantize_q4_1(const float* x, std::vector<std::byte>& out) {
  const auto [least, most] = std::minmax_element(x, x + kBlock);
  const float scale = (*most - *least) / 15;
  put_half(out, scale);
  put_half(out, *least);
  int q[kBlock];
  for (int i = 0; i < kBlock; i++)
    q[i] = scale == 0 ? 0 : std::clamp(int(std::lrint((x[i] - *least) / scale)), 0, 15);
  put_nibbles(q, out);
}

}  // namespace

std::vector<std::byte> quantize(DType dtype, const std::vector<float>& values) {
  std::vector<std::byte> out;
  if (dtype == DType::f32) {
    out.resize(values.size() * sizeof(float));
    std::memcpy(out.data(), values.data(), out.size());
    return out;
  }
  if (dtype == DType::bf16) {
    for (const float value : values) put(out, float_to_bf16(value));
    return out;
  }
  for (size_t at = 0; at < values.size(); at += kBlock) {
    if (dtype == DType::q8_0)
      quantize_q8_0(&values[at], out);
    else if (dtype == DType::q4_0)
      quantize_q4_0(&values[at], out);
    else if (dtype == DType::q4_1)
      quantize_q4_1(&values[at], out);
    else
      COHORT_CHECK_MSG(false, "no quantiser for this dtype");
  }
  return out;
}

TinyModel tiny_model(DType matrices, bool tied) {
  TinyModel model;
  model.matrices = matrices;
  model.config = {.family = "llama",
                  .name = "tiny",
                  .hidden = 96,
                  .layers = 3,
                  .heads = 9,
                  .kv_heads = 3,
                  .head_dim = 32,
                  .ffn = 160,
                  .vocab = 203,
                  .context = 512,
                  .norm_eps = 1e-5,
                  .tied_embedding = tied,
                  .rope = {.pairing = RopePairing::halves, .dims = 32, .theta = 10000}};
  return model;
}

TinyCheckpoint::TinyCheckpoint(const TinyModel& model) : model_(model), random_(model.seed) {
  const ModelConfig& c = model_.config;
  const DType dtype = model.matrices;
  // Spreads that keep activations near 1 and let logits differ clearly.
  const float in = 1.0f / std::sqrt(float(c.hidden));
  const int64_t q = c.heads * c.head_dim, kv = c.kv_heads * c.head_dim;
  add("embedding", dtype, c.vocab, c.hidden, 0.4f, 0);
  for (int64_t n = 0; n < c.layers; n++) {
    const std::string layer = concat("layers.", n, ".");
    add(layer + "attention_norm", DType::f32, 1, c.hidden, 0.2f, 1);
    add(layer + "attention.q", dtype, q, c.hidden, 2 * in, 0);
    add(layer + "attention.k", dtype, kv, c.hidden, 2 * in, 0);
    add(layer + "attention.v", dtype, kv, c.hidden, 2 * in, 0);
    add(layer + "attention.o", dtype, c.hidden, q, 1.0f / std::sqrt(float(q)), 0);
    add(layer + "feed_forward_norm", DType::f32, 1, c.hidden, 0.2f, 1);
    add(layer + "feed_forward.gate", dtype, c.ffn, c.hidden, 2 * in, 0);
    add(layer + "feed_forward.up", dtype, c.ffn, c.hidden, 2 * in, 0);
    add(layer + "feed_forward.down", dtype, c.hidden, c.ffn, 1.0f / std::sqrt(float(c.ffn)), 0);
  }
  add("final_norm", DType::f32, 1, c.hidden, 0.2f, 1);
  if (!c.tied_embedding) add("head", dtype, c.vocab, c.hidden, 0.4f, 0);
  fingerprint_ = concat("tiny-", int(dtype), "-", model.seed, "-", c.tied_embedding);
}

// Uniform in mean +- spread (a linear congruential generator: Knuth's MMIX constants).
void TinyCheckpoint::add(const std::string& name, DType dtype, int64_t rows, int64_t columns,
                         float spread, float mean) {
  std::vector<float> values(size_t(rows * columns));
  for (float& v : values) {
    random_ = random_ * 6364136223846793005u + 1442695040888963407u;
    v = mean + spread * (float(random_ >> 40) * 0x1p-23f - 1);
  }
  weights_.push_back({name, name, dtype, rows, columns});
  data_.push_back(quantize(dtype, values));
}

void TinyCheckpoint::set(const std::string& name, const std::vector<float>& values) {
  for (size_t i = 0; i < weights_.size(); i++)
    if (weights_[i].name == name) {
      COHORT_CHECK_EQ(int64_t(values.size()), weights_[i].rows * weights_[i].columns);
      data_[i] = quantize(weights_[i].dtype, values);
    }
}

Status TinyCheckpoint::read(const WeightInfo& weight, int64_t row_begin, int64_t row_end,
                            int64_t column_begin, int64_t column_end, std::byte* out) {
  const std::vector<std::byte>& data = data_[size_t(&weight - weights_.data())];
  const int64_t bytes = bytes_of(weight.dtype, column_end - column_begin);
  for (int64_t row = row_begin; row < row_end; row++, out += bytes)
    std::memcpy(out, data.data() + bytes_of(weight.dtype, row * weight.columns + column_begin),
                size_t(bytes));
  bytes_read_ += bytes * (row_end - row_begin);
  return {};
}

int64_t TinyCheckpoint::total_weight_bytes() const {
  int64_t bytes = 0;
  for (const WeightInfo& weight : weights_) bytes += weight.bytes();
  return bytes;
}

Result<std::unique_ptr<Tokenizer>> TinyCheckpoint::tokenizer() const {
  return unimplemented("a tiny model has no tokenizer");
}

}  // namespace cohort::testing
