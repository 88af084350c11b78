// SPDX-License-Identifier: Apache-2.0
// Which products the emulated cuBLASLt takes.
#include "tests/cuda_emulation/cublaslt_problem.h"

#include <utility>

namespace emu::blas {
namespace {
bool floating(cudaDataType t) { return t == CUDA_R_32F || t == CUDA_R_16F || t == CUDA_R_16BF; }

bool layout_valid(const Layout& l) {
  if (l.order != CUBLASLT_ORDER_COL && l.order != CUBLASLT_ORDER_ROW) return false;
  const auto inner = l.order == CUBLASLT_ORDER_COL ? l.rows : l.cols;
  return l.rows > 0 && l.cols > 0 && l.batch > 0 && l.ld >= std::int64_t(inner);
}

// Sections "cublasLtMatmul()", tables of FP8 and of INT8 (IMMA) kernels: transposed A, plain B,
// column order, m and k in multiples of 16 (fp8) or 4 (int8), and leading dimensions too.
cublasStatus_t check_narrow(const Product& p, std::size_t multiple) {
  for (const Layout* l : {&p.a, &p.b, &p.c, &p.d})
    if (l->order != CUBLASLT_ORDER_COL) return CUBLAS_STATUS_NOT_SUPPORTED;
  if (p.op.op_a != CUBLAS_OP_T || p.op.op_b != CUBLAS_OP_N) return CUBLAS_STATUS_NOT_SUPPORTED;
  if (p.m % multiple || p.k % multiple) return CUBLAS_STATUS_NOT_SUPPORTED;
  const auto bytes = multiple == 16 ? 16u : 4u;
  for (const Layout* l : {&p.a, &p.b, &p.c, &p.d})
    if (std::size_t(l->ld) * width(l->type) % bytes) return CUBLAS_STATUS_NOT_SUPPORTED;
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t check_epilogue(const Product& p) {
  if (p.op.epilogue == CUBLASLT_EPILOGUE_DEFAULT) return CUBLAS_STATUS_SUCCESS;
  if (p.op.epilogue != CUBLASLT_EPILOGUE_BIAS || p.op.compute == CUBLAS_COMPUTE_32I)
    return CUBLAS_STATUS_NOT_SUPPORTED;
  if (p.op.bias == nullptr) return CUBLAS_STATUS_INVALID_VALUE;
  const bool fits =
      p.op.bias_type == -1 || p.op.bias_type == p.d.type ||
      (p.a.type == CUDA_R_8F_E4M3 && p.d.type == CUDA_R_32F && p.op.bias_type == CUDA_R_16BF);
  return fits ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_NOT_SUPPORTED;
}

}  // namespace

std::size_t width(cudaDataType type) {
  switch (type) {
    case CUDA_R_8I:
    case CUDA_R_8F_E4M3:
      return 1;
    case CUDA_R_16F:
    case CUDA_R_16BF:
      return 2;
    case CUDA_R_32F:
    case CUDA_R_32I:
      return 4;
    default:
      return 0;
  }
}

View view(const Layout& l, const void* base, std::int32_t op, std::int32_t batch) {
  View v{static_cast<const char*>(base) + batch * l.batch_stride * std::int64_t(width(l.type)),
         l.type,
         l.rows,
         l.cols,
         1,
         l.ld};
  if (l.order == CUBLASLT_ORDER_ROW) std::swap(v.rs, v.cs);
  if (op == CUBLAS_OP_T) std::swap(v.rs, v.cs), std::swap(v.rows, v.cols);
  return v;
}

// Table of data types in section "cublasLtMatmul()" of the cuBLAS manual, what is emulated of it.
bool types_supported(cublasComputeType_t compute, cudaDataType scale, cudaDataType a,
                     cudaDataType b, cudaDataType c, cudaDataType d) {
  if (a != b || c != d) return false;
  if (compute == CUBLAS_COMPUTE_32I)
    return scale == CUDA_R_32I && a == CUDA_R_8I && d == CUDA_R_32I;
  if ((compute != CUBLAS_COMPUTE_32F && compute != CUBLAS_COMPUTE_32F_PEDANTIC) ||
      scale != CUDA_R_32F)
    return false;
  if (a == CUDA_R_8F_E4M3) return compute == CUBLAS_COMPUTE_32F && floating(d);
  return floating(a) && (d == CUDA_R_32F || d == a);
}

cublasStatus_t describe(const Operation& op, const Layout& a, const Layout& b, const Layout& c,
                        const Layout& d, Product* out) {
  for (const Layout* l : {&a, &b, &c, &d}) {
    if (width(l->type) == 0) return CUBLAS_STATUS_NOT_SUPPORTED;
    if (!layout_valid(*l)) return CUBLAS_STATUS_INVALID_VALUE;
  }
  for (auto o : {op.op_a, op.op_b})
    if (o != CUBLAS_OP_N && o != CUBLAS_OP_T) return CUBLAS_STATUS_NOT_SUPPORTED;
  *out = {op, a, b, c, d, d.rows, d.cols, 0};
  const View x = view(a, nullptr, op.op_a, 0), y = view(b, nullptr, op.op_b, 0);
  out->k = x.cols;
  if (x.rows != out->m || y.cols != out->n || y.rows != out->k || c.rows != d.rows ||
      c.cols != d.cols)
    return CUBLAS_STATUS_INVALID_VALUE;
  if (a.batch != d.batch || b.batch != d.batch || c.batch != d.batch)
    return CUBLAS_STATUS_INVALID_VALUE;
  if (!types_supported(op.compute, op.scale_type, a.type, b.type, c.type, d.type))
    return CUBLAS_STATUS_NOT_SUPPORTED;
  if (a.type != CUDA_R_8F_E4M3 && (op.a_scale || op.b_scale)) return CUBLAS_STATUS_NOT_SUPPORTED;
  if (auto status = check_epilogue(*out)) return status;
  if (width(a.type) == 1) return check_narrow(*out, a.type == CUDA_R_8I ? 4 : 16);
  return CUBLAS_STATUS_SUCCESS;
}

}  // namespace emu::blas
