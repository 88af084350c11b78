// SPDX-License-Identifier: Apache-2.0
#include "tests/support/reference_model.h"

#include <algorithm>
#include <cmath>

#include "base/check.h"

namespace cohort::testing {
namespace {

using Row = std::vector<double>;
using Rows = std::vector<Row>;

Rows load(Checkpoint& checkpoint, const std::string& name) {
  const WeightInfo* weight = checkpoint.find(name);
  COHORT_CHECK_MSG(weight != nullptr, name);
  std::vector<std::byte> stored(size_t(weight->bytes()));
  const Status read = checkpoint.read(*weight, 0, weight->rows, 0, weight->columns, stored.data());
  COHORT_CHECK_MSG(read.ok(), read.to_string());
  std::vector<float> values(size_t(weight->rows * weight->columns));
  dequantize(weight->dtype, stored.data(), int64_t(values.size()), values.data());
  Rows rows;
  for (auto at = values.begin(); at != values.end(); at += weight->columns)
    rows.emplace_back(at, at + weight->columns);
  return rows;
}

Row multiply(const Rows& w, const Row& x) {
  Row y;
  for (const Row& row : w) {
    double sum = 0;
    for (size_t i = 0; i < x.size(); i++) sum += row[i] * x[i];
    y.push_back(sum);
  }
  return y;
}

Row rms_norm(const Row& x, const Row& weight, double eps) {
  double squares = 0;
  for (double v : x) squares += v * v;
  const double scale = 1 / std::sqrt(squares / double(x.size()) + eps);
  Row y(x.size());
  for (size_t i = 0; i < x.size(); i++) y[i] = x[i] * scale * weight[i];
  return y;
}

void add(Row& x, const Row& y) {
  for (size_t i = 0; i < x.size(); i++) x[i] += y[i];
}

void rotate(Row& heads, int64_t dim, int64_t position, const ModelConfig& config) {
  const std::vector<double> frequencies = rope_frequencies(config.rope);
  const size_t half = frequencies.size();
  for (size_t head = 0; head < heads.size(); head += size_t(dim))
    for (size_t i = 0; i < half; i++) {
      const bool pairs = config.rope.pairing == RopePairing::neighbours;
      double& a = heads[head + (pairs ? 2 * i : i)];
      double& b = heads[head + (pairs ? 2 * i + 1 : i + half)];
      const double angle = double(position) * frequencies[i];
      const double rotated = a * std::cos(angle) - b * std::sin(angle);
      b = a * std::sin(angle) + b * std::cos(angle);
      a = rotated;
    }
}

// The query head's weighted sum of values over positions 0 .. keys.size() - 1.
Row attend(const double* q, const Rows& keys, const Rows& values, size_t at, int64_t dim) {
  Row scores;
  for (const Row& key : keys) {
    double score = 0;
    for (int64_t d = 0; d < dim; d++) score += q[d] * key[at + size_t(d)];
    scores.push_back(score / std::sqrt(double(dim)));
  }
  const Row logarithms = log_softmax(scores);
  Row out(size_t(dim), 0);
  for (size_t t = 0; t < keys.size(); t++)
    for (int64_t d = 0; d < dim; d++)
      out[size_t(d)] += std::exp(logarithms[t]) * values[t][at + size_t(d)];
  return out;
}

class Layer {
 public:
  Layer(Checkpoint& checkpoint, int64_t n) : config_(checkpoint.config()) {
    const std::string name = concat("layers.", n, ".");
    attention_norm_ = load(checkpoint, name + "attention_norm")[0];
    q_ = load(checkpoint, name + "attention.q");
    k_ = load(checkpoint, name + "attention.k");
    v_ = load(checkpoint, name + "attention.v");
    o_ = load(checkpoint, name + "attention.o");
    feed_forward_norm_ = load(checkpoint, name + "feed_forward_norm")[0];
    gate_ = load(checkpoint, name + "feed_forward.gate");
    up_ = load(checkpoint, name + "feed_forward.up");
    down_ = load(checkpoint, name + "feed_forward.down");
  }

  void forward(Rows& x) const {
    Rows keys, values;
    for (size_t t = 0; t < x.size(); t++) {
      add(x[t], attention(rms_norm(x[t], attention_norm_, config_.norm_eps), keys, values));
      add(x[t], feed_forward(rms_norm(x[t], feed_forward_norm_, config_.norm_eps)));
    }
  }

 private:
  Row attention(const Row& h, Rows& keys, Rows& values) const {
    const int64_t position = int64_t(keys.size()), dim = config_.head_dim;
    Row q = multiply(q_, h), k = multiply(k_, h);
    rotate(q, dim, position, config_);
    rotate(k, dim, position, config_);
    keys.push_back(k);
    values.push_back(multiply(v_, h));
    Row mixed;
    for (int64_t head = 0; head < config_.heads; head++) {
      const int64_t kv_head = head / (config_.heads / config_.kv_heads);
      const Row out = attend(&q[size_t(head * dim)], keys, values, size_t(kv_head * dim), dim);
      mixed.insert(mixed.end(), out.begin(), out.end());
    }
    return multiply(o_, mixed);
  }

  Row feed_forward(const Row& h) const {
    Row gate = multiply(gate_, h);
    const Row up = multiply(up_, h);
    for (size_t i = 0; i < gate.size(); i++) gate[i] = gate[i] / (1 + std::exp(-gate[i])) * up[i];
    return multiply(down_, gate);
  }

  const ModelConfig& config_;
  Row attention_norm_, feed_forward_norm_;
  Rows q_, k_, v_, o_, gate_, up_, down_;
};

}  // namespace

std::vector<double> log_softmax(const std::vector<double>& logits) {
  const double most = *std::max_element(logits.begin(), logits.end());
  double sum = 0;
  for (double v : logits) sum += std::exp(v - most);
  std::vector<double> out;
  for (double v : logits) out.push_back(v - most - std::log(sum));
  return out;
}

std::vector<std::vector<double>> reference_logits(Checkpoint& checkpoint,
                                                  const std::vector<int32_t>& tokens) {
  const ModelConfig& config = checkpoint.config();
  const Rows table = load(checkpoint, "embedding");
  Rows x;
  for (int32_t token : tokens) x.push_back(table[size_t(token)]);
  for (int64_t n = 0; n < config.layers; n++) Layer(checkpoint, n).forward(x);
  const Row norm = load(checkpoint, "final_norm")[0];
  const Rows head = config.tied_embedding ? table : load(checkpoint, "head");
  Rows logits;
  for (const Row& row : x) logits.push_back(multiply(head, rms_norm(row, norm, config.norm_eps)));
  return logits;
}

}  // namespace cohort::testing
