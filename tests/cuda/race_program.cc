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

bool run(const std::string& name, bool wrong) {
  emu::options().blocks_are_unordered = true;
  std::vector<uint4> in(kThreads), out(kThreads);
  const auto* floats_in = reinterpret_cast<const float*>(in.data());
  auto* floats = reinterpret_cast<float*>(out.data());
  if (name == "sum")
    run_kernel(1, kThreads, 512, [&] { planted::sum(floats_in, floats, wrong); });
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
