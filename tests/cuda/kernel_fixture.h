// SPDX-License-Identifier: Apache-2.0
// For tests of kernels: a device of the emulated runtime, values of every float type in its memory,
// and what rounding to a type may do to a result.
#pragma once
#include <cmath>
#include <cstring>
#include <functional>
#include <memory>
#include <vector>

#include "base/device_cuda.h"
#include "base/half.h"
#include "base/stream.h"
#include "base/tensor.h"
#include "tests/cuda/runtime_fixture.h"
#include "tests/cuda_emulation/device.h"
#include "tests/kernels/reference.h"
#include "tests/kernels/streams.h"

namespace cohort::test {

inline const std::vector<DType>& activation_types() {
  static const std::vector<DType> types = {DType::f32, DType::f16, DType::bf16};
  return types;
}

// Of a result `expected` that is rounded to the type, computed in f32 with this relative error.
inline double allowed(DType type, double expected, double relative = reference::kElementwise) {
  const reference::Rounding r = reference::rounding(type);
  return (r.relative * (1 + relative) + relative) * std::fabs(expected) + r.absolute;
}

// Elements as they lie in memory (f32, f16, bf16), and back (f8_e4m3 too).
inline std::vector<std::byte> encode(DType type, const std::vector<float>& values) {
  std::vector<std::byte> out(size_t(bytes_of(type, int64_t(values.size()))));
  const size_t size = out.size() / std::max<size_t>(values.size(), 1);
  for (size_t i = 0; i < values.size(); i++) {
    const uint16_t bits = type == DType::bf16 ? float_to_bf16(values[i]) : float_to_half(values[i]);
    std::memcpy(&out[i * size], type == DType::f32 ? static_cast<const void*>(&values[i]) : &bits,
                size);
  }
  return out;
}
inline std::vector<float> decode(DType type, const std::vector<std::byte>& stored) {
  const size_t size = size_t(bytes_of(type, 1));
  std::vector<float> out(stored.size() / size);
  for (size_t i = 0; i < out.size(); i++) {
    uint16_t bits = 0;
    if (type == DType::f32)
      std::memcpy(&out[i], &stored[i * 4], 4);
    else
      std::memcpy(&bits, &stored[i * size], size);
    if (type == DType::f16) out[i] = half_to_float(bits);
    if (type == DType::bf16) out[i] = bf16_to_float(bits);
    if (type == DType::f8_e4m3) out[i] = reference::e4m3_to_float(uint8_t(bits));
  }
  return out;
}
inline std::vector<float> rounded(DType type, const std::vector<float>& values) {
  return decode(type, encode(type, values));
}

// Memory of a device that a test fills and reads.
class DeviceArray {
 public:
  DeviceArray(Device& device, DType type, int64_t n)
      : device_(device), type_(type), n_(n), memory_(device.allocate(size_t(bytes_of(type, n)))) {}
  DeviceArray(Device& device, DType type, const std::vector<float>& values)
      : DeviceArray(device, type, int64_t(values.size())) {
    set(values);
  }
  DeviceArray(Device& device, const std::vector<int32_t>& values)
      : DeviceArray(device, DType::i32, int64_t(values.size())) {
    set(values);
  }

  void set(const std::vector<float>& values) {
    const std::vector<std::byte> bytes = encode(type_, values);
    device_.upload(memory_.data(), bytes.data(), bytes.size());
  }
  void set(const std::vector<int32_t>& values) {
    device_.upload(memory_.data(), values.data(), values.size() * 4);
  }
  std::vector<float> floats() const { return decode(type_, bytes()); }
  std::vector<int32_t> ints() const {
    std::vector<int32_t> out(static_cast<size_t>(n_));
    device_.download(out.data(), memory_.data(), out.size() * 4);
    return out;
  }
  std::vector<std::byte> bytes() const {
    std::vector<std::byte> out(size_t(bytes_of(type_, n_)));
    device_.download(out.data(), memory_.data(), out.size());
    return out;
  }

  std::byte* data() const { return memory_.data(); }
  template <class T>
  T* as() const {
    return memory_.as<T>();
  }
  Tensor list() const { return Tensor(memory_.data(), type_, {n_}); }
  Tensor matrix(int64_t rows) const { return Tensor(memory_.data(), type_, {rows, n_ / rows}); }

 private:
  Device& device_;
  DType type_;
  int64_t n_;
  Buffer memory_;
};

class KernelTest : public RuntimeTest {
 protected:
  KernelTest() {
    Result<std::shared_ptr<CudaDevice>> opened = CudaDevice::open(0);
    COHORT_CHECK_MSG(opened.ok(), opened.status().to_string());
    device_ = *opened;
  }
  ~KernelTest() override { emu::options() = {}; }

  CudaDevice& device() { return *device_; }
  cohort::Stream stream(DType activations) { return cohort::Stream(device_, activations, 1, true); }
  DeviceArray array(DType type, const std::vector<float>& values) {
    return DeviceArray(*device_, type, values);
  }
  DeviceArray zeros(DType type, int64_t n) { return DeviceArray(*device_, type, n); }
  DeviceArray ints(const std::vector<int32_t>& values) { return DeviceArray(*device_, values); }

  // f under every order in which threads of a block may run.
  void in_every_order(const std::function<void()>& f) {
    for (const emu::Order order : {emu::Order::forward, emu::Order::reverse, emu::Order::random}) {
      SCOPED_TRACE(testing::Message() << "order " << int(order));
      emu::options().order = order;
      f();
    }
    emu::options().order = emu::Order::forward;
  }

 private:
  std::shared_ptr<CudaDevice> device_;
};

}  // namespace cohort::test
