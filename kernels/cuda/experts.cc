// SPDX-License-Identifier: Apache-2.0
// Placeholder.
#include "base/check.h"
#include "kernels/cuda/grouped.h"
#include "kernels/ops.h"
namespace cohort {
void cuda::prepare_group(Stream&, MatrixGroup&) { COHORT_CHECK(false); }
namespace ops::cuda {
void route_experts(Stream&, Tensor, Tensor, Tensor, Tensor, const Routing&) { COHORT_CHECK(false); }
void group_tokens(Stream&, Tensor, Tensor, Tensor, Tensor, Tensor) { COHORT_CHECK(false); }
void take_rows(Stream&, Tensor, Tensor, Tensor) { COHORT_CHECK(false); }
void grouped_matmul(Stream&, Tensor, Tensor, const MatrixGroup&, Tensor, Activations&) {
  COHORT_CHECK(false);
}
void combine_experts(Stream&, Tensor, Tensor, Tensor, Tensor, Tensor, std::span<const UnitRange>) {
  COHORT_CHECK(false);
}
void gate_rows(Stream&, Tensor, Tensor) { COHORT_CHECK(false); }
void add(Stream&, Tensor, Tensor) { COHORT_CHECK(false); }
void add_bias(Stream&, Tensor, Tensor) { COHORT_CHECK(false); }
void norm_heads(Stream&, Tensor, int64_t, int64_t, Tensor, float) { COHORT_CHECK(false); }

}  // namespace ops::cuda
}  // namespace cohort
