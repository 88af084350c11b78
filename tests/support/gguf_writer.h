// SPDX-License-Identifier: Apache-2.0
// Writes GGUF files (version 3 unless told otherwise) for tests: small models, and files that are
// wrong on purpose. It checks nothing.
#pragma once
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/dtype.h"

namespace cohort {

class GgufWriter {
 public:
  explicit GgufWriter(uint32_t version = 3, uint64_t alignment = 32)
      : version_(version), alignment_(alignment) {}

  void add_bool(std::string_view key, bool value);
  void add_u32(std::string_view key, uint32_t value);
  void add_i32(std::string_view key, int32_t value);
  void add_u64(std::string_view key, uint64_t value);
  void add_i64(std::string_view key, int64_t value);
  void add_f32(std::string_view key, float value);
  void add_f64(std::string_view key, double value);
  void add_string(std::string_view key, std::string_view value);
  void add_strings(std::string_view key, const std::vector<std::string>& values);
  void add_i32s(std::string_view key, const std::vector<int32_t>& values);
  void add_f32s(std::string_view key, const std::vector<float>& values);
  // A value of any type number, its bytes as they are.
  void add_raw(std::string_view key, uint32_t type, std::string_view bytes);

  // shape: outermost first, as in GgufTensor; data is copied and placed at the next aligned offset.
  void add_tensor(std::string_view name, DType type, const std::vector<int64_t>& shape,
                  std::span<const std::byte> data);
  void add_f32_tensor(std::string_view name, const std::vector<int64_t>& shape,
                      std::span<const float> values);
  // A description alone, for files that are wrong: shape in GGUF's own order.
  void add_raw_tensor(std::string_view name, uint32_t type, const std::vector<uint64_t>& shape,
                      uint64_t offset);

  std::string bytes() const;
  void write(const std::string& path) const;  // throws std::runtime_error

 private:
  void key(std::string_view key, uint32_t type);

  const uint32_t version_;
  const uint64_t alignment_;
  uint64_t pair_count_ = 0, tensor_count_ = 0;
  std::string pairs_, tensors_, data_;
};

// GGUF's number of a tensor type.
uint32_t gguf_type(DType type);

}  // namespace cohort
