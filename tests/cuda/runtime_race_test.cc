// SPDX-License-Identifier: Apache-2.0
// ThreadSanitizer as a checker of streams: each is a thread to it, which only events, graph edges,
// launches and waits order. It finds a missing edge in any schedule, also where the result is
// right.
#include <cuda_runtime_api.h>

#include <cstdio>
#include <cstdlib>
#include <thread>

#include "tests/cuda/runtime_fixture.h"

namespace cohort::test {
namespace {
enum class Mistake { none, no_edge_between_streams, pinned_reused, read_early, no_edge_in_graph };

void increment(void* p) { ++*static_cast<int*>(p); }
void check(cudaError_t e) {
  if (e != cudaSuccess) std::abort();
}
void order(cudaStream_t from, cudaStream_t to) {
  Event e;
  check(cudaEventRecord(e, from));
  check(cudaStreamWaitEvent(to, e, 0));
}

void across_streams(Mistake mistake) {
  Stream a, b;
  Pinned<int> in(1), out(1);
  OnDevice<int> x(1);
  in[0] = 1;
  check(cudaMemcpyAsync(x, in, 4, cudaMemcpyHostToDevice, a));
  if (mistake == Mistake::pinned_reused) in[0] = 2;
  check(cudaLaunchHostFunc(a, increment, x));
  if (mistake != Mistake::no_edge_between_streams) order(a, b);
  check(cudaLaunchHostFunc(b, increment, x));
  check(cudaMemcpyAsync(out, x, 4, cudaMemcpyDeviceToHost, b));
  if (mistake == Mistake::read_early) std::fprintf(stderr, "%d\n", out[0]);
  check(cudaStreamSynchronize(b));
  if (out[0] < 2) std::abort();
  in[0] = 3;  // free again: b has waited for the copy
}

void in_graph(Mistake mistake) {
  Stream a, b;
  OnDevice<int> x(1);
  check(cudaMemsetAsync(x, 0, 4, a));
  check(cudaStreamSynchronize(a));
  check(cudaStreamBeginCapture(a, cudaStreamCaptureModeThreadLocal));
  order(a, b);
  check(cudaLaunchHostFunc(a, increment, x));
  if (mistake != Mistake::no_edge_in_graph) order(a, b);
  check(cudaLaunchHostFunc(b, increment, x));
  order(b, a);
  cudaGraph_t graph;
  cudaGraphExec_t exec;
  check(cudaStreamEndCapture(a, &graph));
  check(cudaGraphInstantiate(&exec, graph, 0));
  for (int i = 0; i < 3; ++i) check(cudaGraphLaunch(exec, a));
  check(cudaGraphLaunch(exec, b));
  check(cudaStreamSynchronize(b));
  check(cudaGraphExecDestroy(exec));
  check(cudaGraphDestroy(graph));
}

// One host thread enqueues, another one waits and runs what the first one left.
void across_host_threads() {
  emu::set_host_threads(0);
  Stream a, b;
  Pinned<int> out(1);
  OnDevice<int> x(1);
  std::thread([&] {
    check(cudaMemsetAsync(x, 0, 4, a));
    check(cudaLaunchHostFunc(a, increment, x));
    order(a, b);
  }).join();
  check(cudaMemcpyAsync(out, x, 4, cudaMemcpyDeviceToHost, b));
  while (cudaStreamQuery(b) == cudaErrorNotReady) {
  }
  if (out[0] != 1) std::abort();
}

[[noreturn]] void run_program(Mistake mistake) {
  across_streams(mistake);
  in_graph(mistake);
  across_host_threads();
  std::fprintf(stderr, "no report\n");
  std::exit(0);
}

class RuntimeRaceTest : public ::testing::TestWithParam<Mistake> {};

TEST_P(RuntimeRaceTest, OnlyMistakesAreReported) {
  ::testing::FLAGS_gtest_death_test_style = "threadsafe";
  if (GetParam() == Mistake::none)
    EXPECT_EXIT(run_program(GetParam()), ::testing::ExitedWithCode(0), "no report");
  else
    EXPECT_EXIT(run_program(GetParam()), ::testing::ExitedWithCode(66), "data race");
}

INSTANTIATE_TEST_SUITE_P(Mistakes, RuntimeRaceTest,
                         ::testing::Values(Mistake::none, Mistake::no_edge_between_streams,
                                           Mistake::pinned_reused, Mistake::read_early,
                                           Mistake::no_edge_in_graph));
}  // namespace
}  // namespace cohort::test
