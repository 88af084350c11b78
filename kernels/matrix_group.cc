// SPDX-License-Identifier: Apache-2.0
#include "kernels/matrix_group.h"

#include "kernels/cuda/grouped.h"

namespace cohort {

void prepare_group(Stream& stream, MatrixGroup& group) {
  if (stream.kind() == DeviceKind::cuda) cuda::prepare_group(stream, group);
}

}  // namespace cohort
