// SPDX-License-Identifier: Apache-2.0
// One product of the emulated cuBLASLt with its descriptors and operands, for its tests.
#pragma once
#include <cublasLt.h>
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_fp8.h>
#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <random>
#include <tuple>
#include <vector>

namespace cohort::test {
template <class T>
struct TypeOf;
template <>
struct TypeOf<float> {
  static constexpr cudaDataType value = CUDA_R_32F;
};
template <>
struct TypeOf<__half> {
  static constexpr cudaDataType value = CUDA_R_16F;
};
template <>
struct TypeOf<__nv_bfloat16> {
  static constexpr cudaDataType value = CUDA_R_16BF;
};
template <>
struct TypeOf<__nv_fp8_e4m3> {
  static constexpr cudaDataType value = CUDA_R_8F_E4M3;
};

struct Device {  // memory that frees itself
  void* p = nullptr;
  std::size_t bytes;
  explicit Device(std::size_t n) : bytes(n) { EXPECT_EQ(cudaMalloc(&p, n), cudaSuccess); }
  Device(const Device&) = delete;
  ~Device() { EXPECT_EQ(cudaFree(p), cudaSuccess); }
  template <class T>
  void put(const std::vector<T>& v) {
    ASSERT_EQ(cudaMemcpy(p, v.data(), v.size() * sizeof(T), cudaMemcpyHostToDevice), cudaSuccess);
  }
  template <class T>
  std::vector<T> get() const {
    std::vector<T> v(bytes / sizeof(T));
    EXPECT_EQ(cudaMemcpy(v.data(), p, bytes, cudaMemcpyDeviceToHost), cudaSuccess);
    return v;
  }
};

struct Shape {
  std::size_t m, n, k;
  bool ta = true, tb = false;
  cublasLtOrder_t order = CUBLASLT_ORDER_COL;
  int batch = 1;
  std::size_t pad = 0;  // leading dimensions are this much longer than they need be
};

// One product with its descriptors.
struct Call {
  Shape s;
  cublasLtHandle_t handle{};
  cublasLtMatmulDesc_t op{};
  cublasLtMatrixLayout_t a{}, b{}, c{}, d{};
  cublasLtMatmulPreference_t preference{};
  std::size_t elements_a, elements_b, elements_d;

  static std::size_t line(const Shape& s, std::size_t rows, std::size_t cols) {
    return (s.order == CUBLASLT_ORDER_COL ? rows : cols) + s.pad;
  }
  static std::size_t size(const Shape& s, std::size_t rows, std::size_t cols) {
    return line(s, rows, cols) * (s.order == CUBLASLT_ORDER_COL ? cols : rows);
  }
  cublasLtMatrixLayout_t layout(cudaDataType type, std::size_t rows, std::size_t cols,
                                std::size_t* elements) const {
    cublasLtMatrixLayout_t l{};
    EXPECT_EQ(cublasLtMatrixLayoutCreate(&l, type, rows, cols, std::int64_t(line(s, rows, cols))),
              CUBLAS_STATUS_SUCCESS);
    *elements = size(s, rows, cols) * s.batch;
    const std::int32_t order = s.order, batch = s.batch;
    const std::int64_t stride = std::int64_t(size(s, rows, cols));
    for (auto [what, value, bytes] :
         {std::tuple{CUBLASLT_MATRIX_LAYOUT_ORDER, static_cast<const void*>(&order), sizeof order},
          {CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, &batch, sizeof batch},
          {CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, &stride, sizeof stride}})
      EXPECT_EQ(cublasLtMatrixLayoutSetAttribute(l, what, value, bytes), CUBLAS_STATUS_SUCCESS);
    return l;
  }
  Call(const Shape& shape, cudaDataType in, cudaDataType out,
       cublasComputeType_t compute = CUBLAS_COMPUTE_32F, cudaDataType scale = CUDA_R_32F)
      : s(shape) {
    EXPECT_EQ(cublasLtCreate(&handle), CUBLAS_STATUS_SUCCESS);
    EXPECT_EQ(cublasLtMatmulDescCreate(&op, compute, scale), CUBLAS_STATUS_SUCCESS);
    const std::int32_t ta = s.ta ? CUBLAS_OP_T : CUBLAS_OP_N, tb = s.tb ? CUBLAS_OP_T : CUBLAS_OP_N;
    set(CUBLASLT_MATMUL_DESC_TRANSA, ta);
    set(CUBLASLT_MATMUL_DESC_TRANSB, tb);
    a = layout(in, s.ta ? s.k : s.m, s.ta ? s.m : s.k, &elements_a);
    b = layout(in, s.tb ? s.n : s.k, s.tb ? s.k : s.n, &elements_b);
    c = layout(out, s.m, s.n, &elements_d);
    d = layout(out, s.m, s.n, &elements_d);
    EXPECT_EQ(cublasLtMatmulPreferenceCreate(&preference), CUBLAS_STATUS_SUCCESS);
    const std::uint64_t workspace = 1 << 20;
    EXPECT_EQ(cublasLtMatmulPreferenceSetAttribute(
                  preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &workspace, 8),
              CUBLAS_STATUS_SUCCESS);
  }
  Call(const Call&) = delete;
  ~Call() {
    for (auto l : {a, b, c, d}) EXPECT_EQ(cublasLtMatrixLayoutDestroy(l), CUBLAS_STATUS_SUCCESS);
    EXPECT_EQ(cublasLtMatmulDescDestroy(op), CUBLAS_STATUS_SUCCESS);
    EXPECT_EQ(cublasLtMatmulPreferenceDestroy(preference), CUBLAS_STATUS_SUCCESS);
    EXPECT_EQ(cublasLtDestroy(handle), CUBLAS_STATUS_SUCCESS);
  }
  template <class T>
  void set(cublasLtMatmulDescAttributes_t what, const T& value) {
    EXPECT_EQ(cublasLtMatmulDescSetAttribute(op, what, &value, sizeof value),
              CUBLAS_STATUS_SUCCESS);
  }
  std::vector<cublasLtMatmulHeuristicResult_t> heuristics(int want) const {
    std::vector<cublasLtMatmulHeuristicResult_t> found(want);
    int got = 0;
    EXPECT_EQ(cublasLtMatmulAlgoGetHeuristic(handle, op, a, b, c, d, preference, want, found.data(),
                                             &got),
              CUBLAS_STATUS_SUCCESS);
    found.resize(got);
    return found;
  }
  // The first candidate of this algorithm id.
  cublasLtMatmulHeuristicResult_t algorithm(int id) const {
    for (const auto& h : heuristics(32)) {
      int found = -1;
      EXPECT_EQ(cublasLtMatmulAlgoConfigGetAttribute(&h.algo, CUBLASLT_ALGO_CONFIG_ID, &found,
                                                     sizeof found, nullptr),
                CUBLAS_STATUS_SUCCESS);
      if (found == id) return h;
    }
    ADD_FAILURE() << "no algorithm " << id;
    return {};
  }
  // op(X) element (r, c) of one batch.
  std::size_t at(std::size_t r, std::size_t c_, std::size_t rows, std::size_t cols,
                 int index) const {
    const std::size_t l = line(s, rows, cols);
    return index * size(s, rows, cols) + (s.order == CUBLASLT_ORDER_COL ? r + c_ * l : r * l + c_);
  }
  std::size_t at_a(std::size_t i, std::size_t k, int index) const {
    return s.ta ? at(k, i, s.k, s.m, index) : at(i, k, s.m, s.k, index);
  }
  std::size_t at_b(std::size_t k, std::size_t j, int index) const {
    return s.tb ? at(j, k, s.n, s.k, index) : at(k, j, s.k, s.n, index);
  }
};

template <class T>
std::vector<T> numbers(std::size_t n, unsigned seed) {
  std::mt19937 random(seed);
  std::uniform_real_distribution<float> value(-1, 1);
  std::vector<T> v(n);
  for (auto& x : v) x = T(value(random));
  return v;
}

}  // namespace cohort::test
