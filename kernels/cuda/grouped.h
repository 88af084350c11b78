// SPDX-License-Identifier: Apache-2.0
// Products whose rows are shared out among matrices, on a GPU: the kernel reads the offsets of the
// rows from device memory, so that no host has to know them and the call can be captured.
#pragma once
#include "kernels/matrix_group.h"

namespace cohort::cuda {

// Builds group.table: what the kernel needs of each matrix, in device memory.
void prepare_group(Stream& stream, MatrixGroup& group);

}  // namespace cohort::cuda
