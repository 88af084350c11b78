// SPDX-License-Identifier: Apache-2.0
// Runs one kernel of planted_kernels.h under the race checker: race_program KERNEL right|planted.
// device_race_test looks at what it says.
#include <cstdio>
#include <cstring>
#include <string>
#include <vector>

#include "tests/cuda/planted_kernels.h"
#include "tests/cuda/run_kernel.h"

namespace cohort {
namespace {
using planted::kThreads;

// More streams than the race checker has fibers for, one after the other.
bool run_on_streams() {
  void* out = nullptr;
  if (cudaMallocHost(&out, sizeof(unsigned)) != cudaSuccess) return false;
  std::memset(out, 0, sizeof(unsigned));
  for (int i = 0; i < 9; ++i) {
    cudaStream_t stream = nullptr;
    if (cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking) != cudaSuccess ||
        gpu::launch(planted::count, 1, 1024, 0, stream, static_cast<unsigned*>(out), false) !=
            cudaSuccess ||
        cudaStreamSynchronize(stream) != cudaSuccess || cudaStreamDestroy(stream) != cudaSuccess)
      return false;
  }
  const bool right = *static_cast<unsigned*>(out) == 9 * 1024;
  return cudaFreeHost(out) == cudaSuccess && right;
}

bool run(const std::string& name, bool wrong) {
  emu::options().blocks_are_unordered = true;
  if (name == "streams") return run_on_streams();
  std::vector<uint4> in(kThreads), out(kThreads);
  const auto* floats_in = reinterpret_cast<const float*>(in.data());
  auto* floats = reinterpret_cast<float*>(out.data());
  if (name == "sum")
    run_kernel(1, kThreads, 512, [&] { planted::sum(floats_in, floats, wrong); });
  else if (name == "rounds")
    run_kernel(1, kThreads, 512, [&] { planted::rounds(floats_in, floats, wrong); });
  else if (name == "reverse_barrier")
    run_kernel(1, kThreads, kThreads * 16,
               [&] { planted::reverse_barrier(in.data(), out.data(), wrong); });
  else if (name == "swap_neighbours")
    run_kernel(1, kThreads, 0, [&] { planted::swap_neighbours(floats_in, floats, wrong); });
  else if (name == "count")
    run_kernel(3, kThreads, 0, [&] { planted::count(&out[0].x, wrong); });
  else if (name == "blocks")
    run_kernel(8, 32, 0, [&] { planted::blocks(reinterpret_cast<int*>(out.data()), wrong); });
  else
    return false;
  return true;
}
}  // namespace
}  // namespace cohort

int main(int argc, char** argv) {
  if (argc != 3 || !cohort::run(argv[1], std::strcmp(argv[2], "planted") == 0)) {
    std::fprintf(stderr, "usage: %s KERNEL right|planted\n", argv[0]);
    return 2;
  }
  return 0;
}
