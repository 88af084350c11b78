// SPDX-License-Identifier: Apache-2.0
// Latency of an all-reduce among the ranks that mpirun has started: for each size
// the median over rounds of the mean time of a call, with the shortest and longest. Between calls
// every rank fills its vector anew, as a matrix product would: the cost of that alone is printed
// too.
//   mpirun -n 2 comm_bench shm|mpi [rounds]
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <numeric>

#include "comm/communicator.h"

namespace cohort {
namespace {

constexpr int64_t kCounts[] = {0, 512, 576, 2048, 4608, 8192, 32768, 147456, 262144};

class Bench {
 public:
  Bench(Communicator& comm, int rounds) : comm_(comm), rounds_(rounds) {
    std::vector<UnitRange> owned;
    for (int r = 0; r < comm.size(); r++) owned.push_back({r, r + 1});
    plan_ = std::make_unique<TreePlan>(comm.size(), owned);
  }

  Status run(int64_t count) {
    std::vector<float> pieces(size_t(std::max<int64_t>(count, 1))), out(pieces.size());
    const int calls = count > 100000 ? 50 : 2000;
    std::vector<double> with, fill;
    for (int round = 0; round < rounds_; round++) {
      COHORT_RETURN_IF_ERROR(comm_.barrier());
      const TimePoint start = std::chrono::steady_clock::now();
      for (int i = 0; i < calls; i++) {
        std::fill(pieces.begin(), pieces.end(), float(i));
        COHORT_RETURN_IF_ERROR(count == 0
                                   ? comm_.barrier()
                                   : comm_.all_reduce(*plan_, pieces.data(), out.data(), count));
      }
      with.push_back(micros_since(start) / calls);
      if (count > 0 && out[0] != float(calls - 1) * float(comm_.size()))
        return internal_error("the sum is wrong");
      const TimePoint again = std::chrono::steady_clock::now();
      for (int i = 0; i < calls; i++) {
        std::fill(pieces.begin(), pieces.end(), float(i));
        asm volatile("" ::: "memory");
      }
      fill.push_back(micros_since(again) / calls);
    }
    if (comm_.rank() == 0) print(count, with, fill);
    return {};
  }

 private:
  static double micros_since(TimePoint start) {
    return seconds(std::chrono::steady_clock::now() - start) * 1e6;
  }
  void print(int64_t count, std::vector<double> with, std::vector<double> fill) const {
    std::sort(with.begin(), with.end());
    std::sort(fill.begin(), fill.end());
    std::printf("%-26s %8.1f KiB  %9.2f us  [%.2f .. %.2f], of which filling %.2f\n",
                comm_.name().c_str(), double(count) * 4 / 1024, with[with.size() / 2], with.front(),
                with.back(), fill[fill.size() / 2]);
  }

  Communicator& comm_;
  const int rounds_;
  std::unique_ptr<TreePlan> plan_;
};

Status run(World& world, int rounds) {
  std::vector<int> members(static_cast<size_t>(world.size()));
  std::iota(members.begin(), members.end(), 0);
  COHORT_ASSIGN_OR_RETURN(const std::unique_ptr<Communicator> comm, world.group(members, "tp"));
  Bench bench(*comm, rounds);
  for (int64_t count : kCounts) COHORT_RETURN_IF_ERROR(bench.run(count));
  return {};
}

}  // namespace
}  // namespace cohort

int main(int argc, char** argv) {
  using namespace cohort;
  const CommunicatorKind kind =
      argc > 1 && argv[1][0] == 'm' ? CommunicatorKind::mpi : CommunicatorKind::shm;
  Result<std::unique_ptr<World>> world = make_mpi_world(kind);
  const Status status =
      world.ok() ? run(**world, argc > 2 ? std::atoi(argv[2]) : 15) : world.status();
  if (!status.ok()) std::fprintf(stderr, "%s\n", status.to_string().c_str());
  return status.ok() ? 0 : 1;
}
