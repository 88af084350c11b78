// SPDX-License-Identifier: Apache-2.0
// The parts of a matrix, each by what fits its form: cuBLASLt for plain weights, own kernels for
// quantised ones. Each writes its columns of y. A matrix of several units goes to f32 sums per unit
// first, which add_units adds in the order of the tree.
#include <algorithm>

#include "base/check.h"
#include "kernels/cuda/product.h"
#include "kernels/cuda/state.h"
#include "kernels/cuda/tree_sum.h"
#include "kernels/cuda/weights.h"
#include "kernels/ops.h"

namespace cohort::cuda {
namespace {

// From so many rows on, weights that are first made plain and cuBLASLt are faster than the kernel
// that multiplies them as they are. Estimated for sm_90: making a weight plain moves 5 bytes (write
// and read 2 each), about the time of 1,000 FLOPs; cuBLASLt saves half of the 2 FLOPs per row that
// mma.sync takes twice as long for, and its larger tiles about as much again.
constexpr int64_t kDequantizeRows = 256;
// Memory for weights made plain, at most: a large matrix goes by in pieces of so many bytes, each
// still thousands of rows.
constexpr int64_t kDequantizedBytes = int64_t(64) << 20;

// Units [first, first + units) of a product. y [units][rows][n of the whole matrix].
struct Job {
  Stream& stream;
  const Activations& x;
  const Matrix& w;
  int64_t first, units;
  std::byte* y;
  DType out;
  std::byte* plain;  // kDequantizedBytes at most, where weights are made plain

  DType in() const { return x.x().dtype(); }
  int64_t rows() const { return x.x().dim(0); }
  int64_t n() const { return w.rows(); }
  int64_t first_column() const { return first * w.unit_columns(); }
  const std::byte* input() const {
    return static_cast<const std::byte*>(x.x().data()) + bytes_of(in(), first_column());
  }
};

bool makes_plain(Stream& stream, const Activations& x, const MatrixPart& part) {
  return is_quantized(part.dtype) && x.mode() == ActivationMode::native &&
         stream.activations() != DType::f32 && !stream.fixed_order() &&
         x.x().dim(0) >= kDequantizeRows;
}

// Rows of a matrix that are made plain at a time: whole panels.
int64_t rows_at_once(int64_t part_rows, int64_t row_bytes) {
  const int64_t most =
      std::max<int64_t>(kDequantizedBytes / row_bytes / kQuantPanel, 1) * kQuantPanel;
  return std::min(part_rows, most);
}

size_t plain_bytes(Stream& stream, const Activations& x, const Matrix& w) {
  int64_t most = 0;
  for (const MatrixPart& part : w.parts())
    if (makes_plain(stream, x, part)) {
      const int64_t row_bytes = bytes_of(stream.activations(), w.columns());
      most = std::max(most, rows_at_once(part.rows, row_bytes) * row_bytes);
    }
  return size_t(most);
}

// weights: [n][columns] of the type of the activations; y: their first column.
void multiply_plain(const Job& job, const std::byte* weights, int64_t n, std::byte* y) {
  Gemm g{};
  g.x = job.input();
  g.w = weights + bytes_of(job.in(), job.first_column());
  g.y = y;
  g.in = job.in();
  g.out = job.out;
  g.rows = job.rows();
  g.n = n;
  g.k = job.w.unit_columns();
  g.x_stride = g.w_stride = job.w.columns();
  g.y_stride = job.n();
  g.batch = int32_t(job.units);
  g.x_batch = g.w_batch = job.w.unit_columns();
  g.y_batch = job.rows() * job.n();
  state(job.stream).gemm().run(g);
}

QuantProduct quant_product(const Job& job, const MatrixPart& part, std::byte* y) {
  QuantProduct p{};
  p.w = quant_view(part.dtype, job.w.columns(), part.packed.data());
  p.w.data += job.first_column() / 32 * p.w.record_bytes;
  p.x = job.input();
  p.y = y;
  p.in = job.in();
  p.out = job.out;
  p.n = part.rows;
  p.rows = job.rows();
  p.columns = job.w.columns();
  p.unit_columns = job.w.unit_columns();
  p.units = job.units;
  p.y_stride = job.n();
  p.y_unit = job.rows() * job.n();
  return p;
}

void multiply_made_plain(const Job& job, const MatrixPart& part, std::byte* y) {
  QuantView w = quant_view(part.dtype, job.w.columns(), part.packed.data());
  const int64_t step = rows_at_once(part.rows, bytes_of(job.in(), job.w.columns()));
  for (int64_t row = 0; row < part.rows; row += step) {
    const int64_t n = std::min(step, part.rows - row);
    cuda_check(dequantize(w, job.in(), n, job.plain, compute(job.stream)), "dequantize");
    multiply_plain(job, job.plain, n, y + bytes_of(job.out, row));
    w.data += quant_bytes(part.dtype, step, job.w.columns());
  }
}

void multiply_int8(const Job& job, const QuantProduct& p) {
  Int8Rows x = int8_rows(job.x.storage().data(), job.rows(), job.w.columns());
  const int64_t scales = job.first_column() / 32 * job.rows();
  x.q += job.first_column();
  x.d += scales;
  x.s += scales;
  cuda_check(int8_product(p, x, compute(job.stream)), "int8_product");
}

void multiply_part(const Job& job, const MatrixPart& part, std::byte* y) {
  if (!is_quantized(part.dtype)) return multiply_plain(job, part.packed.data(), part.rows, y);
  if (makes_plain(job.stream, job.x, part)) return multiply_made_plain(job, part, y);
  const QuantProduct p = quant_product(job, part, y);
  const cudaStream_t stream = compute(job.stream);
  if (job.x.mode() == ActivationMode::int8) return multiply_int8(job, p);
  if (job.x.mode() == ActivationMode::f32 || job.in() == DType::f32)
    return cuda_check(exact_product(p, stream), "exact_product");
  if (p.rows <= kFewRows) return cuda_check(quant_few(p, stream), "quant_few");
  cuda_check(quant_many(p, stream), "quant_many");
}

void multiply(const Job& job) {
  std::byte* y = job.y;
  for (const MatrixPart& part : job.w.parts()) {
    if (part.rows > 0) multiply_part(job, part, y);
    y += bytes_of(job.out, part.rows);
  }
}

}  // namespace
}  // namespace cohort::cuda

namespace cohort::ops::cuda {

namespace gpu = cohort::cuda;

void prepare(Stream& stream, Activations& out, Tensor x) {
  out.set_x(x);
  const int64_t rows = x.dim(0), columns = x.dim(1);
  // Rows that are not whole blocks can only meet plain weights.
  if (out.mode() != ActivationMode::int8 || columns % 32 != 0 || rows == 0 || columns == 0) return;
  cuda_check(
      gpu::quantize_rows(x.data(), x.dtype(), rows, columns,
                         gpu::int8_rows(out.storage().data(), rows, columns), gpu::compute(stream)),
      "quantize_rows");
}

void matmul(Stream& stream, Tensor y, const Activations& x, const Matrix& w,
            std::span<const UnitRange> pieces) {
  const int64_t rows = x.x().dim(0), n = w.rows();
  if (rows == 0 || n == 0 || pieces.empty()) return;
  const bool whole = w.units() == 1;
  if (whole) COHORT_CHECK_EQ(int64_t(pieces.size()), 1);
  const int64_t first = pieces.front().begin, units = pieces.back().end - first;
  const size_t plain = (gpu::plain_bytes(stream, x, w) + 255) / 256 * 256;
  const size_t sums = whole ? 0 : size_t(units * rows * n) * sizeof(float);
  std::byte* scratch = plain + sums > 0 ? gpu::state(stream).scratch(plain + sums) : nullptr;
  std::byte* out = whole ? static_cast<std::byte*>(y.data()) : scratch + plain;
  gpu::multiply({stream, x, w, first, units, out, whole ? y.dtype() : DType::f32, scratch});
  if (!whole)
    gpu::add_units(stream, reinterpret_cast<const float*>(out), y.f32(), rows * n, pieces);
}

}  // namespace cohort::ops::cuda
