// SPDX-License-Identifier: Apache-2.0
// Linked where the build has no CUDA. Nobody comes here: such a build cannot open a GPU.
#include "base/check.h"
#include "kernels/cuda/grouped.h"
#include "kernels/cuda/weights.h"
#include "kernels/ops.h"

namespace cohort {
namespace {

[[noreturn]] void unreachable() {
  COHORT_CHECK_MSG(false, "this build has no CUDA backend");
  std::abort();
}

}  // namespace

Status cuda::add_part(Stream&, std::vector<MatrixPart>&, const PartShape&, Matrix::ReadRows) {
  unreachable();
}
void cuda::prepare_group(Stream&, MatrixGroup&) { unreachable(); }
size_t cuda::quantized_bytes(int64_t, int64_t) { unreachable(); }

namespace ops::cuda {

void embedding(Stream&, Tensor, const Matrix&, Tensor, int64_t) { unreachable(); }
void rms_norm(Stream&, Tensor, Tensor, Tensor, float) { unreachable(); }
void add_residual(Stream&, Tensor, Tensor, Tensor, int32_t) { unreachable(); }
void add_rms_norm(Stream&, Tensor, Tensor, Tensor, Tensor, float, Tensor, int32_t) {
  unreachable();
}
void silu_mul(Stream&, Tensor, Tensor) { unreachable(); }
void prepare(Stream&, Activations&, Tensor) { unreachable(); }
void matmul(Stream&, Tensor, const Activations&, const Matrix&, std::span<const UnitRange>) {
  unreachable();
}
void rope_store(Stream&, Tensor, const KvLayer&, Tensor, const AttentionBatch&, const RopeTable&) {
  unreachable();
}
void attention(Stream&, Tensor, Tensor, const KvLayer&, const AttentionBatch&) { unreachable(); }
void gather_rows(Stream&, Tensor, Tensor, Tensor) { unreachable(); }
void interleave(Stream&, Tensor, Tensor, std::span<const int64_t>) { unreachable(); }
void find_not_finite(Stream&, Tensor, Tensor, int32_t) { unreachable(); }
void route_experts(Stream&, Tensor, Tensor, Tensor, Tensor, const Routing&) { unreachable(); }
void group_tokens(Stream&, Tensor, Tensor, Tensor, Tensor, Tensor) { unreachable(); }
void take_rows(Stream&, Tensor, Tensor, Tensor) { unreachable(); }
void grouped_matmul(Stream&, Tensor, Tensor, const MatrixGroup&, Tensor, Activations&) {
  unreachable();
}
void combine_experts(Stream&, Tensor, Tensor, Tensor, Tensor, Tensor, std::span<const UnitRange>) {
  unreachable();
}
void gate_rows(Stream&, Tensor, Tensor) { unreachable(); }
void add(Stream&, Tensor, Tensor) { unreachable(); }
void add_bias(Stream&, Tensor, Tensor) { unreachable(); }
void norm_heads(Stream&, Tensor, int64_t, int64_t, Tensor, float) { unreachable(); }

}  // namespace ops::cuda
}  // namespace cohort
