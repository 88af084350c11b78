// SPDX-License-Identifier: Apache-2.0
// The ops that work row by row, against float64.
#include <algorithm>
#include <functional>
#include <limits>
#include <numeric>

#include "kernels/ops.h"
#include "tools/gpu_check/arrays.h"
#include "tools/gpu_check/kernel_checks.h"

namespace cohort::gpu_check {
namespace {

using Floats = std::vector<float>;
constexpr float kEps = 1e-5f;
constexpr DType kActivations[] = {DType::f32, DType::f16, DType::bf16};

class RowsCheck {
 public:
  explicit RowsCheck(const Bench& bench) : bench_(bench) {}

  void norms(int64_t rows, int64_t n) {
    Floats x = some(rows * n, 3);
    const Floats weight = some(n);
    for (int64_t i = 0; i < n; i++) x[size_t(i)] *= 1e-3f;  // a row where eps counts
    for (const DType type : kActivations) {
      Stream stream(bench_.device, type, 1, true);
      const Array in = array(DType::f32, x), w = array(DType::f32, weight),
                  out = empty(type, rows * n);
      ops::cuda::rms_norm(stream, out.matrix(rows), in.matrix(rows), w.list(), kEps);
      bench_.report.check("rms_norm", shape(type, rows, n),
                          norm_error(type, out.floats(), x, weight));
      add_norm(stream, type, rows, x, weight);
    }
  }

  void gate(int64_t rows, int64_t n) {
    for (const DType type : kActivations) {
      const Floats in = rounded(type, some(rows * 2 * n, 4));
      Stream stream(bench_.device, type, 1, true);
      const Array gate_up = array(type, in), out = empty(type, rows * n);
      ops::cuda::silu_mul(stream, out.matrix(rows), gate_up.matrix(rows));
      std::vector<double> expected;
      for (int64_t r = 0; r < rows; r++)
        for (int64_t i = 0; i < n; i++)
          expected.push_back(reference::silu(double(in[size_t(2 * r * n + i)])) *
                             double(in[size_t((2 * r + 1) * n + i)]));
      bench_.report.check("silu_mul", shape(type, rows, n), close(type, out.floats(), expected));
    }
  }

  void embedding(DType weights, int64_t vocab, int64_t n) {
    const reference::Weights table = reference::random_weights(weights, vocab, n, bench_.random);
    const std::vector<int32_t> ids = {
        5, 107, 99, 100, 100 + int32_t(vocab) - 1, 100 + int32_t(vocab)};
    for (const DType type : kActivations) {
      Stream stream(bench_.device, type, 1, true);
      const Matrix packed = reference::pack(stream, 0, {&table});
      const Array list = Array(*bench_.device, ids),
                  out = empty(DType::f32, int64_t(ids.size()) * n);
      ops::cuda::embedding(stream, out.matrix(int64_t(ids.size())), packed, list.list(), 100);
      const Floats held = is_quantized(weights) ? table.values : rounded(type, table.values);
      Floats expected;
      for (const int32_t id : ids)
        for (int64_t i = 0; i < n; i++)
          expected.push_back(id < 100 || id >= 100 + vocab ? 0.0f
                                                           : held[size_t((id - 100) * n + i)]);
      const Floats got = out.floats();
      bench_.report.check(
          "embedding", concat(name(weights), ", ", shape(type, int64_t(ids.size()), n)),
          worst(got, expected,
                [&](size_t i) { return 1e-6 * std::fabs(double(expected[i])) + 1e-30; }));
    }
  }

  void moves(int64_t width) {
    Stream stream(bench_.device, DType::bf16, 1, true);
    const Floats x = some(5 * width);
    const Array in = array(DType::f32, x), rows = Array(*bench_.device, {4, 0, 0, 3}),
                out = empty(DType::f32, 4 * width), side = empty(DType::f32, 5 * width);
    ops::cuda::gather_rows(stream, out.matrix(4), in.matrix(5), rows.list());
    Floats expected;
    for (const int64_t row : {4, 0, 0, 3})
      expected.insert(expected.end(), x.begin() + row * width, x.begin() + (row + 1) * width);
    bench_.report.pass("gather_rows", concat("4 x ", width), out.floats() == expected, "is exact");
    // Blocks of 2 and 3 fifths of the width, side by side.
    const std::vector<int64_t> widths = {2 * width / 5, width - 2 * width / 5};
    ops::cuda::interleave(stream, side.matrix(5), in.list(), widths);
    expected.clear();
    for (int64_t r = 0; r < 5; r++) {
      int64_t block = 0;
      for (const int64_t w : widths) {
        const auto from = x.begin() + 5 * block + r * w;
        expected.insert(expected.end(), from, from + w);
        block += w;
      }
    }
    bench_.report.pass("interleave", concat("5 x ", width), side.floats() == expected, "is exact");
  }

  // Of the families with experts, biases and normed heads; three heads in the middle of a row.
  void families(DType type, int64_t rows, int64_t dim) {
    const int64_t n = 5 * dim;
    Stream stream(bench_.device, type, 1, true);
    const Floats x = rounded(type, some(rows * n)), more = rounded(type, some(rows * n)),
                 bias = some(n), gate = some(rows, 3), weight = some(dim);
    const Array sum = array(type, x), biased = array(type, x), gated = array(type, x),
                normed = array(type, x), y = array(type, more), b = array(DType::f32, bias),
                g = array(DType::f32, gate), w = array(DType::f32, weight);
    ops::cuda::add(stream, sum.matrix(rows), y.matrix(rows));
    ops::cuda::add_bias(stream, biased.matrix(rows), b.list());
    ops::cuda::gate_rows(stream, gated.matrix(rows), g.matrix(rows));
    ops::cuda::norm_heads(stream, normed.matrix(rows), dim, 3, w.list(), kEps);
    std::vector<double> sums, shifted, through, norms(x.begin(), x.end());
    for (size_t i = 0; i < x.size(); i++) {
      sums.push_back(double(x[i]) + double(more[i]));
      shifted.push_back(double(x[i]) + double(bias[i % size_t(n)]));
      through.push_back(reference::sigmoid(double(gate[i / size_t(n)])) * double(x[i]));
    }
    for (int64_t r = 0; r < rows; r++)
      for (int64_t at = r * n + dim; at < r * n + 4 * dim; at += dim) {
        const auto head = reference::rms_norm({&x[size_t(at)], size_t(dim)}, weight, double(kEps));
        std::copy(head.begin(), head.end(), norms.begin() + at);
      }
    const std::string of = shape(type, rows, n);
    bench_.report.check("add", of, close(type, sum.floats(), sums));
    bench_.report.check("add_bias", of, close(type, biased.floats(), shifted));
    bench_.report.check("gate_rows", of, close(type, gated.floats(), through));
    bench_.report.check("norm_heads", of, close(type, normed.floats(), norms));
  }

  void not_finite(int64_t n) {
    constexpr float kInfinity = std::numeric_limits<float>::infinity();
    Stream stream(bench_.device, DType::bf16, 1, true);
    Floats x(size_t(5 * n), 3.4e38f);
    x[size_t(2 * n - 1)] = std::nanf("");
    x[size_t(3 * n)] = -kInfinity;
    x[size_t(4 * n)] = kInfinity;
    const Array in = array(DType::f32, x), errors = Array(*bench_.device, {-1, -1, -1, -1, 5});
    ops::cuda::find_not_finite(stream, errors.list(), in.matrix(5), 9);
    bench_.report.pass("find_not_finite", concat("5 x ", n),
                       errors.ints() == std::vector<int32_t>{-1, 9, -1, 9, 5}, "is exact");
  }

 private:
  void add_norm(Stream& stream, DType type, int64_t rows, const Floats& x, const Floats& weight) {
    const int64_t n = int64_t(weight.size());
    const Floats y = rounded(type, some(rows * n));
    Floats sum = x;
    for (size_t i = 0; i < sum.size(); i++) sum[i] += y[i];
    const Array residual = array(DType::f32, x), more = array(type, y),
                w = array(DType::f32, weight),
                errors = Array(*bench_.device, std::vector<int32_t>(size_t(rows), -1)),
                second = array(DType::f32, x);
    ops::cuda::add_residual(stream, second.matrix(rows), more.matrix(rows), errors.list(), 7);
    bench_.report.pass("add_residual", shape(type, rows, n), second.floats() == sum, "is exact");
    ops::cuda::add_rms_norm(stream, more.matrix(rows), residual.matrix(rows), more.matrix(rows),
                            w.list(), kEps, errors.list(), 7);
    bench_.report.pass("add_rms_norm, residual", shape(type, rows, n),
                       residual.floats() == sum && errors.ints()[0] == -1, "is exact");
    bench_.report.check("add_rms_norm", shape(type, rows, n),
                        norm_error(type, more.floats(), sum, weight));
  }

  static double close(DType type, const Floats& got, const std::vector<double>& expected) {
    return worst(got, expected, [&](size_t i) { return allowed(type, expected[i]); });
  }
  static double norm_error(DType type, const Floats& got, const Floats& x, const Floats& weight) {
    std::vector<double> expected;
    for (size_t at = 0; at < x.size(); at += weight.size()) {
      const auto row = reference::rms_norm({x.data() + at, weight.size()}, weight, double(kEps));
      expected.insert(expected.end(), row.begin(), row.end());
    }
    return close(type, got, expected);
  }
  static std::string shape(DType type, int64_t rows, int64_t n) {
    return concat(name(type), ", ", rows, " x ", n);
  }
  Floats some(int64_t n, float scale = 1) const {
    return reference::random_floats(n, bench_.random, scale);
  }
  Array array(DType type, const Floats& values) const {
    return Array(*bench_.device, type, values);
  }
  Array empty(DType type, int64_t n) const { return Array(*bench_.device, type, n); }

  const Bench& bench_;
};

}  // namespace

void check_rows(const Bench& bench) {
  RowsCheck check(bench);
  const auto run = [&](const char* what, const std::function<void()>& f) {
    bench.report.guarded(what, "", f);
  };
  const bool tiny = bench.report.tiny();
  std::vector<std::pair<int64_t, int64_t>> shapes = {{37, 4096}, {300, 577}, {2, 16392}};
  if (tiny) shapes = {{2, 264}, {1, 577}};
  for (const auto& [rows, n] : shapes) {
    run("norms", [&check, rows = rows, n = n] { check.norms(rows, n); });
    run("silu_mul", [&check, rows = rows, n = n] { check.gate(rows, n); });
  }
  for (const DType type : kActivations)
    for (const int64_t dim : tiny ? std::vector<int64_t>{16} : std::vector<int64_t>{72, 128})
      run("families", [&] { check.families(type, 33, dim); });
  for (const DType type : reference::weight_types())
    run("embedding", [&] { check.embedding(type, tiny ? 20 : 500, tiny ? 256 : 4096); });
  for (const int64_t width : tiny ? std::vector<int64_t>{101} : std::vector<int64_t>{4096, 9001}) {
    run("moves", [&] { check.moves(width); });
    run("find_not_finite", [&] { check.not_finite(width); });
  }
}

}  // namespace cohort::gpu_check
