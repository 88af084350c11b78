// SPDX-License-Identifier: Apache-2.0
// The emulated cuBLASLt against sums in double precision, and against the rules of the cuBLAS
// manual (docs.nvidia.com/cuda/cublas, chapter "Using the cublasLt API"; section in each test).
#include "tests/cuda/cublaslt_case.h"

#include <algorithm>
#include <cmath>
#include <type_traits>

#include "tests/cuda_emulation/runtime.h"

namespace cohort::test {
namespace {
class CublasLt : public ::testing::Test {
 protected:
  void SetUp() override {
    emu::reset();
    ASSERT_EQ(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), cudaSuccess);
  }
  void TearDown() override { EXPECT_EQ(cudaStreamDestroy(stream), cudaSuccess); }
  cudaStream_t stream{};
};

// Relative to the sum of magnitudes: f32 chains of k terms, one rounding of the output type.
template <class T>
double unit() {
  return std::is_same_v<T, float> ? 0 : std::is_same_v<T, __half> ? 1.0 / 2048 : 1.0 / 256;
}

template <class In, class Out>
void check(const Shape& s, int id, cudaStream_t stream, float beta = 0, bool bias = false) {
  Call call(s, TypeOf<In>::value, TypeOf<Out>::value);
  const auto a = numbers<In>(call.elements_a, 1), b = numbers<In>(call.elements_b, 2);
  const auto c = numbers<Out>(call.elements_d, 3), shift = numbers<Out>(s.m, 4);
  Device da(a.size() * sizeof(In)), db(b.size() * sizeof(In)), dc(c.size() * sizeof(Out));
  Device dd(c.size() * sizeof(Out)), dbias(shift.size() * sizeof(Out)), workspace(1 << 20);
  da.put(a), db.put(b), dc.put(c), dbias.put(shift);
  if (bias) {
    call.set(CUBLASLT_MATMUL_DESC_EPILOGUE, std::uint32_t{CUBLASLT_EPILOGUE_BIAS});
    call.set(CUBLASLT_MATMUL_DESC_BIAS_POINTER, dbias.p);
  }
  const float alpha = 0.75f;
  const auto algorithm = call.algorithm(id);
  ASSERT_EQ(
      cublasLtMatmul(call.handle, call.op, &alpha, da.p, call.a, db.p, call.b, &beta, dc.p, call.c,
                     dd.p, call.d, &algorithm.algo, workspace.p, workspace.bytes, stream),
      CUBLAS_STATUS_SUCCESS);
  ASSERT_EQ(cudaStreamSynchronize(stream), cudaSuccess);
  const auto d = dd.get<Out>();
  for (int q = 0; q < s.batch; ++q)
    for (std::size_t i = 0; i < s.m; ++i)
      for (std::size_t j = 0; j < s.n; ++j) {
        double sum = 0, size = 0;
        for (std::size_t k = 0; k < s.k; ++k) {
          const double x = double(float(a[call.at_a(i, k, q)])) * float(b[call.at_b(k, j, q)]);
          sum += x, size += std::abs(x);
        }
        const std::size_t at = call.at(i, j, s.m, s.n, q);
        const double want = alpha * sum + beta * float(c[at]) + (bias ? float(shift[i]) : 0.0f);
        const double allowed = (size + 2) * 1e-7 * double(s.k) / 2 + std::abs(want) * unit<Out>();
        ASSERT_NEAR(float(d[at]), want, allowed) << i << "," << j << " batch " << q << " id " << id;
      }
}

// Section "cublasLtMatmul()": D = alpha*(A*B) + beta*(C), types of its table.
TEST_F(CublasLt, MultipliesEveryEmulatedType) {
  const Shape s{33, 5, 70};
  for (int id = 0; id < 3; ++id) {
    check<float, float>(s, id, stream);
    check<__half, __half>(s, id, stream, 0.5f);
    check<__half, float>(s, id, stream);
    check<__nv_bfloat16, __nv_bfloat16>(s, id, stream, -1.5f, true);
    check<__nv_bfloat16, float>(s, id, stream, 0, true);
  }
}

// Section "cublasLtMatrixLayoutAttribute_t": order, leading dimension, batch count and stride.
TEST_F(CublasLt, TakesTransposesOrdersPaddingAndBatches) {
  for (auto order : {CUBLASLT_ORDER_COL, CUBLASLT_ORDER_ROW})
    for (bool ta : {false, true})
      for (bool tb : {false, true})
        check<__nv_bfloat16, float>({21, 18, 37, ta, tb, order, 3, 5}, 1, stream, 1.0f, true);
  for (int id = 0; id < 3; ++id)
    check<__half, float>({5, 200, 33, true, false, CUBLASLT_ORDER_ROW, 2, 1}, id, stream, 0.25f);
}

TEST_F(CublasLt, BlocksOfEveryRestAreExact) {
  for (std::size_t m : {1, 15, 16, 17, 65})
    for (std::size_t k : {1, 4, 255, 257, 514})
      for (int id = 0; id < 3; ++id)
        if (id != 2 || k > 1) check<__nv_bfloat16, float>({m, 3, k}, id, stream);
}

// Product of columns [0, n) of one B with one algorithm; bits of the f32 result.
std::vector<float> bits(std::size_t n, int id, cudaStream_t stream) {
  const Shape s{96, n, 333};
  Call call(s, CUDA_R_16BF, CUDA_R_32F);
  Device a(call.elements_a * 2), b(call.elements_b * 2), d(call.elements_d * 4), w(1 << 20);
  a.put(numbers<__nv_bfloat16>(call.elements_a, 1));
  b.put(numbers<__nv_bfloat16>(call.elements_b, 2));
  const float one = 1, zero = 0;
  const auto algorithm = call.algorithm(id);
  EXPECT_EQ(cublasLtMatmul(call.handle, call.op, &one, a.p, call.a, b.p, call.b, &zero, d.p, call.c,
                           d.p, call.d, &algorithm.algo, w.p, w.bytes, stream),
            CUBLAS_STATUS_SUCCESS);
  EXPECT_EQ(cudaStreamSynchronize(stream), cudaSuccess);
  return d.get<float>();
}

// What a caller gets who fixes an algorithm: the same bits for a row whatever the batch. What it
// gets who does not: other bits.
TEST_F(CublasLt, AnAlgorithmsBitsDoNotDependOnTheBatchAndDifferFromTheOthers) {
  std::vector<std::vector<float>> of_all;
  for (int id = 0; id < 3; ++id) {
    const auto most = bits(150, id, stream);
    for (std::size_t n : {1, 2, 16, 17, 97}) {
      const auto some = bits(n, id, stream);
      EXPECT_TRUE(std::equal(some.begin(), some.end(), most.begin())) << id << " " << n;
    }
    of_all.push_back(most);
  }
  EXPECT_NE(of_all[0], of_all[1]);
  EXPECT_NE(of_all[1], of_all[2]);
  EXPECT_NE(of_all[0], of_all[2]);
}

// Section "cublasLtMatmulAlgoGetHeuristic()": candidates in order of estimated time, within the
// preference's workspace.
TEST_F(CublasLt, HeuristicsRankByShapeWithinTheWorkspace) {
  auto first = [](std::size_t tokens) {
    Call call({256, tokens, 64}, CUDA_R_16BF, CUDA_R_16BF);
    int id = -1;
    EXPECT_EQ(cublasLtMatmulAlgoConfigGetAttribute(&call.heuristics(1).at(0).algo,
                                                   CUBLASLT_ALGO_CONFIG_ID, &id, 4, nullptr),
              CUBLAS_STATUS_SUCCESS);
    return id;
  };
  EXPECT_EQ(first(1), 2);
  EXPECT_EQ(first(64), 1);
  EXPECT_EQ(first(200), 0);
  Call call({64, 8, 64}, CUDA_R_16BF, CUDA_R_16BF);
  EXPECT_EQ(call.heuristics(2).size(), 2u);
  EXPECT_GE(call.heuristics(100).size(), 3u);
  EXPECT_EQ(call.heuristics(1)[0].workspaceSize, 2 * 64 * 8 * sizeof(float));
  const std::uint64_t none = 0;
  ASSERT_EQ(cublasLtMatmulPreferenceSetAttribute(
                call.preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &none, 8),
            CUBLAS_STATUS_SUCCESS);
  for (const auto& h : call.heuristics(100)) EXPECT_EQ(h.workspaceSize, 0u);
}

// Sections "cublasLtMatmulAlgoGetIds()", "...Init()", "...CapGetAttribute()",
// "...ConfigSetAttribute()" and "...Check()".
TEST_F(CublasLt, AlgorithmsAreMadeConfiguredAndChecked) {
  Call call({64, 8, 64}, CUDA_R_16BF, CUDA_R_16BF);
  int ids[8], got = 0;
  ASSERT_EQ(cublasLtMatmulAlgoGetIds(call.handle, CUBLAS_COMPUTE_32F, CUDA_R_32F, CUDA_R_16BF,
                                     CUDA_R_16BF, CUDA_R_16BF, CUDA_R_16BF, 8, ids, &got),
            CUBLAS_STATUS_SUCCESS);
  ASSERT_EQ(got, 3);
  cublasLtMatmulAlgo_t algo;
  ASSERT_EQ(cublasLtMatmulAlgoInit(call.handle, CUBLAS_COMPUTE_32F, CUDA_R_32F, CUDA_R_16BF,
                                   CUDA_R_16BF, CUDA_R_16BF, CUDA_R_16BF, 2, &algo),
            CUBLAS_STATUS_SUCCESS);
  auto set = [&](cublasLtMatmulAlgoConfigAttributes_t what, std::uint32_t value) {
    return cublasLtMatmulAlgoConfigSetAttribute(&algo, what, &value, sizeof value);
  };
  auto get = [&](cublasLtMatmulAlgoConfigAttributes_t what) {
    std::uint32_t value = 77;
    std::size_t written = 0;
    EXPECT_EQ(cublasLtMatmulAlgoConfigGetAttribute(&algo, what, &value, sizeof value, &written),
              CUBLAS_STATUS_SUCCESS);
    EXPECT_EQ(written, 4u);
    return value;
  };
  std::uint32_t tiles[64];
  std::size_t bytes = 0;
  ASSERT_EQ(cublasLtMatmulAlgoCapGetAttribute(&algo, CUBLASLT_ALGO_CAP_TILE_IDS, tiles,
                                              sizeof tiles, &bytes),
            CUBLAS_STATUS_SUCCESS);
  ASSERT_GE(bytes / 4, 2u);
  EXPECT_EQ(set(CUBLASLT_ALGO_CONFIG_TILE_ID, tiles[1]), CUBLAS_STATUS_SUCCESS);
  EXPECT_EQ(set(CUBLASLT_ALGO_CONFIG_SPLITK_NUM, 4), CUBLAS_STATUS_SUCCESS);
  EXPECT_EQ(set(CUBLASLT_ALGO_CONFIG_ID, 1), CUBLAS_STATUS_INVALID_VALUE) << "read-only";
  EXPECT_EQ(get(CUBLASLT_ALGO_CONFIG_ID), 2u);
  EXPECT_EQ(get(CUBLASLT_ALGO_CONFIG_TILE_ID), tiles[1]);
  EXPECT_EQ(get(CUBLASLT_ALGO_CONFIG_SPLITK_NUM), 4u);
  cublasLtMatmulHeuristicResult_t result{};
  auto check_it = [&] {
    return cublasLtMatmulAlgoCheck(call.handle, call.op, call.a, call.b, call.c, call.d, &algo,
                                   &result);
  };
  EXPECT_EQ(check_it(), CUBLAS_STATUS_NOT_SUPPORTED) << "split k without a reduction";
  EXPECT_EQ(set(CUBLASLT_ALGO_CONFIG_REDUCTION_SCHEME, CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE),
            CUBLAS_STATUS_SUCCESS);
  EXPECT_EQ(check_it(), CUBLAS_STATUS_SUCCESS);
  EXPECT_EQ(result.workspaceSize, 4 * 64 * 8 * sizeof(float));
  EXPECT_EQ(set(CUBLASLT_ALGO_CONFIG_TILE_ID, 9999), CUBLAS_STATUS_SUCCESS);
  EXPECT_EQ(check_it(), CUBLAS_STATUS_NOT_SUPPORTED);
  algo = {};
  EXPECT_EQ(check_it(), CUBLAS_STATUS_INVALID_VALUE);
}

// Section "cublasLtMatmul()", INT8 rows of the table and the five conditions of its IMMA kernels.
TEST_F(CublasLt, Int8IsExactAndOnlyTransposedTimesPlain) {
  const Shape s{20, 7, 132};
  Call call(s, CUDA_R_8I, CUDA_R_32I, CUBLAS_COMPUTE_32I, CUDA_R_32I);
  std::vector<std::int8_t> a(call.elements_a), b(call.elements_b);
  std::mt19937 random(5);
  for (auto* v : {&a, &b})
    for (auto& x : *v) x = std::int8_t(int(random() % 256) - 128);
  Device da(a.size()), db(b.size()), dd(call.elements_d * 4), workspace(1 << 20);
  da.put(a), db.put(b);
  const std::int32_t one = 1, zero = 0;
  const auto algorithm = call.heuristics(1).at(0);
  ASSERT_EQ(
      cublasLtMatmul(call.handle, call.op, &one, da.p, call.a, db.p, call.b, &zero, dd.p, call.c,
                     dd.p, call.d, &algorithm.algo, workspace.p, workspace.bytes, stream),
      CUBLAS_STATUS_SUCCESS);
  ASSERT_EQ(cudaStreamSynchronize(stream), cudaSuccess);
  const auto d = dd.get<std::int32_t>();
  for (std::size_t i = 0; i < s.m; ++i)
    for (std::size_t j = 0; j < s.n; ++j) {
      double sum = 0;
      for (std::size_t k = 0; k < s.k; ++k)
        sum += double(a[call.at_a(i, k, 0)]) * b[call.at_b(k, j, 0)];
      ASSERT_EQ(double(d[call.at(i, j, s.m, s.n, 0)]), sum);
    }
  int got = 0;
  cublasLtMatmulHeuristicResult_t result;
  for (const Shape& bad : {Shape{20, 7, 130}, {18, 7, 132}, {20, 8, 132, false}}) {
    Call wrong(bad, CUDA_R_8I, CUDA_R_32I, CUBLAS_COMPUTE_32I, CUDA_R_32I);
    EXPECT_EQ(cublasLtMatmulAlgoGetHeuristic(wrong.handle, wrong.op, wrong.a, wrong.b, wrong.c,
                                             wrong.d, wrong.preference, 1, &result, &got),
              CUBLAS_STATUS_NOT_SUPPORTED);
  }
}

// Same section, FP8 kernels: scalar scales of A and B in device memory, TN, multiples of 16.
TEST_F(CublasLt, Fp8TakesScalesFromTheDevice) {
  const Shape s{32, 3, 64};
  Call call(s, CUDA_R_8F_E4M3, CUDA_R_16BF);
  const auto a = numbers<__nv_fp8_e4m3>(call.elements_a, 1);
  const auto b = numbers<__nv_fp8_e4m3>(call.elements_b, 2);
  Device da(a.size()), db(b.size()), dd(call.elements_d * 2), scales(8), workspace(1 << 20);
  da.put(a), db.put(b), scales.put(std::vector<float>{0.5f, 3.0f});
  call.set(CUBLASLT_MATMUL_DESC_A_SCALE_POINTER, scales.p);
  call.set(CUBLASLT_MATMUL_DESC_B_SCALE_POINTER,
           static_cast<void*>(static_cast<float*>(scales.p) + 1));
  const float one = 1, zero = 0;
  const auto algorithm = call.algorithm(1);
  ASSERT_EQ(
      cublasLtMatmul(call.handle, call.op, &one, da.p, call.a, db.p, call.b, &zero, dd.p, call.c,
                     dd.p, call.d, &algorithm.algo, workspace.p, workspace.bytes, stream),
      CUBLAS_STATUS_SUCCESS);
  ASSERT_EQ(cudaStreamSynchronize(stream), cudaSuccess);
  const auto d = dd.get<__nv_bfloat16>();
  for (std::size_t i = 0; i < s.m; ++i)
    for (std::size_t j = 0; j < s.n; ++j) {
      double sum = 0;
      for (std::size_t k = 0; k < s.k; ++k)
        sum += double(float(a[call.at_a(i, k, 0)])) * float(b[call.at_b(k, j, 0)]);
      ASSERT_NEAR(float(d[call.at(i, j, s.m, s.n, 0)]), 1.5 * sum, std::abs(sum) / 128 + 1e-4);
    }
  int got = 0;
  cublasLtMatmulHeuristicResult_t result;
  for (const Shape& bad : {Shape{32, 16, 72}, {40, 16, 64}, {32, 16, 64, false}}) {
    Call wrong(bad, CUDA_R_8F_E4M3, CUDA_R_16BF);
    EXPECT_EQ(cublasLtMatmulAlgoGetHeuristic(wrong.handle, wrong.op, wrong.a, wrong.b, wrong.c,
                                             wrong.d, wrong.preference, 1, &result, &got),
              CUBLAS_STATUS_NOT_SUPPORTED);
  }
}

TEST_F(CublasLt, WhatIsNotEmulatedIsRefused) {
  Call call({64, 8, 64}, CUDA_R_16BF, CUDA_R_16BF);
  auto refused = [&](cublasLtMatmulDescAttributes_t what, std::int32_t value) {
    return cublasLtMatmulDescSetAttribute(call.op, what, &value, sizeof value);
  };
  EXPECT_EQ(refused(CUBLASLT_MATMUL_DESC_POINTER_MODE, CUBLASLT_POINTER_MODE_DEVICE),
            CUBLAS_STATUS_NOT_SUPPORTED);
  EXPECT_EQ(refused(CUBLASLT_MATMUL_DESC_A_SCALE_MODE, CUBLASLT_MATMUL_MATRIX_SCALE_VEC128_32F),
            CUBLAS_STATUS_NOT_SUPPORTED);
  EXPECT_EQ(refused(CUBLASLT_MATMUL_DESC_FILL_MODE, 0), CUBLAS_STATUS_NOT_SUPPORTED);
  call.set(CUBLASLT_MATMUL_DESC_EPILOGUE, std::uint32_t{CUBLASLT_EPILOGUE_GELU});
  int got = 0;
  cublasLtMatmulHeuristicResult_t result;
  EXPECT_EQ(cublasLtMatmulAlgoGetHeuristic(call.handle, call.op, call.a, call.b, call.c, call.d,
                                           call.preference, 1, &result, &got),
            CUBLAS_STATUS_NOT_SUPPORTED);
  Call fast({64, 8, 64}, CUDA_R_32F, CUDA_R_32F, CUBLAS_COMPUTE_32F_FAST_TF32);
  EXPECT_EQ(cublasLtMatmulAlgoGetHeuristic(fast.handle, fast.op, fast.a, fast.b, fast.c, fast.d,
                                           fast.preference, 1, &result, &got),
            CUBLAS_STATUS_NOT_SUPPORTED);
  Call mixed({64, 8, 64}, CUDA_R_16BF, CUDA_R_16F);
  EXPECT_EQ(cublasLtMatmulAlgoGetHeuristic(mixed.handle, mixed.op, mixed.a, mixed.b, mixed.c,
                                           mixed.d, mixed.preference, 1, &result, &got),
            CUBLAS_STATUS_NOT_SUPPORTED);
  EXPECT_STREQ(cublasLtGetStatusString(CUBLAS_STATUS_NOT_SUPPORTED), "CUBLAS_STATUS_NOT_SUPPORTED");
}

// Section "cublasLtMatmul()", its parameters and "CUBLAS_STATUS_INVALID_VALUE".
TEST_F(CublasLt, WrongOperandsAreInvalid) {
  const Shape s{64, 8, 64};
  Call call(s, CUDA_R_16BF, CUDA_R_16BF);
  Device a(call.elements_a * 2), b(call.elements_b * 2), d(call.elements_d * 2), w(1 << 20);
  a.put(numbers<__nv_bfloat16>(call.elements_a, 1));
  b.put(numbers<__nv_bfloat16>(call.elements_b, 2));
  const float one = 1, zero = 0;
  const auto split = call.algorithm(2);
  auto run = [&](void* workspace, std::size_t bytes, cublasLtMatrixLayout_t lb, void* out) {
    return cublasLtMatmul(call.handle, call.op, &one, a.p, call.a, b.p, lb, &zero, d.p, call.c, out,
                          call.d, &split.algo, workspace, bytes, stream);
  };
  EXPECT_EQ(run(w.p, w.bytes, call.b, d.p), CUBLAS_STATUS_SUCCESS);
  EXPECT_EQ(run(nullptr, 0, call.b, d.p), CUBLAS_STATUS_INVALID_VALUE);
  EXPECT_EQ(run(w.p, split.workspaceSize - 1, call.b, d.p), CUBLAS_STATUS_INVALID_VALUE);
  EXPECT_EQ(run(static_cast<char*>(w.p) + 16, 1 << 19, call.b, d.p), CUBLAS_STATUS_INVALID_VALUE);
  EXPECT_EQ(run(w.p, w.bytes, call.b, static_cast<char*>(d.p) + 1), CUBLAS_STATUS_INVALID_VALUE);
  EXPECT_EQ(run(w.p, w.bytes, call.a, d.p), CUBLAS_STATUS_INVALID_VALUE) << "shapes disagree";
  const std::int64_t too_short = 63;
  ASSERT_EQ(cublasLtMatrixLayoutSetAttribute(call.b, CUBLASLT_MATRIX_LAYOUT_LD, &too_short, 8),
            CUBLAS_STATUS_SUCCESS);
  EXPECT_EQ(run(w.p, w.bytes, call.b, d.p), CUBLAS_STATUS_INVALID_VALUE);
  EXPECT_EQ(cudaStreamSynchronize(stream), cudaSuccess);
}

// The product is work of its stream: captured, it runs at each launch and not before.
TEST_F(CublasLt, IsCapturedInGraphs) {
  const Shape s{64, 2, 32};
  Call call(s, CUDA_R_32F, CUDA_R_32F);
  Device a(call.elements_a * 4), b(call.elements_b * 4), d(call.elements_d * 4);
  a.put(std::vector<float>(call.elements_a, 0.5f));
  b.put(std::vector<float>(call.elements_b, 2.0f));
  d.put(std::vector<float>(call.elements_d, -1.0f));
  const float one = 1;
  const auto chain = call.algorithm(1);
  ASSERT_EQ(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal), cudaSuccess);
  ASSERT_EQ(cublasLtMatmul(call.handle, call.op, &one, a.p, call.a, b.p, call.b, &one, d.p, call.c,
                           d.p, call.d, &chain.algo, nullptr, 0, stream),
            CUBLAS_STATUS_SUCCESS);
  cudaGraph_t graph{};
  cudaGraphExec_t exec{};
  ASSERT_EQ(cudaStreamEndCapture(stream, &graph), cudaSuccess);
  ASSERT_EQ(cudaGraphInstantiate(&exec, graph, 0), cudaSuccess);
  EXPECT_EQ(d.get<float>()[0], -1.0f);
  for (int replay = 1; replay <= 3; ++replay) {
    ASSERT_EQ(cudaGraphLaunch(exec, stream), cudaSuccess);
    ASSERT_EQ(cudaStreamSynchronize(stream), cudaSuccess);
    EXPECT_EQ(d.get<float>(), std::vector<float>(call.elements_d, -1.0f + 32.0f * float(replay)));
  }
  ASSERT_EQ(cudaGraphExecDestroy(exec), cudaSuccess);
  ASSERT_EQ(cudaGraphDestroy(graph), cudaSuccess);
}
}  // namespace
}  // namespace cohort::test
