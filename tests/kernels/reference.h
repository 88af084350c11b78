// SPDX-License-Identifier: Apache-2.0
// The one oracle of compute: naive loops in double precision, written from docs/arithmetic.md's
// formulas and not from its order of operations. Every backend is compared with it.
#pragma once
#include <cstdint>
#include <random>
#include <span>
#include <vector>

#include "base/dtype.h"
#include "base/stream.h"
#include "kernels/matrix.h"
#include "kernels/routing.h"
#include "kernels/sampling.h"

namespace cohort::reference {

// Largest error of a product, relative to sum |w_i x_i|, or of an elementwise op, relative to its
// result. One table for all tests.
struct Tolerance {
  double f32_activations;
  double int8_activations;  // where rounding x to 8 bits dominates
};
Tolerance tolerance(DType type);
inline constexpr double kElementwise = 2e-6;
inline constexpr double kAttention = 3e-6;  // times max |v| (1 + sum |q_d k_d|), f32 cache

// Half a unit in the last place: what rounding to a float type adds to an error.
struct Rounding {
  double relative, absolute;
};
Rounding rounding(DType type);

// OCP 8-bit floating point, E4M3: bias 7, the only NaN has all bits set, no infinity.
float e4m3_to_float(uint8_t bits);

// Every type that weights may have.
std::vector<DType> weight_types();

// Weights as a checkpoint stores them, with ordinary scales, and what they mean.
struct Weights {
  DType type;
  int64_t rows, columns;
  std::vector<std::byte> stored;
  std::vector<float> values;  // [rows, columns]
};
Weights random_weights(DType type, int64_t rows, int64_t columns, std::mt19937& random);
// Parts stacked by rows.
Matrix pack(Stream& stream, int64_t unit_columns, const std::vector<const Weights*>& parts);

std::vector<float> random_floats(int64_t n, std::mt19937& random, float scale = 1);

// y [rows, w.rows] and, for tolerances, the sums of magnitudes of the same shape.
struct Product {
  std::vector<double> y, magnitude;
};
Product matmul(const std::vector<float>& x, int64_t rows, const Weights& w);

std::vector<double> rms_norm(std::span<const float> x, std::span<const float> weight, double eps);
double silu(double x);
double sigmoid(double x);
double gelu_tanh(double x);
// One head, its first 2 * frequencies dimensions turned by position * frequency; pairs as
// kernels/rope_table.h has them.
std::vector<double> rotate(std::span<const double> head, const std::vector<double>& frequencies,
                           double position, bool neighbours);

// One query of one head: keys and values [n][dim] -> out [dim]. magnitude: max |v| (1 + the largest
// sum |q_d k_d| / sqrt(dim)).
struct Attended {
  std::vector<double> out;
  double magnitude;
};
Attended attend(std::span<const float> q, const std::vector<std::vector<float>>& keys,
                const std::vector<std::vector<float>>& values);

// The experts of one token, ascending, and their weights. bias: empty for none. gap: how far the
// last that was chosen (expert or group) is from the next, relative to the terms of both, unless
// these are the same and their numbers decide: below the precision of f32 either may be right.
struct Routed {
  std::vector<int32_t> experts;
  std::vector<double> weights;
  double gap;
};
Routed route(std::span<const float> logits, std::span<const float> bias, const Routing& routing);

// The outputs [k][width] of a token's experts, times their weights, along the tree over `experts`
// numbers. all: what every order of additions is close to; magnitude: the sum of magnitudes.
struct Combined {
  std::vector<float> tree;
  std::vector<double> all, magnitude;
};
Combined combine(int experts, const std::vector<int32_t>& numbers,
                 const std::vector<std::vector<float>>& outputs, const std::vector<float>& weights);

// Exact probabilities of the next token under the parameters.
std::vector<double> probabilities(std::vector<float> logits, const SampleRow& row);

}  // namespace cohort::reference
