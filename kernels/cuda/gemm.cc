// SPDX-License-Identifier: Apache-2.0
// cuBLASLt thinks in columns: a row-major matrix is its transpose. So y = x w^T is asked for as
// y^T [n, rows] = op(w^T) [n, k] x^T [k, rows], with op = transpose and nothing moved.
#include "kernels/cuda/gemm.h"

#include <algorithm>
#include <array>
#include <bit>
#include <tuple>

#include "base/check.h"

namespace cohort::cuda {
namespace {

constexpr size_t kWorkspace = size_t(32) << 20;  // what NVIDIA's manual advises for Hopper
// Every algorithm wants at most this; 16 is what wide loads need.
constexpr int64_t kMostAlignment = 16;
// In fixed order one algorithm serves every product of the same k and types. It is chosen for this
// shape: enough rows to fill tiles, few enough that decoding does not suffer much.
constexpr int64_t kFixedRows = 64, kFixedColumns = 4096;
constexpr int kCandidates = 32;

void check(cublasStatus_t status, const char* call) {
  if (status == CUBLAS_STATUS_SUCCESS) return;
  throw Failure(
      internal_error(concat(call, " failed: ", cublasLtGetStatusString(status),
                            "; the library must be cuBLAS 13 and the GPU's memory not exhausted")));
}

cudaDataType cuda_type(DType type) {
  if (type == DType::f16) return CUDA_R_16F;
  if (type == DType::bf16) return CUDA_R_16BF;
  COHORT_CHECK(type == DType::f32);
  return CUDA_R_32F;
}

int64_t element_bytes(DType type) { return info(type).block_bytes; }

// The largest power of two that divides all of them, at most kMostAlignment.
int64_t alignment(const void* p, int64_t row_bytes, int64_t batch_bytes) {
  const uint64_t all = std::bit_cast<uintptr_t>(p) | uint64_t(row_bytes) | uint64_t(batch_bytes);
  return int64_t(std::min<uint64_t>(all & (~all + 1), uint64_t(kMostAlignment)));
}

struct Alignments {
  int64_t w, x, y;
  explicit Alignments(const Gemm& g) {
    const auto of = [](const void* p, int64_t stride, int64_t batch, DType type) {
      return alignment(p, stride * element_bytes(type), batch * element_bytes(type));
    };
    w = of(g.w, g.w_stride, g.w_batch, g.in);
    x = of(g.x, g.x_stride, g.x_batch, g.in);
    y = of(g.y, g.y_stride, g.y_batch, g.out);
  }
};

// An object of the library with its destructor.
template <class T, cublasStatus_t (*destroy)(T)>
class Owned {
 public:
  Owned() = default;
  ~Owned() {
    if (value_ != nullptr) (void)destroy(value_);
  }
  Owned(const Owned&) = delete;
  Owned& operator=(const Owned&) = delete;
  T* address() { return &value_; }
  T get() const { return value_; }

 private:
  T value_ = nullptr;
};

class Layout {
 public:
  Layout(DType type, int64_t rows, int64_t columns, int64_t stride, int32_t batch,
         int64_t batch_stride) {
    check(cublasLtMatrixLayoutCreate(layout_.address(), cuda_type(type), uint64_t(rows),
                                     uint64_t(columns), stride),
          "cublasLtMatrixLayoutCreate");
    if (batch == 1) return;
    check(cublasLtMatrixLayoutSetAttribute(get(), CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, &batch,
                                           sizeof batch),
          "cublasLtMatrixLayoutSetAttribute");
    check(cublasLtMatrixLayoutSetAttribute(get(), CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET,
                                           &batch_stride, sizeof batch_stride),
          "cublasLtMatrixLayoutSetAttribute");
  }
  cublasLtMatrixLayout_t get() const { return layout_.get(); }

 private:
  Owned<cublasLtMatrixLayout_t, cublasLtMatrixLayoutDestroy> layout_;
};

// What cuBLASLt is asked for.
struct Description {
  explicit Description(const Gemm& g)
      : w(g.in, g.k, g.n, g.w_stride, g.batch, g.w_batch),
        x(g.in, g.k, g.rows, g.x_stride, g.batch, g.x_batch),
        y(g.out, g.n, g.rows, g.y_stride, g.batch, g.y_batch) {
    // Plain COMPUTE_32F may turn f32 into TF32 where the environment says so; pedantic never does.
    const cublasComputeType_t compute =
        g.in == DType::f32 ? CUBLAS_COMPUTE_32F_PEDANTIC : CUBLAS_COMPUTE_32F;
    check(cublasLtMatmulDescCreate(operation.address(), compute, CUDA_R_32F),
          "cublasLtMatmulDescCreate");
    const cublasOperation_t transpose = CUBLAS_OP_T;
    check(cublasLtMatmulDescSetAttribute(operation.get(), CUBLASLT_MATMUL_DESC_TRANSA, &transpose,
                                         sizeof transpose),
          "cublasLtMatmulDescSetAttribute");
  }
  Owned<cublasLtMatmulDesc_t, cublasLtMatmulDescDestroy> operation;
  Layout w, x, y;
};

class Preference {
 public:
  Preference(const Alignments& align, bool fixed_order) {
    check(cublasLtMatmulPreferenceCreate(preference_.address()), "cublasLtMatmulPreferenceCreate");
    set(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, uint64_t(kWorkspace));
    set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, uint32_t(align.w));
    set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, uint32_t(align.x));
    set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, uint32_t(align.y));
    set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, uint32_t(align.y));
    if (fixed_order)
      set(CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, uint32_t(CUBLASLT_REDUCTION_SCHEME_NONE));
  }
  cublasLtMatmulPreference_t get() const { return preference_.get(); }

 private:
  template <class T>
  void set(cublasLtMatmulPreferenceAttributes_t what, T value) {
    check(cublasLtMatmulPreferenceSetAttribute(get(), what, &value, sizeof value),
          "cublasLtMatmulPreferenceSetAttribute");
  }
  Owned<cublasLtMatmulPreference_t, cublasLtMatmulPreferenceDestroy> preference_;
};

template <class T>
T configuration(const cublasLtMatmulAlgo_t& algorithm, cublasLtMatmulAlgoConfigAttributes_t what) {
  T value{};
  size_t written = 0;
  check(cublasLtMatmulAlgoConfigGetAttribute(&algorithm, what, &value, sizeof value, &written),
        "cublasLtMatmulAlgoConfigGetAttribute");
  return value;
}

// Whether k is one chain of one block of threads.
bool unsplit(const cublasLtMatmulAlgo_t& algorithm) {
  const auto splits = configuration<int32_t>(algorithm, CUBLASLT_ALGO_CONFIG_SPLITK_NUM);
  const auto scheme = configuration<uint32_t>(algorithm, CUBLASLT_ALGO_CONFIG_REDUCTION_SCHEME);
  return (splits == 0 || splits == 1) && scheme == CUBLASLT_REDUCTION_SCHEME_NONE;
}

// rows (a bucket), n, batch; k, in, out; alignments of w, x, y.
using Key = std::array<int64_t, 9>;

std::string shape(const Gemm& g) {
  return concat("[", g.rows, ", ", g.k, "] x [", g.n, ", ", g.k, "] of ", name(g.in), " to ",
                name(g.out), g.batch > 1 ? concat(", ", g.batch, " times") : "");
}

}  // namespace

struct GemmTable::Impl {
  struct Chosen {
    cublasLtMatmulAlgo_t algorithm;
    size_t workspace;
  };

  CudaDevice& device;
  const bool fixed_order;
  cublasLtHandle_t handle = nullptr;
  Buffer workspace;
  std::map<Key, Chosen> chosen;

  Key key(const Gemm& g, const Alignments& a) const {
    const auto bucket = int64_t(std::bit_ceil(uint64_t(g.rows)));
    const auto in = int64_t(g.in), out = int64_t(g.out);
    // Neither n nor the batch may choose in fixed order: ranks hold different shares of both.
    if (fixed_order) return {0, 0, 0, g.k, in, out, a.w, a.x, a.y};
    return {bucket, g.n, g.batch, g.k, in, out, a.w, a.x, a.y};
  }

  // The shape that stands for all those of its key.
  Gemm canonical(Gemm g) const {
    g.rows = int64_t(std::bit_ceil(uint64_t(g.rows)));
    if (!fixed_order) return g;
    g.rows = kFixedRows;
    g.n = kFixedColumns;
    g.batch = 1;
    // Strides that hold such rows and are aligned as the real ones are.
    g.y_stride += (kFixedColumns / kMostAlignment + 1) * kMostAlignment;
    return g;
  }

  Chosen choose(const Gemm& g, const Alignments& alignments) const {
    const Gemm asked = canonical(g);
    const Description description(asked);
    const Preference preference(alignments, fixed_order);
    std::array<cublasLtMatmulHeuristicResult_t, kCandidates> results{};
    int found = 0;
    check(cublasLtMatmulAlgoGetHeuristic(handle, description.operation.get(), description.w.get(),
                                         description.x.get(), description.y.get(),
                                         description.y.get(), preference.get(), kCandidates,
                                         results.data(), &found),
          "cublasLtMatmulAlgoGetHeuristic");
    for (int i = 0; i < found; i++) {
      const auto& result = results[size_t(i)];
      if (result.state == CUBLAS_STATUS_SUCCESS && (!fixed_order || unsplit(result.algo)))
        return {result.algo, result.workspaceSize};
    }
    throw Failure(unimplemented(concat("cuBLASLt has no algorithm for ", shape(g),
                                       fixed_order ? " in a fixed order" : "")));
  }

  const Chosen& algorithm(const Gemm& g) {
    const Alignments alignments(g);
    const Key k = key(g, alignments);
    const auto known = chosen.find(k);
    if (known != chosen.end()) return known->second;
    const Chosen fresh = choose(g, alignments);
    if (fresh.workspace > 0 && workspace.size() == 0) workspace = device.allocate(kWorkspace);
    return chosen.emplace(k, fresh).first->second;
  }
};

GemmTable::GemmTable(CudaDevice& device, bool fixed_order)
    : impl_(std::make_unique<Impl>(device, fixed_order)) {
  device.use();
  check(cublasLtCreate(&impl_->handle), "cublasLtCreate");
}

GemmTable::~GemmTable() { (void)cublasLtDestroy(impl_->handle); }

void GemmTable::run(const Gemm& g) {
  if (g.rows == 0 || g.n == 0 || g.batch == 0) return;
  COHORT_CHECK_LT(0, g.k);
  COHORT_CHECK(g.out == DType::f32 || g.out == g.in);
  const Impl::Chosen& chosen = impl_->algorithm(g);
  const Description d(g);
  const float one = 1, zero = 0;
  const cublasStatus_t status =
      cublasLtMatmul(impl_->handle, d.operation.get(), &one, g.w, d.w.get(), g.x, d.x.get(), &zero,
                     g.y, d.y.get(), g.y, d.y.get(), &chosen.algorithm, impl_->workspace.data(),
                     impl_->workspace.size(), impl_->device.compute());
  if (status != CUBLAS_STATUS_SUCCESS)
    throw Failure(internal_error(
        concat("cublasLtMatmul of ", shape(g), " failed: ", cublasLtGetStatusString(status))));
}

size_t GemmTable::remembered() const { return impl_->chosen.size(); }

}  // namespace cohort::cuda
