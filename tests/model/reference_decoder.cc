// SPDX-License-Identifier: Apache-2.0
#include "tests/model/reference_decoder.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <numeric>
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

// x [tokens, stride], in place: of every row, `heads` heads of `dim` numbers from `first` on, whose
// rotated numbers begin at `skip`.
struct Heads {
  size_t stride, first, heads, dim, skip;
};
void rotate(const ModelConfig& config, Values& x, const Heads& in) {
  const std::vector<double> frequencies = rope_frequencies(config.rope);
  const size_t pairs = frequencies.size();
  const bool halves = config.rope.pairing == RopePairing::halves;
  const double size = config.rope.yarn ? config.rope.yarn->attention_factor : 1;
  for (size_t t = 0; t < x.size() / in.stride; t++)
    for (size_t head = 0; head < in.heads; head++)
      for (size_t i = 0; i < pairs; i++) {
        const double angle = double(t) * frequencies[i];
        const size_t at = t * in.stride + in.first + head * in.dim + in.skip;
        double& a = x[at + (halves ? i : 2 * i)];
        double& b = x[at + (halves ? i + pairs : 2 * i + 1)];
        const double turned = a * std::cos(angle) - b * std::sin(angle);
        b = (a * std::sin(angle) + b * std::cos(angle)) * size;
        a = turned * size;
      }
}

// q [tokens, heads * dim], k [tokens, kv_heads * dim], v [tokens, kv_heads * v_dim]
Values attend(const ModelConfig& c, size_t v_dim, const Values& q, const Values& k,
              const Values& v) {
  const size_t dim = size_t(c.head_dim), heads = size_t(c.heads), kv_heads = size_t(c.kv_heads);
  const size_t tokens = q.size() / (heads * dim);
  const double scale = c.score_scale != 0 ? c.score_scale : 1 / std::sqrt(double(dim));
  Values out(tokens * heads * v_dim);
  for (size_t t = 0; t < tokens; t++)
    for (size_t h = 0; h < heads; h++) {
      const size_t kv = h / (heads / kv_heads), at = (t * heads + h) * dim;
      Values score(t + 1);
      for (size_t s = 0; s <= t; s++)
        for (size_t i = 0; i < dim; i++)
          score[s] += q[at + i] * k[(s * kv_heads + kv) * dim + i] * scale;
      const double most = *std::max_element(score.begin(), score.end());
      double total = 0;
      for (double& x : score) total += x = std::exp(x - most);
      for (size_t s = 0; s <= t; s++)
        for (size_t i = 0; i < v_dim; i++)
          out[(t * heads + h) * v_dim + i] += score[s] / total * v[(s * kv_heads + kv) * v_dim + i];
    }
  return out;
}

void add(Values& x, const Values& y) {
  for (size_t i = 0; i < x.size(); i++) x[i] += y[i];
}

void add_row(Values& x, const Matrix& row) {
  for (size_t i = 0; i < x.size(); i++) x[i] += double(row.data[i % size_t(row.columns)]);
}

double sigmoid(double x) { return 1 / (1 + std::exp(-x)); }

// The weights of one layer.
class Layer {
 public:
  Layer(Checkpoint& checkpoint, int64_t number)
      : checkpoint_(checkpoint), number_(number), prefix_(concat("layers.", number, ".")) {}

  void run(Values& x) {
    const ModelConfig& c = checkpoint_.config();
    const Values h = normed(weight("attention_norm"), x, c.norm_eps);
    add(x, multiply(weight("attention.o"), c.latent.kv_rank > 0 ? latent(h) : plain(h)));
    const Values f = normed(weight("feed_forward_norm"), x, c.norm_eps);
    add(x, c.experts.in_layer(number_) ? experts(f) : feed_forward("feed_forward", f));
  }

 private:
  Matrix weight(const std::string& name) { return load(checkpoint_, prefix_ + name); }

  Values projected(const std::string& name, const Values& h) {
    const ModelConfig& c = checkpoint_.config();
    Values x = multiply(weight("attention." + name), h);
    if (c.qkv_bias) add_row(x, weight("attention." + name + "_bias"));
    // normed() takes rows of the weight's width: one head, or all of them.
    if (c.query_key_norm != QueryKeyNorm::none && name != "v")
      x = normed(weight("attention." + name + "_norm"), x, c.norm_eps);
    return x;
  }

  Values plain(const Values& h) {
    const ModelConfig& c = checkpoint_.config();
    const size_t dim = size_t(c.head_dim), heads = size_t(c.heads), kv = size_t(c.kv_heads);
    Values q = projected("q", h), k = projected("k", h);
    rotate(c, q, {heads * dim, 0, heads, dim, 0});
    rotate(c, k, {kv * dim, 0, kv, dim, 0});
    return attend(c, dim, q, k, projected("v", h));
  }

  // Keys and values of all heads are made from the latent rows, as the paper has it.
  Values latent(const Values& h) {
    const ModelConfig& c = checkpoint_.config();
    const size_t heads = size_t(c.heads), nope = size_t(c.latent.nope_dim);
    const size_t rope = size_t(c.latent.rope_dim), value = size_t(c.latent.value_dim);
    const size_t dim = nope + rope, rank = size_t(c.latent.kv_rank), wide = rank + rope;
    Values q = c.latent.q_rank == 0
                   ? multiply(weight("attention.q"), h)
                   : multiply(weight("attention.q_up"),
                              normed(weight("attention.q_down_norm"),
                                     multiply(weight("attention.q_down"), h), c.norm_eps));
    Values down = multiply(weight("attention.kv_down"), h), rows, k, v;
    const size_t tokens = down.size() / wide;
    rotate(c, q, {heads * dim, 0, heads, dim, nope});
    rotate(c, down, {wide, rank, 1, rope, 0});
    for (size_t t = 0; t < tokens; t++)
      rows.insert(rows.end(), &down[t * wide], &down[t * wide] + rank);
    const Values up = multiply(weight("attention.kv_up"),
                               normed(weight("attention.kv_down_norm"), rows, c.norm_eps));
    for (size_t t = 0; t < tokens; t++)
      for (size_t head = 0; head < heads; head++) {
        const double* made = &up[(t * heads + head) * (nope + value)];
        const double* turned = &down[t * wide + rank];
        k.insert(k.end(), made, made + nope);
        k.insert(k.end(), turned, turned + rope);
        v.insert(v.end(), made + nope, made + nope + value);
      }
    return attend(c, value, q, k, v);
  }

  Values feed_forward(const std::string& name, const Values& h) {
    Values gate = multiply(weight(name + ".gate"), h);
    const Values up = multiply(weight(name + ".up"), h);
    for (size_t i = 0; i < gate.size(); i++) gate[i] *= up[i] * sigmoid(gate[i]);
    return multiply(weight(name + ".down"), gate);
  }

  Values experts(const Values& h) {
    const ModelConfig& c = checkpoint_.config();
    const size_t hidden = size_t(c.hidden), count = size_t(c.experts.count);
    const Values logits = multiply(weight("router"), h);
    Values y(h.size());
    for (size_t t = 0; t < h.size() / hidden; t++) {
      const Values row(&h[t * hidden], &h[t * hidden] + hidden);
      for (const auto& [expert, share] : chosen({&logits[t * count], &logits[t * count] + count})) {
        const Values out = feed_forward(concat("experts.", expert), row);
        for (size_t i = 0; i < hidden; i++) y[t * hidden + i] += share * out[i];
      }
    }
    if (c.experts.shared_ffn == 0) return y;
    Values shared = feed_forward("shared_expert", h);
    if (c.experts.shared_gate) {
      const Values gate = multiply(weight("shared_gate"), h);
      for (size_t i = 0; i < shared.size(); i++) shared[i] *= sigmoid(gate[i / hidden]);
    }
    add(y, shared);
    return y;
  }

  // The sum of the n largest values.
  static double largest(Values values, size_t n) {
    std::sort(values.rbegin(), values.rend());
    return std::accumulate(values.begin(), values.begin() + int64_t(std::min(n, values.size())),
                           0.0);
  }

  // Indices of the n largest values.
  static std::vector<size_t> best(const Values& values, size_t n) {
    std::vector<size_t> order(values.size());
    std::iota(order.begin(), order.end(), size_t(0));
    std::stable_sort(order.begin(), order.end(),
                     [&](size_t a, size_t b) { return values[a] > values[b]; });
    order.resize(n);
    return order;
  }

  // expert -> what its output is multiplied by
  std::map<size_t, double> chosen(const Values& logits) {
    const ExpertsConfig& e = checkpoint_.config().experts;
    Values scores = logits;
    double total = 0;
    for (const double x : logits) total += std::exp(x);
    for (double& x : scores)
      x = e.score == ExpertsConfig::Score::sigmoid ? sigmoid(x) : std::exp(x) / total;
    Values choice = scores;
    if (e.choice_bias) add_row(choice, weight("router_bias"));
    const size_t group = choice.size() / size_t(e.groups);
    const size_t of_group = e.group_score == ExpertsConfig::GroupScore::largest ? 1 : 2;
    Values groups;
    for (size_t at = 0; at < choice.size(); at += group)
      groups.push_back(largest({&choice[at], &choice[at] + group}, of_group));
    Values open(choice.size(), -std::numeric_limits<double>::infinity());
    for (const size_t g : best(groups, size_t(e.groups_per_token)))
      for (size_t i = g * group; i < (g + 1) * group; i++) open[i] = choice[i];
    std::map<size_t, double> shares;
    double sum = 0;
    for (const size_t expert : best(open, size_t(e.per_token)))
      sum += shares[expert] = scores[expert];
    for (auto& [expert, share] : shares) share *= e.scale / (e.normalise ? sum : 1);
    return shares;
  }

  Checkpoint& checkpoint_;
  const int64_t number_;
  const std::string prefix_;
};

}  // namespace

std::vector<double> reference_logits(Checkpoint& checkpoint, std::span<const int> tokens) {
  const ModelConfig& config = checkpoint.config();
  const Matrix embedding = load(checkpoint, "embedding");
  Values x;
  for (const int token : tokens) {
    const float* row = embedding.data.data() + token * config.hidden;
    x.insert(x.end(), row, row + config.hidden);
  }
  for (int64_t layer = 0; layer < config.layers; layer++) Layer(checkpoint, layer).run(x);
  const Values h = normed(load(checkpoint, "final_norm"), x, config.norm_eps);
  return multiply(config.tied_embedding ? embedding : load(checkpoint, "head"), h);
}

}  // namespace cohort
