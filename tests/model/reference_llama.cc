// SPDX-License-Identifier: Apache-2.0
#include "tests/model/reference_llama.h"

#include <algorithm>
#include <cmath>
#include <stdexcept>

namespace cohort {
namespace {

using Values = std::vector<double>;

struct Matrix {
  int64_t rows = 0, columns = 0;
  std::vector<float> data;
};

Matrix load(Checkpoint& checkpoint, const std::string& name) {
  const WeightInfo* weight = checkpoint.find(name);
  if (!weight) throw std::runtime_error("no weight " + name);
  std::vector<std::byte> bytes(size_t(weight->bytes()));
  const Status status = checkpoint.read(*weight, 0, weight->rows, 0, weight->columns, bytes.data());
  if (!status.ok()) throw std::runtime_error(status.to_string());
  Matrix m{weight->rows, weight->columns,
           std::vector<float>(size_t(weight->rows * weight->columns))};
  dequantize(weight->dtype, bytes.data(), m.rows * m.columns, m.data.data());
  return m;
}

// x [tokens, columns] -> [tokens, rows]
Values multiply(const Matrix& m, const Values& x) {
  const int64_t tokens = int64_t(x.size()) / m.columns;
  Values y(size_t(tokens * m.rows));
  for (int64_t t = 0; t < tokens; t++)
    for (int64_t r = 0; r < m.rows; r++) {
      double sum = 0;
      for (int64_t c = 0; c < m.columns; c++)
        sum += double(m.data[size_t(r * m.columns + c)]) * x[size_t(t * m.columns + c)];
      y[size_t(t * m.rows + r)] = sum;
    }
  return y;
}

Values normed(const Matrix& weight, const Values& x, double eps) {
  const size_t n = size_t(weight.columns);
  Values y(x.size());
  for (size_t at = 0; at < x.size(); at += n) {
    double squares = 0;
    for (size_t i = 0; i < n; i++) squares += x[at + i] * x[at + i];
    const double scale = 1 / std::sqrt(squares / double(n) + eps);
    for (size_t i = 0; i < n; i++) y[at + i] = x[at + i] * scale * double(weight.data[i]);
  }
  return y;
}

// x [tokens, heads * head_dim], in place
void rotate(const ModelConfig& config, Values& x, int64_t heads) {
  const std::vector<double> frequencies = rope_frequencies(config.rope);
  const size_t pairs = frequencies.size(), dim = size_t(config.head_dim);
  const bool halves = config.rope.pairing == RopePairing::halves;
  for (size_t head = 0; head < x.size() / dim; head++)
    for (size_t i = 0; i < pairs; i++) {
      const double angle = double(head / size_t(heads)) * frequencies[i];
      double& a = x[head * dim + (halves ? i : 2 * i)];
      double& b = x[head * dim + (halves ? i + pairs : 2 * i + 1)];
      const double turned = a * std::cos(angle) - b * std::sin(angle);
      b = a * std::sin(angle) + b * std::cos(angle);
      a = turned;
    }
}

Values attend(const ModelConfig& c, const Values& q, const Values& k, const Values& v) {
  const size_t dim = size_t(c.head_dim), heads = size_t(c.heads), kv_heads = size_t(c.kv_heads);
  const size_t tokens = q.size() / (heads * dim);
  Values out(q.size());
  for (size_t t = 0; t < tokens; t++)
    for (size_t h = 0; h < heads; h++) {
      const size_t kv = h / (heads / kv_heads), at = (t * heads + h) * dim;
      Values score(t + 1);
      for (size_t s = 0; s <= t; s++)
        for (size_t i = 0; i < dim; i++)
          score[s] += q[at + i] * k[(s * kv_heads + kv) * dim + i] / std::sqrt(double(dim));
      const double most = *std::max_element(score.begin(), score.end());
      double total = 0;
      for (double& x : score) total += x = std::exp(x - most);
      for (size_t s = 0; s <= t; s++)
        for (size_t i = 0; i < dim; i++)
          out[at + i] += score[s] / total * v[(s * kv_heads + kv) * dim + i];
    }
  return out;
}

void add(Values& x, const Values& y) {
  for (size_t i = 0; i < x.size(); i++) x[i] += y[i];
}

void run_layer(Checkpoint& checkpoint, const std::string& prefix, Values& x) {
  const ModelConfig& c = checkpoint.config();
  const auto weight = [&](const char* name) { return load(checkpoint, prefix + name); };
  Values h = normed(weight("attention_norm"), x, c.norm_eps);
  Values q = multiply(weight("attention.q"), h), k = multiply(weight("attention.k"), h);
  rotate(c, q, c.heads);
  rotate(c, k, c.kv_heads);
  add(x, multiply(weight("attention.o"), attend(c, q, k, multiply(weight("attention.v"), h))));
  h = normed(weight("feed_forward_norm"), x, c.norm_eps);
  Values gate = multiply(weight("feed_forward.gate"), h);
  const Values up = multiply(weight("feed_forward.up"), h);
  for (size_t i = 0; i < gate.size(); i++) gate[i] *= up[i] / (1 + std::exp(-gate[i]));
  add(x, multiply(weight("feed_forward.down"), gate));
}

}  // namespace

std::vector<double> reference_logits(Checkpoint& checkpoint, std::span<const int> tokens) {
  const ModelConfig& config = checkpoint.config();
  const Matrix embedding = load(checkpoint, "embedding");
  Values x;
  for (const int token : tokens) {
    const float* row = embedding.data.data() + token * config.hidden;
    x.insert(x.end(), row, row + config.hidden);
  }
  for (int64_t layer = 0; layer < config.layers; layer++)
    run_layer(checkpoint, concat("layers.", layer, "."), x);
  const Values h = normed(load(checkpoint, "final_norm"), x, config.norm_eps);
  return multiply(config.tied_embedding ? embedding : load(checkpoint, "head"), h);
}

}  // namespace cohort
