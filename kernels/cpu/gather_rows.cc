// SPDX-License-Identifier: Apache-2.0
#include <cstring>

#include "kernels/ops.h"

namespace cohort::ops::cpu {

void gather_rows(Stream&, Tensor out, Tensor x, std::span<const int64_t> rows) {
  const size_t bytes = size_t(bytes_of(x.dtype(), x.dim(1)));
  for (size_t i = 0; i < rows.size(); i++)
    std::memcpy(out.as<std::byte>() + i * bytes, x.as<std::byte>() + size_t(rows[i]) * bytes,
                bytes);
}

}  // namespace cohort::ops::cpu
