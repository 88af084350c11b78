// SPDX-License-Identifier: Apache-2.0
// Matrix products of every type of weights and activations, against float64.
#include "kernels/ops.h"
#include "tools/gpu_check/arrays.h"
#include "tools/gpu_check/kernel_checks.h"

namespace cohort::gpu_check {
namespace {

using Floats = std::vector<float>;
// Of sums in f32 on tensor cores, which cut off where others round, relative to sum |w x|.
constexpr double kSums = 1e-5;
// From so many rows on quantised weights become the type of the activations, so that they round.
constexpr int64_t kManyRows = 256;

class ProductsCheck {
 public:
  ProductsCheck(const Bench& bench, DType type, DType activations, int64_t n, int64_t columns)
      : bench_(bench),
        activations_(activations),
        stream_(bench.device, activations, 1, false),
        ordered_(bench.device, activations, 1, true),
        weights_(reference::random_weights(type, n, columns, bench.random)) {}

  void one(int64_t rows, ActivationMode mode, DType out, bool fixed_order) {
    Stream& stream = fixed_order ? ordered_ : stream_;
    const Floats x =
        rounded(activations_, reference::random_floats(rows * weights_.columns, bench_.random));
    const Matrix matrix = reference::pack(stream, 0, {&weights_});
    const Array in(*bench_.device, activations_, x), y(*bench_.device, out, rows * weights_.rows);
    Activations prepared(stream, rows, weights_.columns, mode);
    ops::cuda::prepare(stream, prepared, in.matrix(rows));
    const std::vector<UnitRange> pieces = {{0, matrix.units()}};
    ops::cuda::matmul(stream, Tensor(y.data(), out, {1, rows, weights_.rows}), prepared, matrix,
                      pieces);
    report_error(y.floats(), x, rows, mode, out, fixed_order);
  }

 private:
  void report_error(const Floats& got, const Floats& x, int64_t rows, ActivationMode mode,
                    DType out, bool fixed_order) const {
    reference::Weights held = weights_;
    if (!is_quantized(held.type)) held.values = rounded(activations_, held.values);
    const reference::Product expected = reference::matmul(x, rows, held);
    const bool int8 = mode == ActivationMode::int8 && is_quantized(held.type);
    const bool rounds = is_quantized(held.type) && !int8 && !fixed_order && rows >= kManyRows;
    const double relative = int8     ? reference::tolerance(held.type).int8_activations
                            : rounds ? kSums + allowed(activations_, 1, 0)
                                     : kSums;
    const double error = worst(got, expected.y, [&](size_t i) {
      return relative * expected.magnitude[i] + allowed(out, expected.y[i], 0);
    });
    bench_.report.check(concat("matmul, ", name(held.type), int8 ? ", int8" : ""),
                        concat(name(activations_), " to ", name(out), ", ", rows, " x ",
                               held.columns, " x ", held.rows, fixed_order ? ", fixed order" : ""),
                        error);
  }

  const Bench& bench_;
  const DType activations_;
  Stream stream_, ordered_;
  const reference::Weights weights_;
};

// A row-parallel product in pieces: the pieces, added in the order of the tree, are the whole.
void check_pieces(const Bench& bench, DType type, DType activations) {
  Stream stream(bench.device, activations, 1, true);
  const int64_t unit = 256, units = 5, n = 48, rows = 6, columns = unit * units;
  const reference::Weights w = reference::random_weights(type, n, columns, bench.random);
  const Matrix matrix = reference::pack(stream, unit, {&w});
  const Floats x = rounded(activations, reference::random_floats(rows * columns, bench.random));
  const Array in(*bench.device, activations, x);
  Activations prepared(stream, rows, columns, ActivationMode::native);
  ops::cuda::prepare(stream, prepared, in.matrix(rows));
  const auto multiply = [&](const std::vector<UnitRange>& pieces) {
    const int64_t count = int64_t(pieces.size());
    const Array y(*bench.device, DType::f32, count * rows * n);
    ops::cuda::matmul(stream, Tensor(y.data(), DType::f32, {count, rows, n}), prepared, matrix,
                      pieces);
    return y.floats();
  };
  const Floats whole = multiply({{0, int(units)}});
  std::vector<UnitRange> single;
  for (int u = 0; u < int(units); u++) single.push_back({u, u + 1});
  Floats sums = multiply(single);
  const TreePlan every(int(units), {{0, 1}, {1, 2}, {2, 3}, {3, 4}, {4, 5}});
  std::vector<float*> pointers;
  for (int u = 0; u < int(units); u++) pointers.push_back(&sums[size_t(u * rows * n)]);
  every.add_up(pointers.data(), rows * n);
  sums.resize(whole.size());
  bench.report.pass(concat("matmul, ", name(type), ", pieces"),
                    concat(name(activations), ", ", units, " units"), sums == whole,
                    "added in tree order are the whole, to the bit");
}

// Where the order is fixed, a row's result has the same bits alone and in any batch.
void check_row_alone(const Bench& bench, DType type, DType activations, ActivationMode mode) {
  Stream stream(bench.device, activations, 1, true);
  const int64_t n = bench.report.tiny() ? 24 : 512, columns = bench.report.tiny() ? 256 : 4096;
  const std::vector<int64_t> sizes = bench.report.tiny()
                                         ? std::vector<int64_t>{1, 3, 20}
                                         : std::vector<int64_t>{1, 2, 8, 17, 64, 200, 513};
  const reference::Weights w = reference::random_weights(type, n, columns, bench.random);
  const Matrix matrix = reference::pack(stream, 0, {&w});
  const std::vector<UnitRange> pieces = {{0, 1}};
  const Floats x = reference::random_floats(sizes.back() * columns, bench.random);
  const Array in(*bench.device, activations, x);
  Activations prepared(stream, sizes.back(), columns, mode);
  Floats alone;
  bool same = true;
  for (const int64_t rows : sizes) {
    const Array y(*bench.device, DType::f32, rows * n);
    ops::cuda::prepare(stream, prepared, Tensor(in.data(), activations, {rows, columns}));
    ops::cuda::matmul(stream, Tensor(y.data(), DType::f32, {1, rows, n}), prepared, matrix, pieces);
    Floats row = y.floats();
    row.resize(size_t(n));
    if (alone.empty()) alone = row;
    same = same && row == alone;
  }
  const bool int8 = mode == ActivationMode::int8;
  bench.report.pass("matmul, fixed order",
                    concat(name(type), " times ", name(activations), int8 ? ", int8" : ""), same,
                    concat("a row has the same bits among 1 to ", sizes.back()));
}

}  // namespace

void check_products(const Bench& bench) {
  const bool tiny = bench.report.tiny();
  const int64_t n = tiny ? 24 : 112, columns = tiny ? 256 : 1024;
  const std::vector<int64_t> sizes =
      tiny ? std::vector<int64_t>{2, 18} : std::vector<int64_t>{1, 7, 16, 64, 300};
  for (const DType type : reference::weight_types())
    for (const DType activations : {DType::bf16, DType::f16, DType::f32})
      bench.report.guarded("matmul", concat(name(type), ", ", name(activations)), [&] {
        ProductsCheck check(bench, type, activations, n, columns);
        for (const int64_t rows : sizes) {
          check.one(rows, ActivationMode::native, rows % 2 == 0 ? DType::f32 : activations, false);
          if (is_quantized(type)) check.one(rows, ActivationMode::int8, DType::f32, false);
        }
        check.one(sizes.back(), ActivationMode::native, DType::f32, true);
        check_pieces(bench, type, activations);
      });
  for (const DType type : {DType::bf16, DType::q4_0, DType::q8_0, DType::q4_k, DType::q6_k})
    for (const ActivationMode mode : {ActivationMode::native, ActivationMode::int8}) {
      if (type == DType::bf16 && mode == ActivationMode::int8) continue;
      bench.report.guarded("matmul, fixed order", std::string(name(type)),
                           [&] { check_row_alone(bench, type, DType::bf16, mode); });
    }
}

}  // namespace cohort::gpu_check
