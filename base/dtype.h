// SPDX-License-Identifier: Apache-2.0
// Element types of tensors in memory and in checkpoints. Block types are those of GGUF (format:
// ggml-org/ggml docs/gguf.md, block structures: ggml-common.h); a block is the smallest part that
// can be addressed.
#pragma once
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

namespace cohort {

enum class DType : uint8_t {
  f32,
  f16,
  bf16,
  i32,
  i8,
  f8_e4m3,  // OCP 8-bit floating point: 4 bits of exponent, 3 of mantissa, no infinity
  q8_0,
  q4_0,
  q4_1,
  q5_0,
  q5_1,
  q4_k,
  q5_k,
  q6_k
};

struct DTypeInfo {
  std::string_view name;
  int block_elements;  // 1 for plain types
  int block_bytes;
};
const DTypeInfo& info(DType type);
inline std::string_view name(DType type) { return info(type).name; }
inline bool is_quantized(DType type) { return info(type).block_elements > 1; }
std::optional<DType> parse_dtype(std::string_view name);  // "f32", "q4_1", ...

// Bytes of `elements` consecutive elements; elements must be whole blocks.
int64_t bytes_of(DType type, int64_t elements);

}  // namespace cohort
