// SPDX-License-Identifier: Apache-2.0
// ThreadSanitizer as a checker of what cuBLASLt and NCCL calls touch: their results are right in
// these programs also where an edge between streams is missing.
#include <cublasLt.h>

#include <cstdio>
#include <cstdlib>

#include "tests/cuda/nccl_ranks.h"
#include "tests/cuda/runtime_fixture.h"

namespace cohort::test {
namespace {
enum class Mistake {
  none,
  shared_workspace,
  product_before_reduce,
  reduce_before_use,
  send_reused
};

template <class T>
void check(T result) {
  if (int(result) != 0) std::abort();
}
void order(cudaStream_t from, cudaStream_t to) {
  Event e;
  check(cudaEventRecord(e, from));
  check(cudaStreamWaitEvent(to, e, 0));
}

// Products of 16 x 16 matrices that split k, on two streams.
void products(bool shared) {
  const std::size_t n = 16, bytes = n * n * 4;
  cublasLtHandle_t handle;
  cublasLtMatmulDesc_t op;
  cublasLtMatrixLayout_t layout;
  cublasLtMatmulAlgo_t algo;
  check(cublasLtCreate(&handle));
  check(cublasLtMatmulDescCreate(&op, CUBLAS_COMPUTE_32F, CUDA_R_32F));
  check(cublasLtMatrixLayoutCreate(&layout, CUDA_R_32F, n, n, n));
  check(cublasLtMatmulAlgoInit(handle, CUBLAS_COMPUTE_32F, CUDA_R_32F, CUDA_R_32F, CUDA_R_32F,
                               CUDA_R_32F, CUDA_R_32F, 2, &algo));
  const std::uint32_t parts = 2, scheme = CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE;
  check(cublasLtMatmulAlgoConfigSetAttribute(&algo, CUBLASLT_ALGO_CONFIG_SPLITK_NUM, &parts, 4));
  check(cublasLtMatmulAlgoConfigSetAttribute(&algo, CUBLASLT_ALGO_CONFIG_REDUCTION_SCHEME, &scheme,
                                             4));
  Stream a, b;
  OnDevice<char> in(bytes), x(bytes), y(bytes), first(2 * bytes), second(2 * bytes);
  check(cudaMemsetAsync(in, 0, bytes, a));
  order(a, b);
  const float one = 1, zero = 0;
  auto multiply = [&](char* out, char* workspace, cudaStream_t s) {
    check(cublasLtMatmul(handle, op, &one, in, layout, in, layout, &zero, out, layout, out, layout,
                         &algo, workspace, 2 * bytes, s));
  };
  multiply(x, first, a);
  multiply(y, shared ? first : second, b);
  check(cudaStreamSynchronize(a));
  check(cudaStreamSynchronize(b));
  check(cublasLtMatrixLayoutDestroy(layout));
  check(cublasLtMatmulDescDestroy(op));
  check(cublasLtDestroy(handle));
}

// Two ranks: fill a buffer, add it up on another stream, read it back on the first.
void reductions(Mistake mistake) {
  const auto thrown = on_ranks(2, [=](Rank& r) {
    Stream compute;
    OnDevice<float> x(64), other(64);
    check(cudaMemsetAsync(x, 0, 256, compute));
    if (mistake != Mistake::product_before_reduce) order(compute, r.stream);
    check(ncclAllReduce(x, x, 64, ncclFloat32, ncclSum, r.comm, r.stream));
    if (mistake != Mistake::reduce_before_use) order(r.stream, compute);
    check(cudaMemcpyAsync(other, x, 256, cudaMemcpyDeviceToDevice, compute));
    order(compute, r.stream);
    check(ncclGroupStart());
    check(ncclSend(other, 64, ncclFloat32, 1 - r.rank, r.comm, r.stream));
    check(ncclRecv(x, 64, ncclFloat32, 1 - r.rank, r.comm, r.stream));
    check(ncclGroupEnd());
    if (mistake != Mistake::send_reused) order(r.stream, compute);
    check(cudaMemsetAsync(other, 1, 256, compute));
    check(cudaStreamSynchronize(compute));
    r.sync();
  });
  for (const auto& what : thrown)
    if (!what.empty()) std::abort();
}

[[noreturn]] void run_program(Mistake mistake) {
  products(mistake == Mistake::shared_workspace);
  reductions(mistake);
  std::fprintf(stderr, "no report\n");
  std::exit(0);
}

class LibrariesRaceTest : public ::testing::TestWithParam<Mistake> {};

TEST_P(LibrariesRaceTest, OnlyMistakesAreReported) {
  ::testing::FLAGS_gtest_death_test_style = "threadsafe";
  if (GetParam() == Mistake::none)
    EXPECT_EXIT(run_program(GetParam()), ::testing::ExitedWithCode(0), "no report");
  else
    EXPECT_EXIT(run_program(GetParam()), ::testing::ExitedWithCode(66), "data race");
}

INSTANTIATE_TEST_SUITE_P(Mistakes, LibrariesRaceTest,
                         ::testing::Values(Mistake::none, Mistake::shared_workspace,
                                           Mistake::product_before_reduce,
                                           Mistake::reduce_before_use, Mistake::send_reused));
}  // namespace
}  // namespace cohort::test
