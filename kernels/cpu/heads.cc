// SPDX-License-Identifier: Apache-2.0
#include <bit>
#include <cmath>

#include "kernels/cpu/state.h"
#include "kernels/cpu/strided_sum.h"
#include "kernels/ops.h"

namespace cohort::ops::cpu {
namespace {

// Of a whole node of the tree over units, counted from its first.
float squares(const float* x, int64_t width, int units) {
  if (units == 1) return cohort::cpu::strided_sum(width, [x](int64_t i) { return x[i] * x[i]; });
  const int left = int(std::bit_floor(unsigned(units - 1)));
  return squares(x, width, left) + squares(x + left * width, width, units - left);
}

}  // namespace

void copy_heads(Stream& stream, const HeadsView& out, const HeadsView& in, int64_t tokens,
                int64_t heads, int64_t dim, float factor) {
  cohort::cpu::for_rows(stream, tokens, tokens * heads * dim, [&](int64_t begin, int64_t end) {
    for (int64_t t = begin; t < end; t++)
      for (int64_t h = 0; h < heads; h++) {
        const float* from = in.data + t * in.row + h * in.head + in.first;
        float* to = out.data + t * out.row + h * out.head + out.first;
        for (int64_t d = 0; d < dim; d++) to[d] = from[d] * factor;
      }
  });
}

void square_sums(Stream& stream, Tensor sums, Tensor x, int64_t first, int64_t width,
                 std::span<const UnitRange> ranges) {
  const int64_t tokens = x.dim(0), columns = x.dim(1);
  const int64_t work = tokens * width * (ranges.empty() ? 0 : ranges.back().end);
  cohort::cpu::for_rows(stream, tokens, work, [&](int64_t begin, int64_t end) {
    for (size_t p = 0; p < ranges.size(); p++)
      for (int64_t t = begin; t < end; t++) {
        const float* at = x.f32() + t * columns + first + ranges[p].begin * width;
        sums.f32()[int64_t(p) * tokens + t] = squares(at, width, ranges[p].size());
      }
  });
}

void norm_part(Stream& stream, Tensor x, int64_t first, Tensor squares, int64_t total,
               Tensor weight, float eps) {
  const int64_t tokens = x.dim(0), columns = x.dim(1), n = weight.dim(0);
  cohort::cpu::for_rows(stream, tokens, tokens * n, [&](int64_t begin, int64_t end) {
    for (int64_t t = begin; t < end; t++) {
      float* row = x.f32() + t * columns + first;
      const float scale = 1 / std::sqrt(squares.f32()[t] / float(total) + eps);
      for (int64_t i = 0; i < n; i++) row[i] = row[i] * scale * weight.f32()[i];
    }
  });
}

}  // namespace cohort::ops::cpu
