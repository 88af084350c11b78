// SPDX-License-Identifier: Apache-2.0
#include "model/latent_parts.h"

#include <cstring>
#include <vector>

#include "model/checkpoint.h"

namespace cohort {
namespace {

// One head's part of a tensor whose heads have rows x columns.
void read_head(DType type, std::span<const std::byte> data, int64_t head, int64_t elements,
               std::vector<float>& out) {
  out.resize(size_t(elements));
  dequantize(type, data.data() + head * bytes_of(type, elements), elements, out.data());
}

}  // namespace

void read_latent_parts(const LatentParts& parts, int64_t row_begin, int64_t row_end,
                       int64_t column_begin, int64_t column_end, std::byte* out) {
  const int64_t rows = parts.nope_dim + parts.value_dim;  // of a head
  const size_t width = size_t(column_end - column_begin);
  std::vector<float> keys, values, line(width);
  int64_t loaded = -1;
  for (int64_t row = row_begin; row < row_end; row++) {
    const int64_t head = row / rows, at = row % rows;
    if (head != loaded) {
      read_head(parts.key_type, parts.keys, head, parts.kv_rank * parts.nope_dim, keys);
      read_head(parts.value_type, parts.values, head, parts.value_dim * parts.kv_rank, values);
      loaded = head;
    }
    for (size_t i = 0; i < width; i++) {
      const int64_t column = column_begin + int64_t(i);
      line[i] = at < parts.nope_dim
                    ? keys[size_t(column * parts.nope_dim + at)]
                    : values[size_t((at - parts.nope_dim) * parts.kv_rank + column)];
    }
    std::memcpy(out, line.data(), width * sizeof(float));
    out += width * sizeof(float);
  }
}

}  // namespace cohort
