// SPDX-License-Identifier: Apache-2.0
// What tests of matrix products on a GPU share: activations of any type up and results down as
// floats, and products through the ops.
#pragma once
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <memory>
#include <vector>

#include "base/device_cuda.h"
#include "base/half.h"
#include "kernels/ops.h"
#include "tests/cuda_emulation/device.h"
#include "tests/cuda_emulation/runtime.h"
#include "tests/kernels/reference.h"

namespace cohort::test {

inline uint16_t narrowed(DType type, float x) {
  return type == DType::f16 ? float_to_half(x) : float_to_bf16(x);
}
inline float widened(DType type, uint16_t bits) {
  return type == DType::f16 ? half_to_float(bits) : bf16_to_float(bits);
}

// The nearest values of the type.
inline std::vector<float> rounded(std::vector<float> values, DType type) {
  if (type != DType::f32)
    for (float& x : values) x = widened(type, narrowed(type, x));
  return values;
}

// Largest rounding error of a value of that size.
inline double half_ulp(DType type, double value) {
  if (type == DType::f32) return 0;
  return std::abs(value) * (type == DType::f16 ? 0x1p-11 : 0x1p-8) + 0x1p-25;
}

// A GPU of its own per test.
class ProductTest : public testing::Test {
 protected:
  ProductTest() {
    emu::reset();
    gpu_ = CudaDevice::open(0).value();
  }
  ~ProductTest() override {
    EXPECT_THAT(emu::reports(), testing::IsEmpty());
    emu::options() = {};
  }

  std::unique_ptr<Stream> stream(DType activations, bool fixed_order = false) const {
    return std::make_unique<Stream>(gpu_, activations, 1, fixed_order);
  }
  Buffer up(const std::vector<float>& values, DType type) const {
    std::vector<std::byte> bytes(size_t(bytes_of(type, int64_t(values.size()))));
    for (size_t i = 0; i < values.size(); i++) {
      const uint16_t bits = narrowed(type, values[i]);
      if (type == DType::f32)
        std::memcpy(&bytes[i * 4], &values[i], 4);
      else
        std::memcpy(&bytes[i * 2], &bits, 2);
    }
    Buffer buffer = gpu_->allocate(bytes.size());
    gpu_->upload(buffer.data(), bytes.data(), bytes.size());
    return buffer;
  }
  std::vector<float> down(const Buffer& buffer, DType type, size_t count) const {
    std::vector<std::byte> bytes(size_t(bytes_of(type, int64_t(count))));
    gpu_->download(bytes.data(), buffer.data(), bytes.size());
    std::vector<float> values(count);
    for (size_t i = 0; i < count; i++) {
      uint16_t bits;
      std::memcpy(&bits, &bytes[i * 2], 2);
      if (type == DType::f32)
        std::memcpy(&values[i], &bytes[i * 4], 4);
      else
        values[i] = widened(type, bits);
    }
    return values;
  }

  // x [rows, w.columns]; y [pieces, rows, w.rows]. What lies behind y must stay as it was.
  std::vector<float> multiply(Stream& stream, const std::vector<float>& x, int64_t rows,
                              const Matrix& w, ActivationMode mode, DType out = DType::f32,
                              std::vector<UnitRange> pieces = {}) const {
    if (pieces.empty()) pieces.push_back({0, w.units()});
    const DType in = stream.activations();
    const Buffer input = up(x, in);
    const size_t count = pieces.size() * size_t(rows * w.rows());
    const Buffer y = up(std::vector<float>(count + 64, -7.0f), out);
    Activations activations(stream, rows, w.columns(), mode);
    ops::prepare(stream, activations, Tensor(input.data(), in, {rows, w.columns()}));
    ops::matmul(stream, Tensor(y.data(), out, {int64_t(pieces.size()), rows, w.rows()}),
                activations, w, pieces);
    std::vector<float> all = down(y, out, count + 64);
    for (size_t i = count; i < all.size(); i++) EXPECT_EQ(all[i], -7.0f) << "behind the result";
    all.resize(count);
    return all;
  }

  std::shared_ptr<CudaDevice> gpu_;
};

// The first rows of a matrix [.., columns].
inline std::vector<float> head(const std::vector<float>& x, int64_t rows, int64_t columns) {
  return {x.begin(), x.begin() + rows * columns};
}

}  // namespace cohort::test
