// SPDX-License-Identifier: Apache-2.0
// Matrices of one shape, each for some of the rows of a product: the experts that a rank has, or
// the heads of a latent attention. Built at load; changed between steps alone, when a rank takes
// up or drops a copy of an expert.
#pragma once
#include <vector>

#include "base/buffer.h"
#include "kernels/matrix.h"

namespace cohort {

struct MatrixGroup {
  std::vector<Matrix> matrices;  // [n, k] each, one unit of columns
  Buffer table;                  // GPU: where its kernels find them (kernels/cuda/grouped.h)

  int size() const { return int(matrices.size()); }
  int64_t rows() const { return matrices.empty() ? 0 : matrices.front().rows(); }
  int64_t columns() const { return matrices.empty() ? 0 : matrices.front().columns(); }
  int64_t packed_bytes() const {
    int64_t bytes = 0;
    for (const Matrix& m : matrices) bytes += m.packed_bytes();
    return bytes;
  }
};

// Makes the group ready for use on the stream's device, after its matrices have changed.
void prepare_group(Stream& stream, MatrixGroup& group);

}  // namespace cohort
