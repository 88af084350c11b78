// SPDX-License-Identifier: Apache-2.0
// The checked front: shapes and dtypes, once; then the backend of the stream's device.
#include "kernels/ops.h"

#include "base/check.h"

namespace cohort::ops {
namespace {

// Calls the backend's op of the same name.
#define COHORT_DISPATCH(stream, op, ...)                               \
  ((stream).kind() == DeviceKind::cuda ? cuda::op(stream, __VA_ARGS__) \
                                       : cpu::op(stream, __VA_ARGS__))

void check(const Tensor& t, DType dtype, int rank) {
  COHORT_CHECK_MSG(t.dtype() == dtype,
                   concat("tensor is ", name(t.dtype()), ", expected ", name(dtype)));
  COHORT_CHECK_EQ(t.rank(), rank);
}

void check_matrix(const Tensor& t, DType dtype, int64_t rows, int64_t columns) {
  check(t, dtype, 2);
  COHORT_CHECK_EQ(t.dim(0), rows);
  COHORT_CHECK_EQ(t.dim(1), columns);
}

// What is added to the residual stream x.
void check_contribution(const Stream& stream, const Tensor& y, const Tensor& x) {
  const bool wide = y.dtype() == DType::f32;  // an ordered sum
  check_matrix(y, wide ? DType::f32 : stream.activations(), x.dim(0), x.dim(1));
}

void check_errors(const Tensor& errors, const Tensor& x) {
  check(errors, DType::i32, 1);
  COHORT_CHECK_EQ(errors.dim(0), x.dim(0));
}

// x f32 normed by rows into out.
void check_norm(const Stream& stream, const Tensor& out, const Tensor& x, const Tensor& weight) {
  check(x, DType::f32, 2);
  check_matrix(out, stream.activations(), x.dim(0), x.dim(1));
  check(weight, DType::f32, 1);
  COHORT_CHECK_EQ(weight.dim(0), x.dim(1));
}

void check_gated(const Stream& stream, const Tensor& out, const Tensor& gate_up) {
  check(out, stream.activations(), 2);
  check_matrix(gate_up, stream.activations(), out.dim(0), 2 * out.dim(1));
}

void check_fits(const Activations& out, const Tensor& x) {
  COHORT_CHECK_LE(x.dim(0), out.max_rows());
  COHORT_CHECK_LE(x.dim(1), out.max_columns());
}

void check_cache(const KvLayer& kv, const AttentionBatch& batch) {
  const KvGeometry &a = kv.geometry, &b = batch.geometry();
  COHORT_CHECK_EQ(a.heads, b.heads);
  COHORT_CHECK_EQ(a.kv_heads, b.kv_heads);
  COHORT_CHECK_EQ(a.group_heads, b.group_heads);
  COHORT_CHECK_EQ(a.skipped_heads, b.skipped_heads);
  COHORT_CHECK_EQ(a.dim, b.dim);
  COHORT_CHECK(a.dtype == b.dtype && a.bf16_arithmetic == b.bf16_arithmetic);
  COHORT_CHECK(a.dtype == DType::f32 || a.dtype == DType::f16 || a.dtype == DType::bf16 ||
               a.dtype == DType::f8_e4m3 || a.dtype == DType::i8);
}

// The last position of every entry is below `positions`.
void check_positions(const AttentionBatch& batch, int64_t positions) {
  for (const AttentionEntry& e : batch.entries()) COHORT_CHECK_LE(e.start + e.count, positions);
}

}  // namespace

void embedding(Stream& stream, Tensor out, const Matrix& table, Tensor ids, int64_t first_row) {
  check(ids, DType::i32, 1);
  check_matrix(out, DType::f32, ids.dim(0), table.columns());
  COHORT_DISPATCH(stream, embedding, out, table, ids, first_row);
}

void rms_norm(Stream& stream, Tensor out, Tensor x, Tensor weight, float eps) {
  check_norm(stream, out, x, weight);
  COHORT_DISPATCH(stream, rms_norm, out, x, weight, eps);
}

void add_residual(Stream& stream, Tensor x, Tensor y, Tensor errors, int32_t code) {
  check(x, DType::f32, 2);
  check_contribution(stream, y, x);
  check_errors(errors, x);
  COHORT_DISPATCH(stream, add_residual, x, y, errors, code);
}

void add_rms_norm(Stream& stream, Tensor out, Tensor x, Tensor y, Tensor weight, float eps,
                  Tensor errors, int32_t code) {
  check_norm(stream, out, x, weight);
  check_contribution(stream, y, x);
  check_errors(errors, x);
  COHORT_DISPATCH(stream, add_rms_norm, out, x, y, weight, eps, errors, code);
}

void silu_mul(Stream& stream, Tensor out, Tensor gate_up) {
  check_gated(stream, out, gate_up);
  COHORT_DISPATCH(stream, silu_mul, out, gate_up);
}

void prepare(Stream& stream, Activations& out, Tensor x) {
  check(x, stream.activations(), 2);
  check_fits(out, x);
  COHORT_DISPATCH(stream, prepare, out, x);
}

void rms_norm_prepare(Stream& stream, Activations& out, Tensor h, Tensor x, Tensor weight,
                      float eps) {
  if (stream.kind() == DeviceKind::cuda) {
    rms_norm(stream, h, x, weight, eps);
    return prepare(stream, out, h);
  }
  check_norm(stream, h, x, weight);
  check_fits(out, h);
  cpu::rms_norm_prepare(stream, out, h, x, weight, eps);
}

void add_rms_norm_prepare(Stream& stream, Activations& out, Tensor h, Tensor x, Tensor y,
                          Tensor weight, float eps, Tensor errors, int32_t code) {
  if (stream.kind() == DeviceKind::cuda) {
    add_rms_norm(stream, h, x, y, weight, eps, errors, code);
    return prepare(stream, out, h);
  }
  check_norm(stream, h, x, weight);
  check_contribution(stream, y, x);
  check_errors(errors, x);
  check_fits(out, h);
  cpu::add_rms_norm_prepare(stream, out, h, x, y, weight, eps, errors, code);
}

void silu_mul_prepare(Stream& stream, Activations& out, Tensor act, Tensor gate_up) {
  if (stream.kind() == DeviceKind::cuda) {
    silu_mul(stream, act, gate_up);
    return prepare(stream, out, act);
  }
  check_gated(stream, act, gate_up);
  check_fits(out, act);
  cpu::silu_mul_prepare(stream, out, act, gate_up);
}

void matmul(Stream& stream, Tensor y, const Activations& x, const Matrix& w,
            std::span<const UnitRange> pieces) {
  COHORT_CHECK_EQ(x.x().dim(1), w.columns());
  COHORT_CHECK(y.dtype() == DType::f32 || (w.units() == 1 && y.dtype() == stream.activations()));
  COHORT_CHECK_EQ(y.rank(), 3);
  COHORT_CHECK_EQ(y.dim(0), int64_t(pieces.size()));
  COHORT_CHECK_EQ(y.dim(1), x.x().dim(0));
  COHORT_CHECK_EQ(y.dim(2), w.rows());
  for (const UnitRange& piece : pieces) {
    COHORT_CHECK_LE(0, piece.begin);
    COHORT_CHECK_LT(piece.begin, piece.end);
    COHORT_CHECK_LE(piece.end, w.units());
  }
  COHORT_DISPATCH(stream, matmul, y, x, w, pieces);
}

void rope_store(Stream& stream, Tensor q_out, const KvLayer& kv, Tensor qkv,
                const AttentionBatch& batch, const RopeTable& rope) {
  const KvGeometry& g = kv.geometry;
  check_cache(kv, batch);
  check(qkv, stream.activations(), 2);
  COHORT_CHECK_LE(batch.rows(), qkv.dim(0));
  COHORT_CHECK_EQ(qkv.dim(1), int64_t(g.heads + 2 * g.kv_heads) * g.dim);
  check_matrix(q_out, stream.activations(), qkv.dim(0), int64_t(g.heads) * g.dim);
  COHORT_CHECK_LE(rope.dims(), g.dim);
  check_positions(batch, rope.positions());
  if (g.heads > 0) COHORT_DISPATCH(stream, rope_store, q_out, kv, qkv, batch, rope);
}

void attention(Stream& stream, Tensor out, Tensor q, const KvLayer& kv,
               const AttentionBatch& batch) {
  check_cache(kv, batch);
  check(q, stream.activations(), 2);
  COHORT_CHECK_LE(batch.rows(), q.dim(0));
  COHORT_CHECK_EQ(q.dim(1), int64_t(kv.geometry.heads) * kv.geometry.dim);
  check_matrix(out, stream.activations(), q.dim(0), q.dim(1));
  if (kv.geometry.heads > 0) COHORT_DISPATCH(stream, attention, out, q, kv, batch);
}

void gather_rows(Stream& stream, Tensor out, Tensor x, Tensor rows) {
  check(rows, DType::i32, 1);
  check(x, DType::f32, 2);
  check_matrix(out, DType::f32, rows.dim(0), x.dim(1));
  COHORT_DISPATCH(stream, gather_rows, out, x, rows);
}

void interleave(Stream& stream, Tensor out, Tensor gathered, std::span<const int64_t> widths) {
  check(out, DType::f32, 2);
  check(gathered, DType::f32, 1);
  COHORT_CHECK_EQ(gathered.dim(0), out.elements());
  int64_t width = 0;
  for (int64_t n : widths) width += n;
  COHORT_CHECK_EQ(width, out.dim(1));
  COHORT_DISPATCH(stream, interleave, out, gathered, widths);
}

void find_not_finite(Stream& stream, Tensor errors, Tensor x, int32_t code) {
  check(x, DType::f32, 2);
  check_errors(errors, x);
  COHORT_DISPATCH(stream, find_not_finite, errors, x, code);
}

void sample(Stream& stream, std::span<SampledToken> out, Tensor logits,
            std::span<const SampleRow> rows) {
  COHORT_CHECK(stream.kind() == DeviceKind::cpu);
  check(logits, DType::f32, 2);
  COHORT_CHECK_EQ(logits.dim(0), int64_t(rows.size()));
  COHORT_CHECK_EQ(out.size(), rows.size());
  COHORT_CHECK_LT(0, logits.dim(1));
  for (const SampleRow& row : rows) COHORT_CHECK(row.params != nullptr);
  if (!rows.empty()) cpu::sample(stream, out, logits, rows);
}

#undef COHORT_DISPATCH

}  // namespace cohort::ops
