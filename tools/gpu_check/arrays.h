// SPDX-License-Identifier: Apache-2.0
// Values of every float type in a GPU's memory, and what rounding to a type may do to a result.
#pragma once
#include <cmath>
#include <cstdint>
#include <vector>

#include "base/buffer.h"
#include "base/device.h"
#include "base/dtype.h"
#include "base/tensor.h"
#include "tests/kernels/reference.h"

namespace cohort::gpu_check {

// Elements as they lie in memory (f32, f16, bf16), and back (f8_e4m3 too).
std::vector<std::byte> encode(DType type, const std::vector<float>& values);
std::vector<float> decode(DType type, const std::vector<std::byte>& stored);
std::vector<float> rounded(DType type, const std::vector<float>& values);

// What an f32 result with this relative error may be off by when it is rounded to the type.
double allowed(DType type, double expected, double relative = reference::kElementwise);

// Uniform in [-1, 1); few distinct values, so that gigabytes of them are there at once.
Buffer random_array(Device& device, DType type, int64_t n, uint32_t seed);

// An array in the GPU's memory between guards: whoever writes past its ends is noticed. It begins
// as NaN, whatever its type, so that what was not written is noticed too.
class Array {
 public:
  Array(Device& device, DType type, int64_t n);
  Array(Device& device, DType type, const std::vector<float>& values);
  Array(Device& device, const std::vector<int32_t>& values);

  void set(const void* bytes, size_t size);
  std::vector<float> floats() const { return decode(type_, bytes()); }
  std::vector<int32_t> ints() const;
  // Throws Failure where a guard was written to.
  std::vector<std::byte> bytes() const;

  std::byte* data() const { return memory_.data() + kGuard; }
  Tensor list() const { return Tensor(data(), type_, {n_}); }
  Tensor matrix(int64_t rows) const { return Tensor(data(), type_, {rows, n_ / rows}); }

 private:
  static constexpr size_t kGuard = 256;

  Device& device_;
  DType type_;
  int64_t n_;
  Buffer memory_;
};

// The largest |got - expected| / limit(i); NaN where one of them is.
template <class Got, class Expected, class Limit>
double worst(const Got& got, const Expected& expected, const Limit& limit) {
  double most = got.size() == expected.size() ? 0 : INFINITY;
  for (size_t i = 0; i < expected.size() && i < got.size(); i++) {
    const double difference = std::fabs(double(got[i]) - double(expected[i]));
    const double error = difference == 0 ? 0 : difference / limit(i);
    most = error <= most ? most : error;  // NaN comes through
    if (std::isnan(most)) return most;
  }
  return most;
}

}  // namespace cohort::gpu_check
