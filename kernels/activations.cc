// SPDX-License-Identifier: Apache-2.0
#include "kernels/activations.h"

#include "base/check.h"
#include "kernels/cpu/quantize.h"

namespace cohort {

Activations::Activations(int64_t max_rows, int64_t max_columns, ActivationMode mode)
    : max_rows_(max_rows),
      max_columns_(max_columns),
      mode_(mode),
      storage_(mode == ActivationMode::int8 ? size_t(quantized_bytes(max_rows, max_columns)) : 0) {
  COHORT_CHECK_LE(0, max_rows);
  COHORT_CHECK_LE(0, max_columns);
}

}  // namespace cohort
