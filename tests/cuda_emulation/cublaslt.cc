// SPDX-License-Identifier: Apache-2.0
// The objects of the emulated cuBLASLt: library handle, operation, layouts, and the product call.
// What is not emulated is NOT_SUPPORTED or a link error, so that nothing passes silently.
#include <cublasLt.h>

#include <algorithm>
#include <string>
#include <utility>

#include "tests/cuda_emulation/cublaslt_problem.h"
#include "tests/cuda_emulation/runtime.h"

namespace {
using emu::blas::Layout;
using emu::blas::Operation;

Operation& as_operation(cublasLtMatmulDesc_t d) { return *reinterpret_cast<Operation*>(d); }
Layout& as_layout(cublasLtMatrixLayout_t l) { return *reinterpret_cast<Layout*>(l); }

const char* name_of(cublasStatus_t status) {
  switch (status) {
    case CUBLAS_STATUS_SUCCESS:
      return "CUBLAS_STATUS_SUCCESS";
    case CUBLAS_STATUS_NOT_INITIALIZED:
      return "CUBLAS_STATUS_NOT_INITIALIZED";
    case CUBLAS_STATUS_ALLOC_FAILED:
      return "CUBLAS_STATUS_ALLOC_FAILED";
    case CUBLAS_STATUS_INVALID_VALUE:
      return "CUBLAS_STATUS_INVALID_VALUE";
    case CUBLAS_STATUS_ARCH_MISMATCH:
      return "CUBLAS_STATUS_ARCH_MISMATCH";
    case CUBLAS_STATUS_MAPPING_ERROR:
      return "CUBLAS_STATUS_MAPPING_ERROR";
    case CUBLAS_STATUS_EXECUTION_FAILED:
      return "CUBLAS_STATUS_EXECUTION_FAILED";
    case CUBLAS_STATUS_INTERNAL_ERROR:
      return "CUBLAS_STATUS_INTERNAL_ERROR";
    case CUBLAS_STATUS_NOT_SUPPORTED:
      return "CUBLAS_STATUS_NOT_SUPPORTED";
    case CUBLAS_STATUS_LICENSE_ERROR:
      return "CUBLAS_STATUS_LICENSE_ERROR";
  }
  return "unknown cuBLAS status";
}

cublasStatus_t set_operation(Operation& x, cublasLtMatmulDescAttributes_t what, const void* v,
                             std::size_t n) {
  using emu::blas::only;
  using emu::blas::set_field;
  switch (what) {
    case CUBLASLT_MATMUL_DESC_COMPUTE_TYPE:
      return set_field(x.compute, v, n);
    case CUBLASLT_MATMUL_DESC_SCALE_TYPE:
      return set_field(x.scale_type, v, n);
    case CUBLASLT_MATMUL_DESC_TRANSA:
      return set_field(x.op_a, v, n);
    case CUBLASLT_MATMUL_DESC_TRANSB:
      return set_field(x.op_b, v, n);
    case CUBLASLT_MATMUL_DESC_TRANSC:
      return only<std::int32_t>(CUBLAS_OP_N, v, n);
    case CUBLASLT_MATMUL_DESC_POINTER_MODE:
      return only<std::int32_t>(CUBLASLT_POINTER_MODE_HOST, v, n);
    case CUBLASLT_MATMUL_DESC_EPILOGUE:
      return set_field(x.epilogue, v, n);
    case CUBLASLT_MATMUL_DESC_BIAS_POINTER:
      return set_field(x.bias, v, n);
    case CUBLASLT_MATMUL_DESC_BIAS_BATCH_STRIDE:
      return set_field(x.bias_batch_stride, v, n);
    case CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE:
      return set_field(x.bias_type, v, n);
    case CUBLASLT_MATMUL_DESC_SM_COUNT_TARGET:
      return set_field(x.sm_count_target, v, n);
    case CUBLASLT_MATMUL_DESC_FAST_ACCUM:
      return set_field(x.fast_accumulation, v, n);
    case CUBLASLT_MATMUL_DESC_A_SCALE_POINTER:
      return set_field(x.a_scale, v, n);
    case CUBLASLT_MATMUL_DESC_B_SCALE_POINTER:
      return set_field(x.b_scale, v, n);
    case CUBLASLT_MATMUL_DESC_C_SCALE_POINTER:
    case CUBLASLT_MATMUL_DESC_D_SCALE_POINTER:
    case CUBLASLT_MATMUL_DESC_AMAX_D_POINTER:
      return only<const void*>(nullptr, v, n);
    case CUBLASLT_MATMUL_DESC_A_SCALE_MODE:
    case CUBLASLT_MATMUL_DESC_B_SCALE_MODE:
      return only<std::int32_t>(CUBLASLT_MATMUL_MATRIX_SCALE_SCALAR_32F, v, n);
    default:
      return CUBLAS_STATUS_NOT_SUPPORTED;
  }
}

cublasStatus_t get_operation(const Operation& x, cublasLtMatmulDescAttributes_t what, void* v,
                             std::size_t n, std::size_t* written) {
  using emu::blas::get_field;
  switch (what) {
    case CUBLASLT_MATMUL_DESC_COMPUTE_TYPE:
      return get_field(x.compute, v, n, written);
    case CUBLASLT_MATMUL_DESC_SCALE_TYPE:
      return get_field(x.scale_type, v, n, written);
    case CUBLASLT_MATMUL_DESC_TRANSA:
      return get_field(x.op_a, v, n, written);
    case CUBLASLT_MATMUL_DESC_TRANSB:
      return get_field(x.op_b, v, n, written);
    case CUBLASLT_MATMUL_DESC_EPILOGUE:
      return get_field(x.epilogue, v, n, written);
    case CUBLASLT_MATMUL_DESC_BIAS_POINTER:
      return get_field(x.bias, v, n, written);
    case CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE:
      return get_field(x.bias_type, v, n, written);
    case CUBLASLT_MATMUL_DESC_SM_COUNT_TARGET:
      return get_field(x.sm_count_target, v, n, written);
    case CUBLASLT_MATMUL_DESC_FAST_ACCUM:
      return get_field(x.fast_accumulation, v, n, written);
    case CUBLASLT_MATMUL_DESC_A_SCALE_POINTER:
      return get_field(x.a_scale, v, n, written);
    case CUBLASLT_MATMUL_DESC_B_SCALE_POINTER:
      return get_field(x.b_scale, v, n, written);
    default:
      return CUBLAS_STATUS_NOT_SUPPORTED;
  }
}

cublasStatus_t set_layout(Layout& x, cublasLtMatrixLayoutAttribute_t what, const void* v,
                          std::size_t n) {
  using emu::blas::only;
  using emu::blas::set_field;
  switch (what) {
    case CUBLASLT_MATRIX_LAYOUT_TYPE:
      return set_field(x.type, v, n);
    case CUBLASLT_MATRIX_LAYOUT_ORDER:
      return set_field(x.order, v, n);
    case CUBLASLT_MATRIX_LAYOUT_ROWS:
      return set_field(x.rows, v, n);
    case CUBLASLT_MATRIX_LAYOUT_COLS:
      return set_field(x.cols, v, n);
    case CUBLASLT_MATRIX_LAYOUT_LD:
      return set_field(x.ld, v, n);
    case CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT:
      return set_field(x.batch, v, n);
    case CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET:
      return set_field(x.batch_stride, v, n);
    case CUBLASLT_MATRIX_LAYOUT_BATCH_MODE:
      return only<std::uint32_t>(CUBLASLT_BATCH_MODE_STRIDED, v, n);
    default:
      return CUBLAS_STATUS_NOT_SUPPORTED;
  }
}

bool aligned(const void* p, std::size_t bytes) {
  return reinterpret_cast<std::uintptr_t>(p) % bytes == 0;
}

// Sections "cublasLtMatmul()" (FP8, INT8: the addresses' alignment) and its workspace argument.
cublasStatus_t check_pointers(const emu::blas::Product& p, const emu::blas::Operands& x,
                              std::size_t needed, std::size_t given) {
  using emu::blas::width;
  const bool beta = x.beta != 0 || x.ibeta != 0;
  if (!x.a || !x.b || !x.d || (beta && !x.c)) return CUBLAS_STATUS_INVALID_VALUE;
  std::size_t least = 1;
  if (p.a.type == CUDA_R_8I) least = 4;
  if (p.a.type == CUDA_R_8F_E4M3) least = 16;
  for (auto [address, type] : {std::pair{x.a, p.a.type},
                               {x.b, p.b.type},
                               {x.c, p.c.type},
                               {static_cast<const void*>(x.d), p.d.type}})
    if (!aligned(address, std::max(least, width(type)))) return CUBLAS_STATUS_INVALID_VALUE;
  if (beta && x.c == x.d && (p.c.ld != p.d.ld || p.c.order != p.d.order))
    return CUBLAS_STATUS_INVALID_VALUE;  // in place only with one layout
  if (needed > 0 && (!x.workspace || needed > given || !aligned(x.workspace, 256)))
    return CUBLAS_STATUS_INVALID_VALUE;
  return CUBLAS_STATUS_SUCCESS;
}

std::string title(const emu::blas::Product& p, const emu::blas::Algorithm& algorithm) {
  return "cublasLtMatmul " + std::to_string(p.m) + "x" + std::to_string(p.n) + "x" +
         std::to_string(p.k) + " algorithm " + std::to_string(algorithm.id);
}
}  // namespace

extern "C" {
cublasStatus_t cublasLtCreate(cublasLtHandle_t* h) {
  if (!h) return CUBLAS_STATUS_INVALID_VALUE;
  *h = reinterpret_cast<cublasLtHandle_t>(new int{0});
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtDestroy(cublasLtHandle_t h) {
  delete reinterpret_cast<int*>(h);
  return CUBLAS_STATUS_SUCCESS;
}
size_t cublasLtGetVersion() { return CUBLAS_VERSION; }
const char* cublasLtGetStatusName(cublasStatus_t s) { return name_of(s); }
const char* cublasLtGetStatusString(cublasStatus_t s) { return name_of(s); }
const char* cublasGetStatusName(cublasStatus_t s) { return name_of(s); }
const char* cublasGetStatusString(cublasStatus_t s) { return name_of(s); }

cublasStatus_t cublasLtMatmulDescCreate(cublasLtMatmulDesc_t* d, cublasComputeType_t compute,
                                        cudaDataType scale) {
  auto* op = new Operation;
  op->compute = compute;
  op->scale_type = scale;
  *d = reinterpret_cast<cublasLtMatmulDesc_t>(op);
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulDescDestroy(cublasLtMatmulDesc_t d) {
  delete reinterpret_cast<Operation*>(d);
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t d,
                                              cublasLtMatmulDescAttributes_t what, const void* v,
                                              size_t n) {
  return set_operation(as_operation(d), what, v, n);
}
cublasStatus_t cublasLtMatmulDescGetAttribute(cublasLtMatmulDesc_t d,
                                              cublasLtMatmulDescAttributes_t what, void* v,
                                              size_t n, size_t* written) {
  return get_operation(as_operation(d), what, v, n, written);
}
cublasStatus_t cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t* l, cudaDataType type,
                                          uint64_t rows, uint64_t cols, int64_t ld) {
  auto* layout = new Layout;
  layout->type = type;
  layout->rows = rows;
  layout->cols = cols;
  layout->ld = ld;
  *l = reinterpret_cast<cublasLtMatrixLayout_t>(layout);
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatrixLayoutDestroy(cublasLtMatrixLayout_t l) {
  delete reinterpret_cast<Layout*>(l);
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatrixLayoutSetAttribute(cublasLtMatrixLayout_t l,
                                                cublasLtMatrixLayoutAttribute_t what, const void* v,
                                                size_t n) {
  return set_layout(as_layout(l), what, v, n);
}

cublasStatus_t cublasLtMatmul(cublasLtHandle_t h, cublasLtMatmulDesc_t desc, const void* alpha,
                              const void* A, cublasLtMatrixLayout_t la, const void* B,
                              cublasLtMatrixLayout_t lb, const void* beta, const void* C,
                              cublasLtMatrixLayout_t lc, void* D, cublasLtMatrixLayout_t ld,
                              const cublasLtMatmulAlgo_t* algo, void* workspace,
                              size_t workspace_bytes, cudaStream_t stream) {
  if (const int fault = emu::take_fault("cublasLtMatmul")) return cublasStatus_t(fault);
  if (!h || !desc || !alpha || !beta || !la || !lb || !lc || !ld)
    return CUBLAS_STATUS_INVALID_VALUE;
  emu::blas::Product p;
  if (auto status = emu::blas::describe(as_operation(desc), as_layout(la), as_layout(lb),
                                        as_layout(lc), as_layout(ld), &p))
    return status;
  emu::blas::Algorithm algorithm;
  if (algo) algorithm = emu::blas::load(*algo);
  if (!algo)
    if (auto status = emu::blas::default_algorithm(p, workspace_bytes, &algorithm)) return status;
  std::size_t needed = 0;
  if (auto status = emu::blas::check_algorithm(p, algorithm, &needed)) return status;
  emu::blas::Operands x{A, B, C, D, 0, 0, 0, 0, workspace};
  const bool whole = p.op.compute == CUBLAS_COMPUTE_32I;
  if (whole) std::memcpy(&x.ialpha, alpha, 4), std::memcpy(&x.ibeta, beta, 4);
  if (!whole) std::memcpy(&x.alpha, alpha, 4), std::memcpy(&x.beta, beta, 4);
  if (auto status = check_pointers(p, x, needed, workspace_bytes)) return status;
  const auto submitted = emu::submit(stream, [p, algorithm, x] {
    emu::Work work;
    work.what = title(p, algorithm);
    work.run = [p, algorithm, x] { emu::blas::multiply(p, algorithm, x); };
    return work;
  });
  return submitted == cudaSuccess ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_EXECUTION_FAILED;
}
}
