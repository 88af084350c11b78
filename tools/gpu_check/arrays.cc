// SPDX-License-Identifier: Apache-2.0
#include "tools/gpu_check/arrays.h"

#include <algorithm>
#include <cstring>

#include "base/failure.h"
#include "base/half.h"

namespace cohort::gpu_check {

std::vector<std::byte> encode(DType type, const std::vector<float>& values) {
  const size_t size = size_t(bytes_of(type, 1));
  std::vector<std::byte> out(values.size() * size);
  for (size_t i = 0; i < values.size(); i++) {
    const uint16_t bits = type == DType::bf16 ? float_to_bf16(values[i]) : float_to_half(values[i]);
    const void* from = type == DType::f32 ? static_cast<const void*>(&values[i]) : &bits;
    std::memcpy(&out[i * size], from, size);
  }
  return out;
}

std::vector<float> decode(DType type, const std::vector<std::byte>& stored) {
  const size_t size = size_t(bytes_of(type, 1));
  std::vector<float> out(stored.size() / size);
  for (size_t i = 0; i < out.size(); i++) {
    uint32_t bits = 0;
    std::memcpy(&bits, &stored[i * size], size);
    if (type == DType::f32) std::memcpy(&out[i], &bits, sizeof(float));
    if (type == DType::f16) out[i] = half_to_float(uint16_t(bits));
    if (type == DType::bf16) out[i] = bf16_to_float(uint16_t(bits));
    if (type == DType::f8_e4m3) out[i] = reference::e4m3_to_float(uint8_t(bits));
  }
  return out;
}

std::vector<float> rounded(DType type, const std::vector<float>& values) {
  return decode(type, encode(type, values));
}

double allowed(DType type, double expected, double relative) {
  const reference::Rounding r = reference::rounding(type);
  return (r.relative * (1 + relative) + relative) * std::fabs(expected) + r.absolute + 1e-30;
}

Buffer random_array(Device& device, DType type, int64_t n, uint32_t seed) {
  constexpr int64_t kDistinct = (int64_t(1) << 20) + 7;
  std::vector<float> values(size_t(std::min(n, kDistinct)));
  uint32_t state = seed * 2654435761u + 1;
  for (float& x : values) {
    state = state * 1664525u + 1013904223u;
    x = float(state >> 8) * 0x1p-23f - 1;
  }
  const std::vector<std::byte> piece = encode(type, values);
  const size_t bytes = size_t(bytes_of(type, n));
  Buffer out = device.allocate(bytes);
  for (size_t at = 0; at < bytes; at += piece.size())
    device.upload(out.data() + at, piece.data(), std::min(piece.size(), bytes - at));
  return out;
}

Array::Array(Device& device, DType type, int64_t n)
    : device_(device),
      type_(type),
      n_(n),
      memory_(device.allocate(2 * kGuard + size_t(bytes_of(type, n)))) {
  const std::vector<std::byte> nan(memory_.size(), std::byte(0xff));
  device_.upload(memory_.data(), nan.data(), nan.size());
}

Array::Array(Device& device, DType type, const std::vector<float>& values)
    : Array(device, type, int64_t(values.size())) {
  const std::vector<std::byte> bytes = encode(type, values);
  set(bytes.data(), bytes.size());
}

Array::Array(Device& device, const std::vector<int32_t>& values)
    : Array(device, DType::i32, int64_t(values.size())) {
  set(values.data(), values.size() * sizeof(int32_t));
}

void Array::set(const void* bytes, size_t size) { device_.upload(data(), bytes, size); }

std::vector<int32_t> Array::ints() const {
  const std::vector<std::byte> stored = bytes();
  std::vector<int32_t> out(stored.size() / sizeof(int32_t));
  std::memcpy(out.data(), stored.data(), stored.size());
  return out;
}

std::vector<std::byte> Array::bytes() const {
  std::vector<std::byte> all(memory_.size());
  device_.download(all.data(), memory_.data(), all.size());
  const auto untouched = [](std::byte b) { return b == std::byte(0xff); };
  if (!std::all_of(all.begin(), all.begin() + kGuard, untouched) ||
      !std::all_of(all.end() - kGuard, all.end(), untouched))
    throw Failure(internal_error("memory next to an array was written to"));
  return {all.begin() + kGuard, all.end() - kGuard};
}

}  // namespace cohort::gpu_check
