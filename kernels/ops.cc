// SPDX-License-Identifier: Apache-2.0
// The checked front: shapes, dtypes and device, once; then the backend of the stream's device.
#include "kernels/ops.h"

#include "base/check.h"

namespace cohort::ops {
namespace {

void check(const Tensor& t, DType dtype, int rank) {
  COHORT_CHECK_MSG(t.dtype() == dtype,
                   concat("tensor is ", name(t.dtype()), ", expected ", name(dtype)));
  COHORT_CHECK_EQ(t.rank(), rank);
}

// [rows, columns] f32
void check_matrix(const Tensor& t, int64_t rows, int64_t columns) {
  check(t, DType::f32, 2);
  COHORT_CHECK_EQ(t.dim(0), rows);
  COHORT_CHECK_EQ(t.dim(1), columns);
}

void check_cache(const KvLayer& kv, const AttentionBatch& batch) {
  const KvGeometry &a = kv.geometry, &b = batch.geometry();
  COHORT_CHECK_EQ(a.heads, b.heads);
  COHORT_CHECK_EQ(a.kv_heads, b.kv_heads);
  COHORT_CHECK_EQ(a.dim, b.dim);
  COHORT_CHECK(a.dtype == b.dtype);
  COHORT_CHECK(a.dtype == DType::f32 || a.dtype == DType::f16 || a.dtype == DType::bf16);
}

// The last position of every entry is below `positions`.
void check_positions(const AttentionBatch& batch, int64_t positions) {
  for (const AttentionEntry& e : batch.entries()) COHORT_CHECK_LE(e.start + e.count, positions);
}

}  // namespace

void embedding(Stream& stream, Tensor out, const Matrix& table, Tensor ids, int64_t first_row) {
  check(ids, DType::i32, 1);
  check_matrix(out, ids.dim(0), table.columns());
  cpu::embedding(stream, out, table, ids, first_row);
}

void rms_norm(Stream& stream, Tensor out, Tensor x, Tensor weight, float eps) {
  check(x, DType::f32, 2);
  check_matrix(out, x.dim(0), x.dim(1));
  check(weight, DType::f32, 1);
  COHORT_CHECK_EQ(weight.dim(0), x.dim(1));
  cpu::rms_norm(stream, out, x, weight, eps);
}

void add(Stream& stream, Tensor x, Tensor y) {
  COHORT_CHECK(x.dtype() == DType::f32 && y.dtype() == DType::f32);
  COHORT_CHECK_EQ(x.elements(), y.elements());
  cpu::add(stream, x, y);
}

void silu_mul(Stream& stream, Tensor out, Tensor gate_up) {
  check(out, DType::f32, 2);
  check_matrix(gate_up, out.dim(0), 2 * out.dim(1));
  cpu::silu_mul(stream, out, gate_up);
}

void prepare(Stream& stream, Activations& out, Tensor x) {
  check(x, DType::f32, 2);
  COHORT_CHECK_LE(x.dim(0), out.max_rows());
  COHORT_CHECK_LE(x.dim(1), out.max_columns());
  cpu::prepare(stream, out, x);
}

void matmul(Stream& stream, Tensor y, const Activations& x, const Matrix& w,
            std::span<const UnitRange> pieces) {
  COHORT_CHECK_EQ(x.x().dim(1), w.columns());
  check(y, DType::f32, 3);
  COHORT_CHECK_EQ(y.dim(0), int64_t(pieces.size()));
  COHORT_CHECK_EQ(y.dim(1), x.x().dim(0));
  COHORT_CHECK_EQ(y.dim(2), w.rows());
  for (const UnitRange& piece : pieces) {
    COHORT_CHECK_LE(0, piece.begin);
    COHORT_CHECK_LT(piece.begin, piece.end);
    COHORT_CHECK_LE(piece.end, w.units());
  }
  cpu::matmul(stream, y, x, w, pieces);
}

void rope_store(Stream& stream, Tensor q_out, const KvLayer& kv, Tensor qkv,
                const AttentionBatch& batch, const RopeTable& rope) {
  const KvGeometry& g = kv.geometry;
  check_cache(kv, batch);
  check(qkv, DType::f32, 2);
  COHORT_CHECK_LE(batch.rows(), qkv.dim(0));
  COHORT_CHECK_EQ(qkv.dim(1), int64_t(g.heads + 2 * g.kv_heads) * g.dim);
  check_matrix(q_out, qkv.dim(0), int64_t(g.heads) * g.dim);
  COHORT_CHECK_LE(rope.dims(), g.dim);
  check_positions(batch, rope.positions());
  if (g.heads > 0) cpu::rope_store(stream, q_out, kv, qkv, batch, rope);
}

void attention(Stream& stream, Tensor out, Tensor q, const KvLayer& kv,
               const AttentionBatch& batch) {
  check_cache(kv, batch);
  check(q, DType::f32, 2);
  COHORT_CHECK_LE(batch.rows(), q.dim(0));
  COHORT_CHECK_EQ(q.dim(1), int64_t(kv.geometry.heads) * kv.geometry.dim);
  check_matrix(out, q.dim(0), q.dim(1));
  if (kv.geometry.heads > 0) cpu::attention(stream, out, q, kv, batch);
}

void gather_rows(Stream& stream, Tensor out, Tensor x, std::span<const int64_t> rows) {
  COHORT_CHECK_EQ(x.rank(), 2);
  COHORT_CHECK_EQ(out.rank(), 2);
  COHORT_CHECK(out.dtype() == x.dtype());
  COHORT_CHECK_EQ(out.dim(0), int64_t(rows.size()));
  COHORT_CHECK_EQ(out.dim(1), x.dim(1));
  for (int64_t row : rows) COHORT_CHECK(row >= 0 && row < x.dim(0));
  cpu::gather_rows(stream, out, x, rows);
}

void find_not_finite(Stream& stream, std::span<int32_t> errors, Tensor x, int32_t code) {
  check(x, DType::f32, 2);
  COHORT_CHECK_EQ(int64_t(errors.size()), x.dim(0));
  cpu::find_not_finite(stream, errors, x, code);
}

void sample(Stream& stream, std::span<SampledToken> out, Tensor logits,
            std::span<const SampleRow> rows) {
  check(logits, DType::f32, 2);
  COHORT_CHECK_EQ(logits.dim(0), int64_t(rows.size()));
  COHORT_CHECK_EQ(out.size(), rows.size());
  COHORT_CHECK_LT(0, logits.dim(1));
  for (const SampleRow& row : rows) COHORT_CHECK(row.params != nullptr);
  if (!rows.empty()) cpu::sample(stream, out, logits, rows);
}

}  // namespace cohort::ops
