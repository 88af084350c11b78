// SPDX-License-Identifier: Apache-2.0
// A view of densely packed, row-major memory: it owns nothing. The last dimension is contiguous.
#pragma once
#include <array>
#include <cstddef>
#include <cstdint>
#include <initializer_list>

#include "base/check.h"
#include "base/dtype.h"

namespace cohort {

class Tensor {
 public:
  static constexpr int kMaxRank = 4;

  Tensor() = default;
  Tensor(void* data, DType dtype, std::initializer_list<int64_t> shape)
      : data_(data), dtype_(dtype), rank_(int(shape.size())) {
    COHORT_CHECK_LE(rank_, kMaxRank);
    int i = 0;
    for (int64_t n : shape) shape_[size_t(i++)] = n;
  }
  // Const memory may be viewed by ops that only read.
  Tensor(const void* data, DType dtype, std::initializer_list<int64_t> shape)
      : Tensor(const_cast<void*>(data), dtype, shape) {}

  void* data() const { return data_; }
  template <class T>
  T* as() const {
    return static_cast<T*>(data_);
  }
  float* f32() const { return as<float>(); }
  int32_t* i32() const { return as<int32_t>(); }

  DType dtype() const { return dtype_; }
  int rank() const { return rank_; }
  int64_t dim(int i) const { return shape_[size_t(i < 0 ? rank_ + i : i)]; }
  int64_t rows() const { return rank_ > 0 ? elements() / dim(-1) : 0; }  // all but the last
  int64_t elements() const {
    int64_t n = 1;
    for (int i = 0; i < rank_; i++) n *= shape_[size_t(i)];
    return n;
  }
  int64_t bytes() const { return bytes_of(dtype_, elements()); }

  // Rows [begin, begin + count) of a matrix [rows, columns].
  Tensor slice_rows(int64_t begin, int64_t count) const {
    COHORT_CHECK_EQ(rank_, 2);
    COHORT_CHECK_LE(begin + count, dim(0));
    return Tensor(static_cast<std::byte*>(data_) + bytes_of(dtype_, begin * dim(1)), dtype_,
                  {count, dim(1)});
  }

 private:
  void* data_ = nullptr;
  DType dtype_ = DType::f32;
  int rank_ = 0;
  std::array<int64_t, kMaxRank> shape_{};
};

}  // namespace cohort
