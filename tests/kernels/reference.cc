// SPDX-License-Identifier: Apache-2.0
#include "tests/kernels/reference.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>

#include "base/half.h"
#include "model/checkpoint.h"

namespace cohort::reference {
namespace {

// Bytes of block types at which f16 numbers lie.
std::vector<int> half_offsets(DType type) {
  switch (type) {
    case DType::q8_0:
    case DType::q4_0:
    case DType::q5_0:
      return {0};
    case DType::q4_1:
    case DType::q5_1:
    case DType::q4_k:
    case DType::q5_k:
      return {0, 2};
    case DType::q6_k:
      return {208};
    default:
      return {};
  }
}

void fill_plain(DType type, std::vector<std::byte>& out, std::mt19937& random) {
  std::normal_distribution<float> normal;
  const size_t size = size_t(info(type).block_bytes);
  for (size_t at = 0; at < out.size(); at += size) {
    const float value = normal(random);
    const uint16_t bits = type == DType::bf16 ? float_to_bf16(value) : float_to_half(value);
    std::memcpy(&out[at], type == DType::f32 ? static_cast<const void*>(&value) : &bits, size);
  }
}

}  // namespace

Tolerance tolerance(DType type) {
  switch (type) {
    case DType::f32:
    case DType::f16:
    case DType::bf16:
      return {2e-6, 2e-6};
    default:
      return {2e-6, 6e-3};
  }
}

Rounding rounding(DType type) {
  switch (type) {
    case DType::f16:
      return {0x1p-11, 0x1p-25};
    case DType::bf16:
      return {0x1p-8, 0};
    case DType::f8_e4m3:
      return {0x1p-4, 0x1p-10};
    default:
      return {0, 0};
  }
}

float e4m3_to_float(uint8_t bits) {
  const int exponent = bits >> 3 & 15, fraction = bits & 7;
  if ((bits & 127) == 127) return std::nanf("");
  const double size =
      exponent == 0 ? fraction * 0x1p-9 : std::ldexp(1 + fraction / 8.0, exponent - 7);
  return float(bits & 128 ? -size : size);
}

std::vector<DType> weight_types() {
  return {DType::f32,  DType::f16,  DType::bf16, DType::q8_0, DType::q4_0, DType::q4_1,
          DType::q5_0, DType::q5_1, DType::q4_k, DType::q5_k, DType::q6_k};
}

Weights random_weights(DType type, int64_t rows, int64_t columns, std::mt19937& random) {
  Weights w{type, rows, columns, {}, std::vector<float>(size_t(rows * columns))};
  w.stored.resize(size_t(rows * bytes_of(type, columns)));
  if (is_quantized(type)) {
    for (std::byte& b : w.stored) b = std::byte(random());
    std::uniform_real_distribution<float> scale(-0.05f, 0.05f);
    for (size_t at = 0; at < w.stored.size(); at += size_t(info(type).block_bytes))
      for (int offset : half_offsets(type)) {
        const uint16_t bits = float_to_half(scale(random));
        std::memcpy(&w.stored[at + size_t(offset)], &bits, 2);
      }
  } else {
    fill_plain(type, w.stored, random);
  }
  dequantize(type, w.stored.data(), rows * columns, w.values.data());
  return w;
}

Matrix pack(Stream& stream, int64_t unit_columns, const std::vector<const Weights*>& parts) {
  Matrix matrix(parts.at(0)->columns, unit_columns);
  for (const Weights* w : parts) {
    const int64_t row_bytes = bytes_of(w->type, w->columns);
    const Status status =
        matrix.add_part(stream, w->type, w->rows, [&](int64_t begin, int64_t end, std::byte* out) {
          std::memcpy(out, w->stored.data() + begin * row_bytes, size_t((end - begin) * row_bytes));
          return Status();
        });
    COHORT_CHECK_MSG(status.ok(), status.to_string());
  }
  return matrix;
}

std::vector<float> random_floats(int64_t n, std::mt19937& random, float scale) {
  std::normal_distribution<float> normal(0, scale);
  std::vector<float> out(static_cast<size_t>(n));
  for (float& x : out) x = normal(random);
  return out;
}

Product matmul(const std::vector<float>& x, int64_t rows, const Weights& w) {
  Product out;
  for (int64_t r = 0; r < rows; r++)
    for (int64_t n = 0; n < w.rows; n++) {
      double sum = 0, magnitude = 0;
      for (int64_t k = 0; k < w.columns; k++) {
        const double product =
            double(x[size_t(r * w.columns + k)]) * double(w.values[size_t(n * w.columns + k)]);
        sum += product;
        magnitude += std::fabs(product);
      }
      out.y.push_back(sum);
      out.magnitude.push_back(magnitude);
    }
  return out;
}

std::vector<double> rms_norm(std::span<const float> x, std::span<const float> weight, double eps) {
  double squares = 0;
  for (double v : x) squares += v * v;
  const double scale = 1 / std::sqrt(squares / double(x.size()) + eps);
  std::vector<double> out;
  for (size_t i = 0; i < x.size(); i++) out.push_back(double(x[i]) * scale * double(weight[i]));
  return out;
}

double silu(double x) { return x / (1 + std::exp(-x)); }
double sigmoid(double x) { return 1 / (1 + std::exp(-x)); }

// D. Hendrycks, K. Gimpel: Gaussian Error Linear Units, section 2. 1 + tanh would cancel far below
// zero.
double gelu_tanh(double x) {
  const double u = std::sqrt(2 / std::acos(-1.0)) * (x + 0.044715 * x * x * x);
  return x * std::exp(u) / (2 * std::cosh(u));
}

std::vector<double> rotate(std::span<const double> head, const std::vector<double>& frequencies,
                           double position, bool neighbours) {
  std::vector<double> out(head.begin(), head.end());
  for (size_t i = 0; i < frequencies.size(); i++) {
    const size_t a = neighbours ? 2 * i : i, b = neighbours ? a + 1 : i + frequencies.size();
    const double c = std::cos(position * frequencies[i]), s = std::sin(position * frequencies[i]);
    out[a] = head[a] * c - head[b] * s;
    out[b] = head[b] * c + head[a] * s;
  }
  return out;
}

Attended attend(std::span<const float> q, const std::vector<std::vector<float>>& keys,
                const std::vector<std::vector<float>>& values) {
  const size_t dim = q.size();
  std::vector<double> scores;
  double largest_v = 0, largest_sum = 0;
  for (const std::vector<float>& k : keys) {
    double sum = 0, magnitude = 0;
    for (size_t d = 0; d < dim; d++) {
      sum += double(q[d]) * double(k[d]);
      magnitude += std::fabs(double(q[d]) * double(k[d]));
    }
    scores.push_back(sum / std::sqrt(double(dim)));
    largest_sum = std::max(largest_sum, magnitude / std::sqrt(double(dim)));
  }
  const double top = *std::max_element(scores.begin(), scores.end());
  Attended result{std::vector<double>(dim), 0};
  double total = 0;
  for (size_t j = 0; j < keys.size(); j++) {
    const double p = std::exp(scores[j] - top);
    total += p;
    for (size_t d = 0; d < dim; d++) {
      result.out[d] += p * double(values[j][d]);
      largest_v = std::max(largest_v, std::fabs(double(values[j][d])));
    }
  }
  for (double& x : result.out) x /= total;
  result.magnitude = largest_v * (1 + largest_sum);
  return result;
}

namespace {

void adjust(std::vector<float>& logits, const SampleRow& row) {
  const SamplingParams& p = *row.params;
  for (auto [token, bias] : p.logit_bias) logits[size_t(token)] += bias;
  for (size_t t = 0; t < logits.size(); t++) {
    const auto count = std::count(row.output.begin(), row.output.end(), int32_t(t));
    const auto prompt = std::count(row.prompt.begin(), row.prompt.end(), int32_t(t));
    float& x = logits[t];
    if (count + prompt > 0) x = x > 0 ? x / p.repetition_penalty : x * p.repetition_penalty;
    x -= p.frequency_penalty * float(count);
    if (count > 0) x -= p.presence_penalty;
  }
  if (int64_t(row.output.size()) < p.min_tokens)
    for (int32_t token : p.end_tokens)
      logits[size_t(token)] = -std::numeric_limits<float>::infinity();
}

void normalise(std::vector<double>& p) {
  const double total = std::accumulate(p.begin(), p.end(), 0.0);
  for (double& x : p) x /= total;
}

}  // namespace

std::vector<double> probabilities(std::vector<float> logits, const SampleRow& row) {
  const SamplingParams& params = *row.params;
  adjust(logits, row);
  std::vector<size_t> order(logits.size());
  std::iota(order.begin(), order.end(), size_t(0));
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t a, size_t b) { return logits[a] > logits[b]; });
  std::vector<double> p(logits.size());
  if (params.temperature == 0) {
    p[order[0]] = 1;
    return p;
  }
  const double top = logits[order[0]];
  for (size_t i = 0; i < p.size(); i++)
    p[i] = std::exp((double(logits[i]) - top) / double(params.temperature));
  normalise(p);
  const double least = double(params.min_p) * p[order[0]];
  for (double& x : p)
    if (x < least) x = 0;
  if (params.top_k > 0)
    for (size_t i = size_t(params.top_k); i < order.size(); i++) p[order[i]] = 0;
  normalise(p);
  double sum = 0;
  for (size_t i = 0; i < order.size(); i++) {
    if (i > 0 && sum >= double(params.top_p)) p[order[i]] = 0;
    sum += p[order[i]];
  }
  normalise(p);
  return p;
}

}  // namespace cohort::reference
