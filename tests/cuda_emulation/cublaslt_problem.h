// SPDX-License-Identifier: Apache-2.0
// What the emulated cuBLASLt knows of a product: D = alpha * op(A) op(B) + beta * C (+ bias).
// Sections "cublasLtMatmul()" and "cublasLt Datatypes Reference" of the cuBLAS manual.
#pragma once
#include <cublasLt.h>

#include <cstddef>
#include <cstdint>
#include <cstring>

namespace emu::blas {

struct Operation {
  cublasComputeType_t compute = CUBLAS_COMPUTE_32F;
  cudaDataType scale_type = CUDA_R_32F;
  std::int32_t op_a = CUBLAS_OP_N, op_b = CUBLAS_OP_N;
  std::uint32_t epilogue = CUBLASLT_EPILOGUE_DEFAULT;
  const void* bias = nullptr;
  std::int64_t bias_batch_stride = 0;  // elements
  std::int32_t bias_type = -1;         // -1: the type of D
  const float* a_scale = nullptr;      // fp8 only, device memory; null: 1
  const float* b_scale = nullptr;
  std::int32_t sm_count_target = 0;  // accepted, changes nothing here
  std::int8_t fast_accumulation = 0;
};

struct Layout {
  cudaDataType type = CUDA_R_32F;
  std::uint64_t rows = 0, cols = 0;
  std::int64_t ld = 0;  // elements between columns (order col) or rows (order row)
  std::int32_t order = CUBLASLT_ORDER_COL;
  std::int32_t batch = 1;
  std::int64_t batch_stride = 0;  // elements
};

// One matrix of one batch as op(X) sees it: element (r, c) is at base + (r * rs + c * cs) elements.
struct View {
  const char* base;
  cudaDataType type;
  std::size_t rows, cols;
  std::ptrdiff_t rs, cs;
};

struct Product {
  Operation op;
  Layout a, b, c, d;
  std::size_t m = 0, n = 0, k = 0;
};

// The three algorithms differ in the order of their sums over k and in nothing else. Each gives an
// element of D the same bits whatever m, n, its place and the batch are.
enum AlgorithmId : std::int32_t {
  kTiles = 0,   // BLAS on tiles of a fixed shape
  kChain = 1,   // one chain of f32 additions from k = 0 upwards
  kSplitK = 2,  // chains over parts of k, their sums added in a workspace
  kAlgorithms = 3
};

// What cublasLtMatmulAlgo_t holds; it is plain data, as in the library.
struct Algorithm {
  std::uint32_t magic;
  std::int32_t id;
  std::uint32_t tile, stages, split_k, reduction, swizzle, custom;
  std::uint16_t inner_shape, cluster_shape;
  std::int32_t types[6];  // compute, scale, A, B, C, D
};
static_assert(sizeof(Algorithm) <= sizeof(cublasLtMatmulAlgo_t));
inline constexpr std::uint32_t kAlgorithmMagic = 0x616c676f;

std::size_t width(cudaDataType type);  // bytes; 0: not emulated
View view(const Layout& layout, const void* base, std::int32_t op, std::int32_t batch);

// Fills m, n and k, and checks shapes, layouts and types against what the library takes.
cublasStatus_t describe(const Operation& op, const Layout& a, const Layout& b, const Layout& c,
                        const Layout& d, Product* out);
bool types_supported(cublasComputeType_t compute, cudaDataType scale, cudaDataType a,
                     cudaDataType b, cudaDataType c, cudaDataType d);
// Whether the algorithm can do this product, and the workspace it needs for it, in bytes.
cublasStatus_t check_algorithm(const Product& p, const Algorithm& algorithm,
                               std::size_t* workspace);
Algorithm load(const cublasLtMatmulAlgo_t& opaque);
// The algorithm the library would take when the caller names none.
cublasStatus_t default_algorithm(const Product& p, std::size_t workspace, Algorithm* out);

struct Operands {
  const void *a, *b, *c;
  void* d;
  float alpha, beta;           // compute type 32F
  std::int32_t ialpha, ibeta;  // compute type 32I
  void* workspace;
};
void multiply(const Product& p, const Algorithm& algorithm, const Operands& x);

// Sum over k of a(i, k) * b(k, j) for all i < m and j < n, into z[i * zi + j * zj].
void sum_products(const Algorithm& algorithm, const View& a, const View& b, float* workspace,
                  float* z, std::size_t zi, std::size_t zj);
// n elements that lie `stride` elements apart, as f32.
void widen(const char* base, cudaDataType type, std::size_t n, std::ptrdiff_t stride, float* out);

// Attributes are set and read by size, as in the library.
template <class T>
cublasStatus_t set_field(T& field, const void* value, std::size_t bytes) {
  if (value == nullptr || bytes != sizeof(T)) return CUBLAS_STATUS_INVALID_VALUE;
  std::memcpy(&field, value, bytes);
  return CUBLAS_STATUS_SUCCESS;
}
// An attribute that may only have the one value that is emulated.
template <class T>
cublasStatus_t only(T wanted, const void* value, std::size_t bytes) {
  T given;
  if (auto status = set_field(given, value, bytes)) return status;
  return given == wanted ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_NOT_SUPPORTED;
}
template <class T>
cublasStatus_t get_field(const T& field, void* value, std::size_t bytes, std::size_t* written) {
  if (bytes == 0 && written == nullptr) return CUBLAS_STATUS_INVALID_VALUE;
  if (bytes != 0 && (value == nullptr || bytes != sizeof(T))) return CUBLAS_STATUS_INVALID_VALUE;
  if (bytes != 0) std::memcpy(value, &field, sizeof(T));
  if (written != nullptr) *written = sizeof(T);
  return CUBLAS_STATUS_SUCCESS;
}

}  // namespace emu::blas
