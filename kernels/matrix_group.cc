// SPDX-License-Identifier: Apache-2.0
#include "kernels/matrix_group.h"

#include "base/check.h"
#include "kernels/cuda/grouped.h"

namespace cohort {

void prepare_group(Stream& stream, MatrixGroup& group) {
  for (const Matrix& m : group.matrices) {
    COHORT_CHECK_EQ(m.rows(), group.rows());
    COHORT_CHECK_EQ(m.columns(), group.columns());
    COHORT_CHECK_EQ(m.unit_columns(), m.columns());
  }
  if (stream.kind() == DeviceKind::cuda) cuda::prepare_group(stream, group);
}

}  // namespace cohort
