// SPDX-License-Identifier: Apache-2.0
// The checked front of the ops for experts (see ops.cc).
#include "base/check.h"
#include "kernels/ops.h"

namespace cohort::ops {
namespace {

// Calls the backend's op of the same name.
#define COHORT_DISPATCH(stream, op, ...)                               \
  ((stream).kind() == DeviceKind::cuda ? cuda::op(stream, __VA_ARGS__) \
                                       : cpu::op(stream, __VA_ARGS__))

void check_shape(const Tensor& t, DType dtype, int64_t rows, int64_t columns) {
  COHORT_CHECK_MSG(t.dtype() == dtype,
                   concat("tensor is ", name(t.dtype()), ", expected ", name(dtype)));
  COHORT_CHECK_EQ(t.rank(), 2);
  COHORT_CHECK_EQ(t.dim(0), rows);
  COHORT_CHECK_EQ(t.dim(1), columns);
}

void check_vector(const Tensor& t, DType dtype, int64_t size) {
  COHORT_CHECK_MSG(t.dtype() == dtype,
                   concat("tensor is ", name(t.dtype()), ", expected ", name(dtype)));
  COHORT_CHECK_EQ(t.rank(), 1);
  COHORT_CHECK_EQ(t.dim(0), size);
}

// A or f32.
void check_floats(const Stream& stream, const Tensor& t) {
  COHORT_CHECK_EQ(t.rank(), 2);
  COHORT_CHECK(t.dtype() == DType::f32 || t.dtype() == stream.activations());
}

}  // namespace

void route_experts(Stream& stream, Tensor experts, Tensor weights, Tensor logits, Tensor bias,
                   const Routing& routing) {
  const int64_t tokens = logits.dim(0), k = routing.per_token;
  check_shape(logits, DType::f32, tokens, routing.experts);
  check_shape(experts, DType::i32, tokens, k);
  check_shape(weights, DType::f32, tokens, k);
  if (bias.rank() > 0) check_vector(bias, DType::f32, routing.experts);
  COHORT_CHECK_LE(1, routing.groups);
  COHORT_CHECK_EQ(routing.experts % routing.groups, 0);
  COHORT_CHECK_LE(routing.groups_per_token, routing.groups);
  COHORT_CHECK_LE(k, routing.experts / routing.groups * routing.groups_per_token);
  if (tokens > 0) COHORT_DISPATCH(stream, route_experts, experts, weights, logits, bias, routing);
}

void group_tokens(Stream& stream, Tensor offsets, Tensor rows, Tensor places, Tensor experts,
                  Tensor local) {
  check_shape(experts, DType::i32, places.dim(0), places.dim(1));
  check_shape(places, DType::i32, experts.dim(0), experts.dim(1));
  check_vector(rows, DType::i32, experts.elements());
  check_vector(offsets, DType::i32, offsets.dim(0));
  check_vector(local, DType::i32, local.dim(0));
  COHORT_DISPATCH(stream, group_tokens, offsets, rows, places, experts, local);
}

void take_rows(Stream& stream, Tensor out, Tensor x, Tensor rows) {
  check_floats(stream, x);
  check_vector(rows, DType::i32, rows.dim(0));
  check_shape(out, x.dtype(), rows.dim(0), x.dim(1));
  if (rows.dim(0) > 0) COHORT_DISPATCH(stream, take_rows, out, x, rows);
}

void grouped_matmul(Stream& stream, Tensor y, Tensor x, const MatrixGroup& w, Tensor offsets,
                    Activations& scratch) {
  check_vector(offsets, DType::i32, w.size() + 1);
  if (w.size() == 0) return;
  check_shape(x, stream.activations(), x.dim(0), w.columns());
  check_shape(y, stream.activations(), x.dim(0), w.rows());
  COHORT_CHECK_LE(x.dim(0), scratch.max_rows());
  COHORT_CHECK_LE(x.dim(1), scratch.max_columns());
  if (x.dim(0) > 0) COHORT_DISPATCH(stream, grouped_matmul, y, x, w, offsets, scratch);
}

void combine_experts(Stream& stream, Tensor pieces, Tensor outputs, Tensor places, Tensor experts,
                     Tensor weights, std::span<const UnitRange> ranges) {
  const int64_t tokens = experts.dim(0), k = experts.dim(1);
  COHORT_CHECK(pieces.dtype() == DType::f32);
  COHORT_CHECK_EQ(pieces.rank(), 3);
  COHORT_CHECK_EQ(pieces.dim(0), int64_t(ranges.size()));
  COHORT_CHECK_EQ(pieces.dim(1), tokens);
  COHORT_CHECK_EQ(pieces.dim(2), outputs.dim(1));
  check_floats(stream, outputs);
  check_shape(places, DType::i32, tokens, k);
  check_shape(experts, DType::i32, tokens, k);
  check_shape(weights, DType::f32, tokens, k);
  if (tokens > 0 && !ranges.empty())
    COHORT_DISPATCH(stream, combine_experts, pieces, outputs, places, experts, weights, ranges);
}

void gate_rows(Stream& stream, Tensor y, Tensor gate) {
  check_floats(stream, y);
  check_shape(gate, DType::f32, y.dim(0), 1);
  if (y.dim(0) > 0) COHORT_DISPATCH(stream, gate_rows, y, gate);
}

void add(Stream& stream, Tensor y, Tensor x) {
  check_floats(stream, y);
  check_shape(x, y.dtype(), y.dim(0), y.dim(1));
  if (y.dim(0) > 0) COHORT_DISPATCH(stream, add, y, x);
}

void add_bias(Stream& stream, Tensor y, Tensor bias) {
  check_shape(y, stream.activations(), y.dim(0), y.dim(1));
  check_vector(bias, DType::f32, y.dim(1));
  if (y.dim(0) > 0) COHORT_DISPATCH(stream, add_bias, y, bias);
}

void norm_heads(Stream& stream, Tensor x, int64_t first, int64_t heads, Tensor weight, float eps) {
  check_shape(x, stream.activations(), x.dim(0), x.dim(1));
  check_vector(weight, DType::f32, weight.dim(0));
  COHORT_CHECK_LE(0, first);
  COHORT_CHECK_LE(first + heads * weight.dim(0), x.dim(1));
  if (x.dim(0) > 0 && heads > 0) COHORT_DISPATCH(stream, norm_heads, x, first, heads, weight, eps);
}

#undef COHORT_DISPATCH

}  // namespace cohort::ops
