// SPDX-License-Identifier: Apache-2.0
// The table of contents of compute. Every op is a free function: ops.cc checks shapes, dtypes and
// device once, then calls the backend of the stream's device (kernels/cpu, later kernels/cuda),
// which assumes checked input. Arguments: stream, outputs, inputs, scalars. Activations are f32
// [tokens, width]. Wrong shapes are programmer errors (COHORT_CHECK).
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
#include "kernels/rope_table.h"
#include "kernels/sampling.h"

namespace cohort {
namespace ops {

// Each signature is written once; the checked front and the backends are declared from it.
namespace signature {

// out [tokens, hidden]: row ids[t] - first_row of the table, or +0 where it is not in the table
// (vocabulary-parallel: another rank has it). -0 becomes +0, so that adding zeros changes no bit.
using embedding = void(Stream&, Tensor out, const Matrix& table, Tensor ids /* i32 [tokens] */,
                       int64_t first_row);

// out = x / sqrt(mean(x^2) + eps) * weight, by row. out may be x. weight [hidden] f32.
using rms_norm = void(Stream&, Tensor out, Tensor x, Tensor weight, float eps);

// x = x + y, elementwise.
using add = void(Stream&, Tensor x, Tensor y);

// out [tokens, n] = silu(gate) * up, gate_up [tokens, 2 n] = gate | up.
using silu_mul = void(Stream&, Tensor out, Tensor gate_up);

// Makes x [tokens, k] the input of following products; borrows x until then.
using prepare = void(Stream&, Activations& out, Tensor x);

// y [pieces, tokens, n] = x [tokens, k] * w^T, one partial product per piece. pieces: ranges of w's
// own units, each summed in tree order (a piece is a whole node of the tree over units); a
// column-parallel matrix has one unit and one piece.
using matmul = void(Stream&, Tensor y, const Activations& x, const Matrix& w,
                    std::span<const UnitRange> pieces);

// Rotates q and k of qkv [tokens, (heads + 2 kv_heads) * dim] = q | k | v by their positions in the
// batch; writes q to q_out [tokens, heads * dim], k and v to their slots in the cache (rounded to
// its dtype; f16 saturates).
using rope_store = void(Stream&, Tensor q_out, const KvLayer& kv, Tensor qkv,
                        const AttentionBatch& batch, const RopeTable& rope);

// out [tokens, heads * dim]: causal grouped-query attention of the batch's queries over the cache.
// A sequence whose scores are NaN gets NaN rows, its neighbours nothing.
using attention = void(Stream&, Tensor out, Tensor q, const KvLayer& kv,
                       const AttentionBatch& batch);

// out [n, width] = x[rows[i]].
using gather_rows = void(Stream&, Tensor out, Tensor x, std::span<const int64_t> rows);

// errors[t] = code where errors[t] is -1 and row t of x holds NaN or infinity.
using find_not_finite = void(Stream&, std::span<int32_t> errors, Tensor x, int32_t code);

// One token for each row of logits [n, vocab] (overwritten).
using sample = void(Stream&, std::span<SampledToken> out, Tensor logits,
                    std::span<const SampleRow> rows);

}  // namespace signature

#define COHORT_DECLARE_OPS                    \
  signature::embedding embedding;             \
  signature::rms_norm rms_norm;               \
  signature::add add;                         \
  signature::silu_mul silu_mul;               \
  signature::prepare prepare;                 \
  signature::matmul matmul;                   \
  signature::rope_store rope_store;           \
  signature::attention attention;             \
  signature::gather_rows gather_rows;         \
  signature::find_not_finite find_not_finite; \
  signature::sample sample;

COHORT_DECLARE_OPS
namespace cpu {
COHORT_DECLARE_OPS
}
#undef COHORT_DECLARE_OPS

}  // namespace ops
}  // namespace cohort
