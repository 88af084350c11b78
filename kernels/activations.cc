// SPDX-License-Identifier: Apache-2.0
#include "kernels/activations.h"

#include "base/check.h"
#include "kernels/cpu/bf16_rows.h"
#include "kernels/cuda/weights.h"

namespace cohort {

namespace {

size_t storage_bytes(DeviceKind device, int64_t rows, int64_t columns, ActivationMode mode) {
  if (!wants_int8(mode)) return 0;
  if (device == DeviceKind::cuda) return cuda::quantized_bytes(rows, columns);
  return size_t(mode == ActivationMode::bf16 ? bf16_bytes(rows, columns)
                                             : quantized_bytes(rows, columns));
}

}  // namespace

Activations::Activations(Stream& stream, int64_t max_rows, int64_t max_columns, ActivationMode mode)
    : max_rows_(max_rows),
      max_columns_(max_columns),
      mode_(mode),
      storage_(
          stream.device().allocate(storage_bytes(stream.kind(), max_rows, max_columns, mode))) {
  COHORT_CHECK(mode != ActivationMode::bf16 || stream.kind() == DeviceKind::cpu);
  COHORT_CHECK_LE(0, max_rows);
  COHORT_CHECK_LE(0, max_columns);
}

}  // namespace cohort
