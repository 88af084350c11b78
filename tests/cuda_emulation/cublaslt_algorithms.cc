// SPDX-License-Identifier: Apache-2.0
// The algorithms of the emulated cuBLASLt, how it ranks them and how they are configured.
#include <algorithm>
#include <array>
#include <iterator>
#include <vector>

#include "tests/cuda_emulation/cublaslt_problem.h"

namespace emu::blas {
namespace {
constexpr std::array<std::uint32_t, 3> kTileIds{
    CUBLASLT_MATMUL_TILE_64x64, CUBLASLT_MATMUL_TILE_128x64, CUBLASLT_MATMUL_TILE_128x128};
constexpr std::array<std::uint32_t, 2> kStageIds{CUBLASLT_MATMUL_STAGES_64x3,
                                                 CUBLASLT_MATMUL_STAGES_64x4};
constexpr std::uint32_t kMostSplits = 16;

struct Preference {
  std::uint32_t search_mode = CUBLASLT_SEARCH_BEST_FIT;
  std::uint64_t workspace = 0;  // bytes the caller can give
  std::uint32_t reductions = CUBLASLT_REDUCTION_SCHEME_MASK;
  std::array<std::uint32_t, 4> alignment{256, 256, 256, 256};  // A, B, C, D
  float waves = 0;
};
Preference& as_preference(cublasLtMatmulPreference_t p) {
  return *reinterpret_cast<Preference*>(p);
}

std::array<std::int32_t, 6> types_of(const Product& p) {
  return {p.op.compute, p.op.scale_type, p.a.type, p.b.type, p.c.type, p.d.type};
}

Algorithm algorithm(AlgorithmId id, const std::array<std::int32_t, 6>& types) {
  Algorithm a{};
  a.magic = kAlgorithmMagic;
  a.id = id;
  a.split_k = 1;
  std::copy(types.begin(), types.end(), a.types);
  return a;
}

void store(const Algorithm& a, cublasLtMatmulAlgo_t* out) {
  std::memset(out, 0, sizeof *out);
  std::memcpy(out, &a, sizeof a);
}

// The order in which the library would try algorithms: few rows of activations are bound by
// reading weights, and splitting k keeps more of the device busy; many rows are bound by tiles.
std::array<AlgorithmId, 3> ranking(const Product& p) {
  const auto tokens = std::min(p.m, p.n);
  if (tokens <= 16) return {kSplitK, kChain, kTiles};
  if (tokens <= 128) return {kChain, kSplitK, kTiles};
  return {kTiles, kChain, kSplitK};
}

std::vector<Algorithm> candidates(const Product& p, const Preference& preference) {
  std::vector<Algorithm> out;
  for (auto tile : kTileIds)
    for (AlgorithmId id : ranking(p)) {
      Algorithm a = algorithm(id, types_of(p));
      a.tile = tile;
      a.stages = kStageIds[0];
      if (id == kSplitK) a.split_k = 2, a.reduction = CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE;
      std::size_t workspace = 0;
      if (a.reduction & ~preference.reductions) continue;
      if (check_algorithm(p, a, &workspace) == CUBLAS_STATUS_SUCCESS &&
          workspace <= preference.workspace)
        out.push_back(a);
    }
  return out;
}

// Whether the addresses the caller promises are aligned well enough for the elements.
bool alignment_fits(const Product& p, const Preference& preference) {
  const std::size_t least = p.a.type == CUDA_R_8F_E4M3 ? 16 : p.a.type == CUDA_R_8I ? 4 : 1;
  const cudaDataType types[] = {p.a.type, p.b.type, p.c.type, p.d.type};
  for (int i = 0; i < 4; ++i)
    if (preference.alignment[i] < std::max(least, width(types[i]))) return false;
  return true;
}

template <std::size_t N>
cublasStatus_t get_list(const std::array<std::uint32_t, N>& list, void* out, std::size_t bytes,
                        std::size_t* written) {
  if (bytes == 0 && written == nullptr) return CUBLAS_STATUS_INVALID_VALUE;
  if (bytes != 0 && (out == nullptr || bytes % 4 != 0)) return CUBLAS_STATUS_INVALID_VALUE;
  const std::size_t n = bytes == 0 ? sizeof list : std::min(bytes, sizeof list);
  if (bytes != 0) std::memcpy(out, list.data(), n);
  if (written != nullptr) *written = n;
  return CUBLAS_STATUS_SUCCESS;
}
}  // namespace

cublasStatus_t check_algorithm(const Product& p, const Algorithm& a, std::size_t* workspace) {
  const auto types = types_of(p);
  // Not std::equal: the race checker sees into memcmp, and takes a stack for shared memory.
  bool same = a.magic == kAlgorithmMagic;
  for (std::size_t i = 0; i < types.size(); ++i) same &= types[i] == a.types[i];
  if (!same) return CUBLAS_STATUS_INVALID_VALUE;
  auto known = [](const auto& ids, std::uint32_t id) {
    return id == 0 || std::find(ids.begin(), ids.end(), id) != ids.end();
  };
  if (!known(kTileIds, a.tile) || !known(kStageIds, a.stages) || a.swizzle > 1 || a.custom != 0 ||
      a.inner_shape != 0 || a.cluster_shape != 0)
    return CUBLAS_STATUS_NOT_SUPPORTED;
  *workspace = 0;
  if (a.split_k <= 1)
    return a.reduction == CUBLASLT_REDUCTION_SCHEME_NONE ? CUBLAS_STATUS_SUCCESS
                                                         : CUBLAS_STATUS_NOT_SUPPORTED;
  if (a.id != kSplitK || a.split_k > kMostSplits || a.split_k > p.k ||
      a.reduction != CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE)
    return CUBLAS_STATUS_NOT_SUPPORTED;
  *workspace = p.m * p.n * sizeof(float) * a.split_k;
  return CUBLAS_STATUS_SUCCESS;
}

Algorithm load(const cublasLtMatmulAlgo_t& opaque) {
  Algorithm a;
  std::memcpy(&a, &opaque, sizeof a);
  return a;
}

cublasStatus_t default_algorithm(const Product& p, std::size_t workspace, Algorithm* out) {
  Preference preference;
  preference.workspace = workspace;
  const auto found = candidates(p, preference);
  if (found.empty()) return CUBLAS_STATUS_NOT_SUPPORTED;
  *out = found[0];
  return CUBLAS_STATUS_SUCCESS;
}
}  // namespace emu::blas

namespace {
using emu::blas::Algorithm;
using emu::blas::AlgorithmId;
using emu::blas::get_field;
using emu::blas::get_list;
using emu::blas::set_field;

cublasStatus_t product_of(cublasLtMatmulDesc_t op, cublasLtMatrixLayout_t a,
                          cublasLtMatrixLayout_t b, cublasLtMatrixLayout_t c,
                          cublasLtMatrixLayout_t d, emu::blas::Product* out) {
  using emu::blas::Layout;
  if (!op || !a || !b || !c || !d) return CUBLAS_STATUS_INVALID_VALUE;
  return emu::blas::describe(*reinterpret_cast<emu::blas::Operation*>(op),
                             *reinterpret_cast<Layout*>(a), *reinterpret_cast<Layout*>(b),
                             *reinterpret_cast<Layout*>(c), *reinterpret_cast<Layout*>(d), out);
}

bool valid(const cublasLtMatmulAlgo_t* algo) {
  return algo && emu::blas::load(*algo).magic == emu::blas::kAlgorithmMagic;
}
}  // namespace

extern "C" {
cublasStatus_t cublasLtMatmulPreferenceCreate(cublasLtMatmulPreference_t* p) {
  *p = reinterpret_cast<cublasLtMatmulPreference_t>(new emu::blas::Preference);
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulPreferenceDestroy(cublasLtMatmulPreference_t p) {
  delete reinterpret_cast<emu::blas::Preference*>(p);
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t p,
                                                    cublasLtMatmulPreferenceAttributes_t what,
                                                    const void* v, size_t n) {
  auto& x = emu::blas::as_preference(p);
  switch (what) {
    case CUBLASLT_MATMUL_PREF_SEARCH_MODE:
      return emu::blas::only<std::uint32_t>(CUBLASLT_SEARCH_BEST_FIT, v, n);
    case CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES:
      return set_field(x.workspace, v, n);
    case CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK:
      return set_field(x.reductions, v, n);
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES:
      return set_field(x.alignment[0], v, n);
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES:
      return set_field(x.alignment[1], v, n);
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES:
      return set_field(x.alignment[2], v, n);
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES:
      return set_field(x.alignment[3], v, n);
    case CUBLASLT_MATMUL_PREF_MAX_WAVES_COUNT:
      return set_field(x.waves, v, n);
    default:
      return CUBLAS_STATUS_NOT_SUPPORTED;
  }
}

cublasStatus_t cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t h, cublasLtMatmulDesc_t op,
                                              cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
                                              cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,
                                              cublasLtMatmulPreference_t preference, int want,
                                              cublasLtMatmulHeuristicResult_t* results, int* got) {
  if (!h || !got || !results || want <= 0) return CUBLAS_STATUS_INVALID_VALUE;
  *got = 0;
  emu::blas::Product p;
  if (auto status = product_of(op, a, b, c, d, &p)) return status;
  const auto wishes = preference ? emu::blas::as_preference(preference) : emu::blas::Preference{};
  if (!emu::blas::alignment_fits(p, wishes)) return CUBLAS_STATUS_NOT_SUPPORTED;
  const auto found = emu::blas::candidates(p, wishes);
  if (found.empty()) return CUBLAS_STATUS_NOT_SUPPORTED;
  *got = std::min<int>(want, int(found.size()));
  for (int i = 0; i < *got; ++i) {
    results[i] = {};
    emu::blas::store(found[i], &results[i].algo);
    results[i].state = emu::blas::check_algorithm(p, found[i], &results[i].workspaceSize);
    results[i].wavesCount = 1;
  }
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulAlgoGetIds(cublasLtHandle_t, cublasComputeType_t compute,
                                        cudaDataType_t scale, cudaDataType_t a, cudaDataType_t b,
                                        cudaDataType_t c, cudaDataType_t d, int want, int* ids,
                                        int* got) {
  if (!ids || !got || want <= 0) return CUBLAS_STATUS_INVALID_VALUE;
  *got = 0;
  if (!emu::blas::types_supported(compute, scale, a, b, c, d)) return CUBLAS_STATUS_NOT_SUPPORTED;
  *got = std::min<int>(want, emu::blas::kAlgorithms);
  for (int i = 0; i < *got; ++i) ids[i] = i;
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulAlgoInit(cublasLtHandle_t, cublasComputeType_t compute,
                                      cudaDataType_t scale, cudaDataType_t a, cudaDataType_t b,
                                      cudaDataType_t c, cudaDataType_t d, int id,
                                      cublasLtMatmulAlgo_t* algo) {
  if (!algo || id < 0 || id >= emu::blas::kAlgorithms) return CUBLAS_STATUS_INVALID_VALUE;
  if (!emu::blas::types_supported(compute, scale, a, b, c, d)) return CUBLAS_STATUS_NOT_SUPPORTED;
  emu::blas::store(emu::blas::algorithm(AlgorithmId(id), {compute, scale, a, b, c, d}), algo);
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulAlgoCheck(cublasLtHandle_t, cublasLtMatmulDesc_t op,
                                       cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
                                       cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,
                                       const cublasLtMatmulAlgo_t* algo,
                                       cublasLtMatmulHeuristicResult_t* result) {
  if (!valid(algo) || !result) return CUBLAS_STATUS_INVALID_VALUE;
  emu::blas::Product p;
  auto status = product_of(op, a, b, c, d, &p);
  if (!status)
    status = emu::blas::check_algorithm(p, emu::blas::load(*algo), &result->workspaceSize);
  result->state = status;
  result->wavesCount = 1;
  return status;
}

cublasStatus_t cublasLtMatmulAlgoCapGetAttribute(const cublasLtMatmulAlgo_t* algo,
                                                 cublasLtMatmulAlgoCapAttributes_t what, void* v,
                                                 size_t n, size_t* written) {
  if (!valid(algo)) return CUBLAS_STATUS_INVALID_VALUE;
  const Algorithm a = emu::blas::load(*algo);
  const bool splits = a.id == emu::blas::kSplitK;
  using I = std::int32_t;
  using U = std::uint32_t;
  switch (what) {
    case CUBLASLT_ALGO_CAP_SPLITK_SUPPORT:
      return get_field(I{splits}, v, n, written);
    case CUBLASLT_ALGO_CAP_REDUCTION_SCHEME_MASK:
      return get_field(U(splits ? CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE : 0), v, n, written);
    case CUBLASLT_ALGO_CAP_CTA_SWIZZLING_SUPPORT:
      return get_field(U{1}, v, n, written);
    case CUBLASLT_ALGO_CAP_STRIDED_BATCH_SUPPORT:
    case CUBLASLT_ALGO_CAP_OUT_OF_PLACE_RESULT_SUPPORT:
      return get_field(I{1}, v, n, written);
    case CUBLASLT_ALGO_CAP_UPLO_SUPPORT:
    case CUBLASLT_ALGO_CAP_CUSTOM_OPTION_MAX:
    case CUBLASLT_ALGO_CAP_CUSTOM_MEMORY_ORDER:
    case CUBLASLT_ALGO_CAP_LD_NEGATIVE:
    case CUBLASLT_ALGO_CAP_POINTER_ARRAY_BATCH_SUPPORT:
      return get_field(I{0}, v, n, written);
    case CUBLASLT_ALGO_CAP_POINTER_MODE_MASK:
      return get_field(U{CUBLASLT_POINTER_MODE_MASK_HOST}, v, n, written);
    case CUBLASLT_ALGO_CAP_EPILOGUE_MASK:
      return get_field(U{CUBLASLT_EPILOGUE_DEFAULT | CUBLASLT_EPILOGUE_BIAS}, v, n, written);
    case CUBLASLT_ALGO_CAP_TILE_IDS:
      return get_list(emu::blas::kTileIds, v, n, written);
    case CUBLASLT_ALGO_CAP_STAGES_IDS:
      return get_list(emu::blas::kStageIds, v, n, written);
    default:
      return CUBLAS_STATUS_NOT_SUPPORTED;
  }
}

cublasStatus_t cublasLtMatmulAlgoConfigSetAttribute(cublasLtMatmulAlgo_t* algo,
                                                    cublasLtMatmulAlgoConfigAttributes_t what,
                                                    const void* v, size_t n) {
  if (!valid(algo)) return CUBLAS_STATUS_INVALID_VALUE;
  Algorithm a = emu::blas::load(*algo);
  cublasStatus_t status = CUBLAS_STATUS_INVALID_VALUE;
  switch (what) {
    case CUBLASLT_ALGO_CONFIG_ID:
      return CUBLAS_STATUS_INVALID_VALUE;  // read-only
    case CUBLASLT_ALGO_CONFIG_TILE_ID:
      status = set_field(a.tile, v, n);
      break;
    case CUBLASLT_ALGO_CONFIG_STAGES_ID:
      status = set_field(a.stages, v, n);
      break;
    case CUBLASLT_ALGO_CONFIG_SPLITK_NUM:
      status = set_field(a.split_k, v, n);
      break;
    case CUBLASLT_ALGO_CONFIG_REDUCTION_SCHEME:
      status = set_field(a.reduction, v, n);
      break;
    case CUBLASLT_ALGO_CONFIG_CTA_SWIZZLING:
      status = set_field(a.swizzle, v, n);
      break;
    case CUBLASLT_ALGO_CONFIG_CUSTOM_OPTION:
      status = set_field(a.custom, v, n);
      break;
    case CUBLASLT_ALGO_CONFIG_INNER_SHAPE_ID:
      status = set_field(a.inner_shape, v, n);
      break;
    case CUBLASLT_ALGO_CONFIG_CLUSTER_SHAPE_ID:
      status = set_field(a.cluster_shape, v, n);
      break;
    default:
      return CUBLAS_STATUS_NOT_SUPPORTED;
  }
  if (!status) emu::blas::store(a, algo);
  return status;
}

cublasStatus_t cublasLtMatmulAlgoConfigGetAttribute(const cublasLtMatmulAlgo_t* algo,
                                                    cublasLtMatmulAlgoConfigAttributes_t what,
                                                    void* v, size_t n, size_t* written) {
  if (!valid(algo)) return CUBLAS_STATUS_INVALID_VALUE;
  const Algorithm a = emu::blas::load(*algo);
  switch (what) {
    case CUBLASLT_ALGO_CONFIG_ID:
      return get_field(a.id, v, n, written);
    case CUBLASLT_ALGO_CONFIG_TILE_ID:
      return get_field(a.tile, v, n, written);
    case CUBLASLT_ALGO_CONFIG_STAGES_ID:
      return get_field(a.stages, v, n, written);
    case CUBLASLT_ALGO_CONFIG_SPLITK_NUM:
      return get_field(a.split_k, v, n, written);
    case CUBLASLT_ALGO_CONFIG_REDUCTION_SCHEME:
      return get_field(a.reduction, v, n, written);
    case CUBLASLT_ALGO_CONFIG_CTA_SWIZZLING:
      return get_field(a.swizzle, v, n, written);
    case CUBLASLT_ALGO_CONFIG_CUSTOM_OPTION:
      return get_field(a.custom, v, n, written);
    case CUBLASLT_ALGO_CONFIG_INNER_SHAPE_ID:
      return get_field(a.inner_shape, v, n, written);
    case CUBLASLT_ALGO_CONFIG_CLUSTER_SHAPE_ID:
      return get_field(a.cluster_shape, v, n, written);
    default:
      return CUBLAS_STATUS_NOT_SUPPORTED;
  }
}
}
