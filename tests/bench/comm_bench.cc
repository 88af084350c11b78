// SPDX-License-Identifier: Apache-2.0
// Latency of an all-reduce among the ranks that mpirun has started: for each size the median over
// rounds of the mean time of a call, with the shortest and longest, in memory of the communicator's
// and in any other, by turns. Between calls every rank fills its vector anew, as a matrix product
// would: the cost of that alone is printed too.
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
  Bench(Communicator& comm, int rounds)
      : comm_(comm),
        rounds_(rounds),
        device_(make_cpu_device()),
        memory_{Memory(comm, *device_), Memory(*device_)} {
    std::vector<UnitRange> owned;
    for (int r = 0; r < comm.size(); r++) owned.push_back({r, r + 1});
    plan_ = std::make_unique<TreePlan>(comm.size(), owned);
  }

  Status run(int64_t count) {
    const int calls = count > 100000 ? 50 : 1000;
    std::vector<double> with[2], fill;
    for (int round = 0; round < rounds_; round++) {
      for (int kind = 0; kind < 2; kind++) {
        COHORT_RETURN_IF_ERROR(comm_.barrier());
        const TimePoint start = std::chrono::steady_clock::now();
        COHORT_RETURN_IF_ERROR(sum(memory_[kind], count, calls));
        with[kind].push_back(micros_since(start) / calls);
      }
      const TimePoint again = std::chrono::steady_clock::now();
      for (int i = 0; i < calls; i++) {
        std::fill_n(memory_[0].pieces.as<float>(), count, float(i));
        asm volatile("" ::: "memory");
      }
      fill.push_back(micros_since(again) / calls);
    }
    if (comm_.rank() != 0) return {};
    print("its memory", count, with[0], fill);
    print("any memory", count, with[1], fill);
    return {};
  }

 private:
  struct Memory {
    Memory(Communicator& comm, Device& device)
        : pieces(comm.allocate(device, kMost)), out(comm.allocate(device, kMost)) {}
    explicit Memory(Device& device) : pieces(device.allocate(kMost)), out(device.allocate(kMost)) {}
    static constexpr size_t kMost = 1 << 20;
    Buffer pieces, out;
  };

  Status sum(const Memory& memory, int64_t count, int calls) {
    float* const pieces = memory.pieces.as<float>();
    for (int i = 0; i < calls; i++) {
      std::fill_n(pieces, count, float(i));
      COHORT_RETURN_IF_ERROR(count == 0
                                 ? comm_.barrier()
                                 : comm_.all_reduce(*plan_, pieces, memory.out.as<float>(), count));
    }
    if (count > 0 && memory.out.as<float>()[0] != float(calls - 1) * float(comm_.size()))
      return internal_error("the sum is wrong");
    return {};
  }

  static double micros_since(TimePoint start) {
    return seconds(std::chrono::steady_clock::now() - start) * 1e6;
  }
  void print(const char* kind, int64_t count, std::vector<double> with,
             std::vector<double> fill) const {
    std::sort(with.begin(), with.end());
    std::sort(fill.begin(), fill.end());
    std::printf("%-26s %s %8.1f KiB  %9.2f us  [%.2f .. %.2f], of which filling %.2f\n",
                comm_.name().c_str(), kind, double(count) * 4 / 1024, with[with.size() / 2],
                with.front(), with.back(), fill[fill.size() / 2]);
  }

  Communicator& comm_;
  const int rounds_;
  const std::shared_ptr<Device> device_;
  const Memory memory_[2];
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
