// SPDX-License-Identifier: Apache-2.0
// The checked front of ops on parts of rows, which the CPU alone has.
#include "base/check.h"
#include "kernels/ops.h"

namespace cohort::ops {

void copy_heads(Stream& stream, const HeadsView& out, const HeadsView& in, int64_t tokens,
                int64_t heads, int64_t dim, float factor) {
  COHORT_CHECK(stream.kind() == DeviceKind::cpu);
  if (tokens > 0 && heads > 0) cpu::copy_heads(stream, out, in, tokens, heads, dim, factor);
}

void square_sums(Stream& stream, Tensor sums, Tensor x, int64_t first, int64_t width,
                 std::span<const UnitRange> ranges) {
  COHORT_CHECK(stream.kind() == DeviceKind::cpu);
  COHORT_CHECK(sums.dtype() == DType::f32 && x.dtype() == DType::f32);
  COHORT_CHECK_EQ(sums.elements(), int64_t(ranges.size()) * x.dim(0));
  for (const UnitRange& r : ranges) COHORT_CHECK_LE(first + r.end * width, x.dim(1));
  if (x.dim(0) > 0) cpu::square_sums(stream, sums, x, first, width, ranges);
}

void norm_part(Stream& stream, Tensor x, int64_t first, Tensor squares, int64_t total,
               Tensor weight, float eps) {
  COHORT_CHECK(stream.kind() == DeviceKind::cpu);
  COHORT_CHECK(squares.dtype() == DType::f32 && x.dtype() == DType::f32);
  COHORT_CHECK_EQ(squares.elements(), x.dim(0));
  COHORT_CHECK_LE(first + weight.dim(0), x.dim(1));
  if (x.dim(0) > 0) cpu::norm_part(stream, x, first, squares, total, weight, eps);
}

}  // namespace cohort::ops
