// SPDX-License-Identifier: Apache-2.0
// The weight attention.kv_up of latent attention where a file holds the parts for keys and for
// values apart, that for keys transposed, as GGUF files since 2025 do.
#pragma once
#include <cstdint>
#include <span>

#include "base/dtype.h"

namespace cohort {

struct LatentParts {
  DType key_type, value_type;
  std::span<const std::byte> keys;    // [heads, kv_rank, nope_dim], views the file
  std::span<const std::byte> values;  // [heads, value_dim, kv_rank]
  int64_t nope_dim = 0, value_dim = 0, kv_rank = 0;
};

// Rows x columns of the weight [heads * (nope_dim + value_dim), kv_rank] as f32, row after row; the
// ranges must lie within it. `out` need not be aligned.
void read_latent_parts(const LatentParts& parts, int64_t row_begin, int64_t row_end,
                       int64_t column_begin, int64_t column_end, std::byte* out);

}  // namespace cohort
