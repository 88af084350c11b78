// SPDX-License-Identifier: Apache-2.0
// The table of contents of compute. Every op is a free function: ops.cc checks shapes and dtypes
// once, then calls the backend of the stream's device (kernels/cpu, kernels/cuda), which assumes
// checked input. Arguments: stream, outputs, inputs, scalars. Wrong shapes are programmer errors
// (COHORT_CHECK). On the CPU an op is done when it returns; on CUDA it is enqueued on the device's
// compute stream, takes device memory only, and can be captured.
//
// Below, A is the type of activations (Stream::activations): f32 on the CPU, f32, f16 or bf16 on
// CUDA. The residual stream x is f32 everywhere.
//
// Every output element has one fixed order of arithmetic, the same for one row and for a thousand,
// for any number of threads and any instruction set (docs/arithmetic.md).
#pragma once
#include <cstdint>
#include <span>

#include "base/stream.h"
#include "base/tensor.h"
#include "base/unit_tree.h"
#include "kernels/activations.h"
#include "kernels/attention_batch.h"
#include "kernels/kv_layout.h"
#include "kernels/matrix.h"
#include "kernels/matrix_group.h"
#include "kernels/rope_table.h"
#include "kernels/routing.h"
#include "kernels/sampling.h"

namespace cohort {

// Where part of each head of each token lies: element (t, h, d) at t * row + h * head + first + d.
struct HeadsView {
  float* data;
  int64_t row, head, first;
};

namespace ops {

// Each signature is written once; the checked front and the backends are declared from it.
namespace signature {

// out f32 [tokens, hidden]: row ids[t] - first_row of the table, or +0 where it is not in the table
// (vocabulary-parallel: another rank has it). -0 becomes +0, so that adding zeros changes no bit.
using embedding = void(Stream&, Tensor out, const Matrix& table, Tensor ids /* i32 [tokens] */,
                       int64_t first_row);

// out A = x / sqrt(mean(x^2) + eps) * weight, by row. x f32; out may be x where A is f32.
// weight [hidden] f32.
using rms_norm = void(Stream&, Tensor out, Tensor x, Tensor weight, float eps);

// x = x + y, elementwise: x f32, y f32 or A. Then, where row t of x holds NaN or infinity and
// errors[t] (i32 [tokens]) is -1, errors[t] = code.
using add_residual = void(Stream&, Tensor x, Tensor y, Tensor errors, int32_t code);

// add_residual, then rms_norm of x into out: y is read before out is written, so out may be y.
using add_rms_norm = void(Stream&, Tensor out, Tensor x, Tensor y, Tensor weight, float eps,
                          Tensor errors, int32_t code);

// out A [tokens, n] = silu(gate) * up, gate_up A [tokens, 2 n] = gate | up.
using silu_mul = void(Stream&, Tensor out, Tensor gate_up);

// Makes x A [tokens, k] the input of following products; borrows x until then.
using prepare = void(Stream&, Activations& out, Tensor x);

// --- Three that end in `prepare`, with the bits of the ops by themselves; on the CPU in one pass.

// rms_norm of x into h, then prepare of h.
using rms_norm_prepare = void(Stream&, Activations& out, Tensor h, Tensor x, Tensor weight,
                              float eps);

// add_rms_norm of x and y into h, then prepare of h.
using add_rms_norm_prepare = void(Stream&, Activations& out, Tensor h, Tensor x, Tensor y,
                                  Tensor weight, float eps, Tensor errors, int32_t code);

// silu_mul of gate_up into act, then prepare of act.
using silu_mul_prepare = void(Stream&, Activations& out, Tensor act, Tensor gate_up);

// y [pieces, tokens, n] = x [tokens, k] * w^T, one partial product per piece. pieces: ranges of w's
// own units, each summed in tree order (a piece is a whole node of the tree over units); a
// column-parallel matrix has one unit and one piece. y: f32, or A where w has one unit.
using matmul = void(Stream&, Tensor y, const Activations& x, const Matrix& w,
                    std::span<const UnitRange> pieces);

// Rotates q and k of qkv A [tokens, (heads + 2 kv_heads) * dim] = q | k | v by their positions in
// the batch; writes q to q_out A [tokens, heads * dim], k and v to their slots in the cache
// (rounded to its dtype; f16 and f8 saturate; i8 has a scale per token and head).
using rope_store = void(Stream&, Tensor q_out, const KvLayer& kv, Tensor qkv,
                        const AttentionBatch& batch, const RopeTable& rope);

// out A [tokens, heads * dim]: causal grouped-query attention of the batch's queries over the
// cache. A sequence whose scores are NaN gets NaN rows, its neighbours nothing.
using attention = void(Stream&, Tensor out, Tensor q, const KvLayer& kv,
                       const AttentionBatch& batch);

// out f32 [n, width] = x f32 [rows[i]]. rows i32 [n].
using gather_rows = void(Stream&, Tensor out, Tensor x, Tensor rows);

// out f32 [n, sum of widths]: blocks side by side. gathered holds one block [n, widths[i]] after
// the other.
using interleave = void(Stream&, Tensor out, Tensor gathered, std::span<const int64_t> widths);

// errors[t] = code where errors[t] is -1 and row t of x f32 holds NaN or infinity. errors i32.
using find_not_finite = void(Stream&, Tensor errors, Tensor x, int32_t code);

// --- Experts. Of the k experts that a token has, j counts in the order of their numbers.

// experts i32 [tokens, k] ascending, and their weights f32 [tokens, k], from router logits f32
// [tokens, experts]. bias f32 [experts] (or an empty tensor) is added to the scores for the choice
// alone. Equal scores: the lower number. A row of logits with NaN chooses experts 0 .. k-1 with
// weights NaN.
using route_experts = void(Stream&, Tensor experts, Tensor weights, Tensor logits, Tensor bias,
                           const Routing& routing);

// Sorts the pairs (token, j) whose expert has a local number by that: local[e] (i32 [experts]) is
// the number of expert e here, from 0, or -1. offsets i32 [groups + 1]: where the pairs of a local
// expert begin; rows i32 [tokens * k]: the token of each sorted pair, -1 past the last; places i32
// [tokens, k]: where a pair went, or -1. Within an expert pairs are in the order of tokens.
using group_tokens = void(Stream&, Tensor offsets, Tensor rows, Tensor places, Tensor experts,
                          Tensor local);

// out [n, width] = x [rows[i]], or zeros where rows[i] is -1. Both A, or both f32.
using take_rows = void(Stream&, Tensor out, Tensor x, Tensor rows);

// y A [n, w.rows()]: rows offsets[g] .. offsets[g + 1] of x A [n, k] times matrix g of w,
// transposed. offsets i32 [w.size() + 1], in the stream's device's memory; rows past the last
// offset of y are left as they are. scratch: as wide and long as x.
using grouped_matmul = void(Stream&, Tensor y, Tensor x, const MatrixGroup& w, Tensor offsets,
                            Activations& scratch);

// pieces f32 [ranges, tokens, width]: the sum of weights[t, j] * outputs[places[t, j]] over the j
// whose expert lies in the range and whose place is not -1, along the fixed tree over expert
// numbers (base/unit_tree.h), where who is not there adds nothing; -0 where nobody is. outputs A or
// f32 [n, width]. ranges: nodes of the tree over `experts`.
using combine_experts = void(Stream&, Tensor pieces, Tensor outputs, Tensor places, Tensor experts,
                             Tensor weights, std::span<const UnitRange> ranges);

// y [tokens, n] = sigmoid(gate f32 [tokens, 1]) * y. y A or f32.
using gate_rows = void(Stream&, Tensor y, Tensor gate);

// y = y + x, elementwise, both A or both f32.
using add = void(Stream&, Tensor y, Tensor x);

// y A [tokens, n] = y + bias f32 [n], by row.
using add_bias = void(Stream&, Tensor y, Tensor bias);

// Columns [first, first + heads * dim) of x A [tokens, width]: each head normed by itself as
// rms_norm does, times weight f32 [dim].
using norm_heads = void(Stream&, Tensor x, int64_t first, int64_t heads, Tensor weight, float eps);

// One token for each row of logits [n, vocab] (overwritten). On the CPU only: a GPU's sampler keeps
// its tokens (kernels/cuda/sampler.h).
using sample = void(Stream&, std::span<SampledToken> out, Tensor logits,
                    std::span<const SampleRow> rows);

// --- Of the CPU alone, as `sample`.

// out[t, h, d] = in[t, h, d] * factor: parts of rows that are cut into heads, copied between
// layouts. f32.
using copy_heads = void(Stream&, const HeadsView& out, const HeadsView& in, int64_t tokens,
                        int64_t heads, int64_t dim, float factor);

// sums f32 [ranges, tokens]: squares of columns [first, first + units * width) of x f32, added up
// in each unit as rms_norm does, and over the units of a range in tree order.
using square_sums = void(Stream&, Tensor sums, Tensor x, int64_t first, int64_t width,
                         std::span<const UnitRange> ranges);

// Columns [first, first + n) of x f32 normed by the squares f32 [tokens] of rows of `total`
// columns, of which these are a part: x / sqrt(squares / total + eps) * weight f32 [n].
using norm_part = void(Stream&, Tensor x, int64_t first, Tensor squares, int64_t total,
                       Tensor weight, float eps);

}  // namespace signature

#define COHORT_DECLARE_OPS                    \
  signature::embedding embedding;             \
  signature::rms_norm rms_norm;               \
  signature::add_residual add_residual;       \
  signature::add_rms_norm add_rms_norm;       \
  signature::silu_mul silu_mul;               \
  signature::prepare prepare;                 \
  signature::matmul matmul;                   \
  signature::rope_store rope_store;           \
  signature::attention attention;             \
  signature::gather_rows gather_rows;         \
  signature::interleave interleave;           \
  signature::find_not_finite find_not_finite; \
  signature::route_experts route_experts;     \
  signature::group_tokens group_tokens;       \
  signature::take_rows take_rows;             \
  signature::grouped_matmul grouped_matmul;   \
  signature::combine_experts combine_experts; \
  signature::gate_rows gate_rows;             \
  signature::add add;                         \
  signature::add_bias add_bias;               \
  signature::norm_heads norm_heads;

// Those that only the CPU does in one pass.
#define COHORT_DECLARE_FUSED_OPS                        \
  signature::rms_norm_prepare rms_norm_prepare;         \
  signature::add_rms_norm_prepare add_rms_norm_prepare; \
  signature::silu_mul_prepare silu_mul_prepare;

#define COHORT_DECLARE_CPU_OPS        \
  signature::sample sample;           \
  signature::copy_heads copy_heads;   \
  signature::square_sums square_sums; \
  signature::norm_part norm_part;

COHORT_DECLARE_OPS
COHORT_DECLARE_FUSED_OPS
COHORT_DECLARE_CPU_OPS
namespace cpu {
COHORT_DECLARE_OPS
COHORT_DECLARE_FUSED_OPS
COHORT_DECLARE_CPU_OPS
}  // namespace cpu
namespace cuda {
COHORT_DECLARE_OPS
}
#undef COHORT_DECLARE_OPS
#undef COHORT_DECLARE_FUSED_OPS
#undef COHORT_DECLARE_CPU_OPS

}  // namespace ops
}  // namespace cohort
