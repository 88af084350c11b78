// SPDX-License-Identifier: Apache-2.0
// The ops for mixtures of experts: the choice, the way of the rows, the products, and the sum.
#include <algorithm>
#include <numeric>

#include "kernels/ops.h"
#include "tools/gpu_check/arrays.h"
#include "tools/gpu_check/kernel_checks.h"

namespace cohort::gpu_check {
namespace {

using Floats = std::vector<float>;
using Ints = std::vector<int32_t>;
constexpr double kSums = 1e-5;  // as in kernels_products.cc

class ExpertsCheck {
 public:
  explicit ExpertsCheck(const Bench& bench) : bench_(bench) {}

  void route(const Routing& r, int64_t tokens) {
    Stream stream(bench_.device, DType::bf16, 1, true);
    const Floats logits = reference::random_floats(tokens * r.experts, bench_.random, 3);
    const Array in = floats(logits), chosen = ints(Ints(size_t(tokens * r.per_token))),
                weights(*bench_.device, DType::f32, tokens * r.per_token);
    ops::cuda::route_experts(stream, chosen.matrix(tokens), weights.matrix(tokens),
                             in.matrix(tokens), Tensor(), r);
    const Ints got = chosen.ints();
    const Floats got_weights = weights.floats();
    bool same = true;
    double error = 0;
    for (int64_t t = 0; t < tokens; t++) {
      const auto expected =
          reference::route({&logits[size_t(t * r.experts)], size_t(r.experts)}, {}, r);
      if (expected.gap < 1e-5) continue;  // either may be right
      for (size_t j = 0; j < size_t(r.per_token); j++) {
        const size_t at = size_t(t * r.per_token) + j;
        same = same && got[at] == expected.experts[j];
        const double limit = allowed(DType::f32, expected.weights[j]) + 1e-30;
        error = larger(error, std::fabs(double(got_weights[at]) - expected.weights[j]) / limit);
      }
    }
    const std::string shape = concat(tokens, " tokens, ", r.per_token, " of ", r.experts);
    bench_.report.pass("route_experts, choice", shape, same, "is exact");
    bench_.report.check("route_experts, weights", shape, error);
  }

  // Every second expert is here.
  void group(int64_t tokens, int k, int experts) {
    Stream stream(bench_.device, DType::bf16, 1, true);
    const Ints chosen = random_experts(tokens, k, experts);
    Ints local(size_t(experts), -1);
    int groups = 0;
    for (int e = 0; e < experts; e += 2) local[size_t(e)] = groups++;
    Ints offsets(size_t(groups) + 1, 0), rows, places(chosen.size(), -1);
    for (int g = 0; g < groups; g++) {
      for (size_t i = 0; i < chosen.size(); i++) {
        if (chosen[i] != 2 * g) continue;
        places[i] = int32_t(rows.size());
        rows.push_back(int32_t(i) / k);
      }
      offsets[size_t(g) + 1] = int32_t(rows.size());
    }
    rows.resize(chosen.size(), -1);
    const Array in = ints(chosen), numbers = ints(local), begins = ints(Ints(offsets.size(), -9)),
                taken = ints(Ints(rows.size(), -9)), to = ints(Ints(places.size(), -9));
    ops::cuda::group_tokens(stream, begins.list(), taken.list(), to.matrix(tokens),
                            in.matrix(tokens), numbers.list());
    bench_.report.pass("group_tokens", concat(tokens, " tokens, ", k, " of ", experts),
                       begins.ints() == offsets && taken.ints() == rows && to.ints() == places,
                       "is exact");
  }

  void take(DType type, int64_t width) {
    Stream stream(bench_.device, type, 1, true);
    const Floats x = rounded(type, reference::random_floats(3 * width, bench_.random));
    const Array in(*bench_.device, type, x), rows = ints({2, -1, 0, 2}),
                                             out(*bench_.device, type, 4 * width);
    ops::cuda::take_rows(stream, out.matrix(4), in.matrix(3), rows.list());
    Floats expected;
    for (const int64_t row : {2, -1, 0, 2})
      for (int64_t i = 0; i < width; i++)
        expected.push_back(row < 0 ? 0.0f : x[size_t(row * width + i)]);
    bench_.report.pass("take_rows", concat(name(type), ", 4 x ", width), out.floats() == expected,
                       "is exact");
  }

  // Of the rows of x the last belong to no matrix. rows[g]: of matrix g.
  void products(DType type, DType activations, ActivationMode mode, const Ints& rows, int64_t n,
                int64_t columns) {
    Stream stream(bench_.device, activations, 1, true);
    std::vector<reference::Weights> weights;
    MatrixGroup group;
    Ints offsets = {0};
    for (const int32_t r : rows) {
      weights.push_back(reference::random_weights(type, n, columns, bench_.random));
      group.matrices.push_back(reference::pack(stream, 0, {&weights.back()}));
      offsets.push_back(offsets.back() + r);
    }
    prepare_group(stream, group);
    const int64_t used = offsets.back(), length = used + 2;
    const Floats x =
        rounded(activations, reference::random_floats(length * columns, bench_.random));
    const Array in(*bench_.device, activations, x), begins = ints(offsets),
                                                    y(*bench_.device, activations, length * n);
    Activations scratch(stream, length, columns, mode);
    ops::cuda::grouped_matmul(stream, y.matrix(length), in.matrix(length), group, begins.list(),
                              scratch);
    const bool int8 = mode == ActivationMode::int8;
    const double relative = int8 ? reference::tolerance(type).int8_activations : kSums;
    const Floats got = y.floats();
    double error = 0;
    for (size_t g = 0; g < rows.size(); g++) {
      if (rows[g] == 0) continue;
      reference::Weights& w = weights[g];
      if (!is_quantized(type)) w.values = rounded(activations, w.values);
      const auto first = x.begin() + offsets[g] * columns;
      const auto expected = reference::matmul({first, first + rows[g] * columns}, rows[g], w);
      const Floats part(got.begin() + offsets[g] * n, got.begin() + offsets[g + 1] * n);
      error =
          larger(error, worst(part, expected.y, [&](size_t i) {
                   return relative * expected.magnitude[i] + allowed(activations, expected.y[i], 0);
                 }));
    }
    bench_.report.check(concat("grouped_matmul, ", name(type), int8 ? ", int8" : ""),
                        concat(name(activations), ", ", used, " rows, ", rows.size(),
                               " matrices of ", columns, " x ", n),
                        error);
  }

  void combine(DType type, int64_t tokens, int k, int experts, int64_t width) {
    Stream stream(bench_.device, type, 1, true);
    const Ints chosen = random_experts(tokens, k, experts);
    Ints places(chosen.size());
    std::iota(places.begin(), places.end(), 0);
    std::shuffle(places.begin(), places.end(), bench_.random);
    const int64_t n = tokens * k;
    const Floats outputs = rounded(type, reference::random_floats(n * width, bench_.random));
    const Floats weights = reference::random_floats(n, bench_.random);
    const Array in(*bench_.device, type, outputs), to = ints(places), numbers = ints(chosen),
                                                   w = floats(weights),
                                                   sum(*bench_.device, DType::f32, tokens * width);
    const std::vector<UnitRange> all = {{0, experts}};
    ops::cuda::combine_experts(stream, Tensor(sum.data(), DType::f32, {1, tokens, width}),
                               in.matrix(n), to.matrix(tokens), numbers.matrix(tokens),
                               w.matrix(tokens), all);
    Floats expected;
    for (int64_t t = 0; t < tokens; t++) {
      std::vector<Floats> rows;
      for (int64_t j = t * k; j < (t + 1) * k; j++) {
        const auto row = outputs.begin() + places[size_t(j)] * width;
        rows.emplace_back(row, row + width);
      }
      const Floats tree =
          reference::combine(experts, part(chosen, t * k, k), rows, part(weights, t * k, k)).tree;
      expected.insert(expected.end(), tree.begin(), tree.end());
    }
    bench_.report.pass("combine_experts",
                       concat(name(type), ", ", tokens, " x ", width, ", ", k, " of ", experts),
                       sum.floats() == expected, "is exact");
  }

 private:
  template <class T>
  static std::vector<T> part(const std::vector<T>& all, int64_t first, int64_t n) {
    return {all.begin() + first, all.begin() + first + n};
  }
  // Of each token k different experts, ascending.
  Ints random_experts(int64_t tokens, int k, int experts) const {
    Ints all(static_cast<size_t>(experts)), out;
    std::iota(all.begin(), all.end(), 0);
    for (int64_t t = 0; t < tokens; t++) {
      std::shuffle(all.begin(), all.end(), bench_.random);
      std::sort(all.begin(), all.begin() + k);
      out.insert(out.end(), all.begin(), all.begin() + k);
    }
    return out;
  }
  Array floats(const Floats& values) const { return Array(*bench_.device, DType::f32, values); }
  Array ints(const Ints& values) const { return Array(*bench_.device, values); }

  const Bench& bench_;
};

}  // namespace

void check_experts(const Bench& bench) {
  ExpertsCheck check(bench);
  const bool tiny = bench.report.tiny();
  const auto run = [&](const char* what, auto f) { bench.report.guarded(what, "", f); };
  for (const int64_t tokens : tiny ? std::vector<int64_t>{3} : std::vector<int64_t>{1, 64, 2000}) {
    run("route_experts", [&] {
      check.route({.experts = 8, .per_token = 2, .normalise = true}, tokens);
      check.route({.experts = 128, .per_token = 8}, tokens);
    });
    run("group_tokens", [&] {
      check.group(tokens, 2, 8);
      check.group(tokens, 8, 128);
    });
    run("combine_experts", [&] {
      for (const DType type : {DType::f32, DType::bf16, DType::f16})
        check.combine(type, tokens, 8, 128, tiny ? 40 : 1032);
    });
  }
  const int64_t n = tiny ? 24 : 112, columns = tiny ? 256 : 1024;
  // Few rows for each matrix, and many.
  const std::vector<Ints> sizes = tiny ? std::vector<Ints>{{0, 2, 1}, {40, 0, 17}}
                                       : std::vector<Ints>{{0, 2, 1, 9}, {300, 0, 33, 70}};
  for (const DType activations : {DType::bf16, DType::f16, DType::f32}) {
    run("take_rows", [&] { check.take(activations, tiny ? 101 : 4096); });
    for (const DType type : reference::weight_types())
      for (const Ints& rows : sizes)
        run("grouped_matmul", [&] {
          if (!is_quantized(type) && type != activations) return;
          check.products(type, activations, ActivationMode::native, rows, n, columns);
          if (is_quantized(type))
            check.products(type, activations, ActivationMode::int8, rows, n, columns);
        });
  }
}

}  // namespace cohort::gpu_check
