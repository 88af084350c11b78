// SPDX-License-Identifier: Apache-2.0
// cublasLtMatmul for bf16/f16/f32 operands with f32 accumulation, on OpenBLAS.
#include <cblas.h>
#include <cublasLt.h>
#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstring>
#include <vector>

#include "tests/cuda_emulation/runtime.h"

namespace {
struct Desc {
  cublasOperation_t ta = CUBLAS_OP_N, tb = CUBLAS_OP_N;
  cublasLtEpilogue_t epilogue = CUBLASLT_EPILOGUE_DEFAULT;
  const void* bias = nullptr;
};
struct Layout {
  cudaDataType type;
  std::uint64_t rows, cols;
  std::int64_t ld;
  std::int32_t batch = 1;
  std::int64_t stride = 0;
};
template <class T>
T& as(void* p) {
  return *static_cast<T*>(p);
}

float get(const void* p, cudaDataType t, size_t i) {
  switch (t) {
    case CUDA_R_32F:
      return static_cast<const float*>(p)[i];
    case CUDA_R_16BF:
      return float(static_cast<const __nv_bfloat16*>(p)[i]);
    case CUDA_R_16F:
      return float(static_cast<const __half*>(p)[i]);
    default:
      emu::raise("this matmul type is not emulated");
  }
}
void put(void* p, cudaDataType t, size_t i, float v) {
  switch (t) {
    case CUDA_R_32F:
      static_cast<float*>(p)[i] = v;
      break;
    case CUDA_R_16BF:
      static_cast<__nv_bfloat16*>(p)[i] = __float2bfloat16(v);
      break;
    case CUDA_R_16F:
      static_cast<__half*>(p)[i] = __float2half(v);
      break;
    default:
      emu::raise("this matmul type is not emulated");
  }
}
std::vector<float> widen(const void* p, const Layout& l, int b) {
  std::vector<float> v(l.rows * l.cols);
  const size_t size = l.type == CUDA_R_32F ? 4 : 2;
  for (std::uint64_t c = 0; c < l.cols; ++c)
    emu::reads(static_cast<const char*>(p) + (size_t(b) * l.stride + c * l.ld) * size,
               l.rows * size);
  for (std::uint64_t c = 0; c < l.cols; ++c)
    for (std::uint64_t r = 0; r < l.rows; ++r)
      v[c * l.rows + r] = get(p, l.type, size_t(b) * l.stride + c * l.ld + r);
  return v;
}
}  // namespace

extern "C" {
cublasStatus_t cublasLtCreate(cublasLtHandle_t* h) {
  *h = reinterpret_cast<cublasLtHandle_t>(new int);
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtDestroy(cublasLtHandle_t h) {
  delete reinterpret_cast<int*>(h);
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulDescCreate(cublasLtMatmulDesc_t* d, cublasComputeType_t,
                                        cudaDataType) {
  *d = reinterpret_cast<cublasLtMatmulDesc_t>(new Desc);
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulDescDestroy(cublasLtMatmulDesc_t d) {
  delete reinterpret_cast<Desc*>(d);
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t d,
                                              cublasLtMatmulDescAttributes_t a, const void* v,
                                              size_t n) {
  Desc& x = as<Desc>(d);
  switch (a) {
    case CUBLASLT_MATMUL_DESC_TRANSA:
      std::memcpy(&x.ta, v, n);
      break;
    case CUBLASLT_MATMUL_DESC_TRANSB:
      std::memcpy(&x.tb, v, n);
      break;
    case CUBLASLT_MATMUL_DESC_EPILOGUE:
      std::memcpy(&x.epilogue, v, n);
      break;
    case CUBLASLT_MATMUL_DESC_BIAS_POINTER:
      std::memcpy(&x.bias, v, n);
      break;
    default:
      return CUBLAS_STATUS_NOT_SUPPORTED;  // an attribute nobody emulates must not pass silently
  }
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t* l, cudaDataType t, uint64_t r,
                                          uint64_t c, int64_t ld) {
  if (ld < int64_t(r)) return CUBLAS_STATUS_INVALID_VALUE;
  *l = reinterpret_cast<cublasLtMatrixLayout_t>(new Layout{t, r, c, ld});
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatrixLayoutDestroy(cublasLtMatrixLayout_t l) {
  delete reinterpret_cast<Layout*>(l);
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatrixLayoutSetAttribute(cublasLtMatrixLayout_t l,
                                                cublasLtMatrixLayoutAttribute_t a, const void* v,
                                                size_t n) {
  Layout& x = as<Layout>(l);
  switch (a) {
    case CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT:
      std::memcpy(&x.batch, v, n);
      break;
    case CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET:
      std::memcpy(&x.stride, v, n);
      break;
    default:
      return CUBLAS_STATUS_NOT_SUPPORTED;
  }
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulPreferenceCreate(cublasLtMatmulPreference_t* p) {
  *p = reinterpret_cast<cublasLtMatmulPreference_t>(new int);
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulPreferenceDestroy(cublasLtMatmulPreference_t p) {
  delete reinterpret_cast<int*>(p);
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t,
                                                    cublasLtMatmulPreferenceAttributes_t,
                                                    const void*, size_t) {
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t, cublasLtMatmulDesc_t,
                                              cublasLtMatrixLayout_t, cublasLtMatrixLayout_t,
                                              cublasLtMatrixLayout_t, cublasLtMatrixLayout_t,
                                              cublasLtMatmulPreference_t, int want,
                                              cublasLtMatmulHeuristicResult_t* r, int* got) {
  *got = want > 0;
  if (want) {
    std::memset(r, 0, sizeof *r);
    r->state = CUBLAS_STATUS_SUCCESS;
  }
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmul(cublasLtHandle_t, cublasLtMatmulDesc_t desc, const void* alpha,
                              const void* A, cublasLtMatrixLayout_t la, const void* B,
                              cublasLtMatrixLayout_t lb, const void* beta, const void* C,
                              cublasLtMatrixLayout_t lc, void* D, cublasLtMatrixLayout_t ld,
                              const cublasLtMatmulAlgo_t*, void*, size_t, cudaStream_t s) {
  const Desc d = as<Desc>(desc);
  const Layout a = as<Layout>(la), b = as<Layout>(lb), c = as<Layout>(lc), o = as<Layout>(ld);
  const float al = *static_cast<const float*>(alpha), be = *static_cast<const float*>(beta);
  const auto m = d.ta == CUBLAS_OP_N ? a.rows : a.cols, k = d.ta == CUBLAS_OP_N ? a.cols : a.rows;
  const auto kb = d.tb == CUBLAS_OP_N ? b.rows : b.cols, n = d.tb == CUBLAS_OP_N ? b.cols : b.rows;
  if (k != kb || m != o.rows || n != o.cols || a.batch != o.batch)
    return CUBLAS_STATUS_INVALID_VALUE;
  emu::submit(s, [=] {
    return emu::Work{
        "cublasLtMatmul",
        {},
        {},
        [=] {
          for (int i = 0; i < o.batch; ++i) {
            auto x = widen(A, a, i), y = widen(B, b, i);
            auto z = be ? widen(C, c, i) : std::vector<float>(m * n);
            cblas_sgemm(CblasColMajor, d.ta == CUBLAS_OP_N ? CblasNoTrans : CblasTrans,
                        d.tb == CUBLAS_OP_N ? CblasNoTrans : CblasTrans, int(m), int(n), int(k), al,
                        x.data(), int(a.rows), y.data(), int(b.rows), be, z.data(), int(m));
            const size_t size = o.type == CUDA_R_32F ? 4 : 2;
            for (std::uint64_t q = 0; q < n; ++q)
              emu::writes(static_cast<char*>(D) + (size_t(i) * o.stride + q * o.ld) * size,
                          m * size);
            for (std::uint64_t q = 0; q < n; ++q)
              for (std::uint64_t r = 0; r < m; ++r) {
                float v = z[q * m + r];
                if (d.epilogue == CUBLASLT_EPILOGUE_BIAS) v += get(d.bias, o.type, r);
                put(D, o.type, size_t(i) * o.stride + q * o.ld + r, v);
              }
          }
        },
        {}};
  });
  return CUBLAS_STATUS_SUCCESS;
}
}
