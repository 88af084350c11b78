// SPDX-License-Identifier: Apache-2.0
// What is said of a host, and that probes measure something. How fast a machine is no test says.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "tools/probe/host_facts.h"
#include "tools/probe/machine_probe.h"

namespace cohort {
namespace {

// A made-up /proc and /sys.
class Host {
 public:
  Host() {
    std::string folder = std::filesystem::temp_directory_path() / "cohort-host-XXXXXX";
    if (mkdtemp(folder.data()) == nullptr) throw std::runtime_error("mkdtemp");
    root_ = folder;
  }
  ~Host() { std::filesystem::remove_all(root_); }
  Host(const Host&) = delete;
  Host& operator=(const Host&) = delete;
  void write(const std::string& path, const std::string& text) const {
    const std::filesystem::path file = root_.string() + path;
    std::filesystem::create_directories(file.parent_path());
    std::ofstream(file) << text;
  }
  void cache(int cpu, int index, const char* level, const char* type, const char* size,
             const char* shared) const {
    const std::string folder = "/sys/devices/system/cpu/cpu" + std::to_string(cpu) +
                               "/cache/index" + std::to_string(index) + "/";
    write(folder + "level", level);
    write(folder + "type", type);
    write(folder + "size", size);
    write(folder + "shared_cpu_list", shared);
  }
  std::string root() const { return root_; }

 private:
  std::filesystem::path root_;
};

TEST(HostFacts, OfAHostWithTwoCoresOfTwoThreads) {
  const Host host;
  host.write("/proc/cpuinfo", "processor\t: 0\nmodel name\t: Some Processor 7\nprocessor\t: 1\n");
  host.write("/proc/meminfo", "MemTotal:       2048 kB\nMemFree: 1 kB\nMemAvailable:   1024 kB\n");
  host.write("/sys/devices/system/cpu/online", "0-3\n");
  for (int cpu = 0; cpu < 4; cpu++) {
    const char* siblings = cpu % 2 == 0 ? "0,2\n" : "1,3\n";
    host.write(
        "/sys/devices/system/cpu/cpu" + std::to_string(cpu) + "/topology/thread_siblings_list",
        siblings);
    host.cache(cpu, 0, "1\n", "Data\n", "32K\n", siblings);
    host.cache(cpu, 1, "1\n", "Instruction\n", "32K\n", siblings);
    host.cache(cpu, 2, "2\n", "Unified\n", "1M\n", siblings);
    host.cache(cpu, 3, "3\n", "Unified\n", "8192K\n", "0-3\n");
  }
  host.write("/sys/kernel/mm/transparent_hugepage/enabled", "always [madvise] never\n");
  host.write("/sys/fs/cgroup/cpu.max", "150000 100000\n");
  host.write("/sys/fs/cgroup/memory.max", "1048576\n");
  const HostFacts facts = read_host_facts(host.root(), {0, 1, 2, 3});
  EXPECT_EQ(facts.processor, "Some Processor 7");
  EXPECT_EQ(facts.online, 4);
  EXPECT_EQ(facts.cores, 2);
  EXPECT_DOUBLE_EQ(facts.quota, 1.5);
  EXPECT_EQ(facts.memory, 2 << 20);
  EXPECT_EQ(facts.available, 1 << 20);
  EXPECT_EQ(facts.memory_limit, 1 << 20);
  EXPECT_EQ(facts.huge_pages, "madvise");
  ASSERT_EQ(facts.caches.size(), 3u);
  EXPECT_EQ(facts.caches[1].sharers, 2);
  EXPECT_EQ(facts.cache_bytes(2), 2 << 20);
  EXPECT_EQ(facts.last_level_bytes(), 8 << 20);
  // Fewer processors use fewer caches.
  EXPECT_EQ(read_host_facts(host.root(), {0, 2}).cache_bytes(2), 1 << 20);
}

TEST(HostFacts, OfAHostThatTellsNothing) {
  const Host host;
  host.write("/sys/fs/cgroup/cpu.max", "max 100000\n");
  host.write("/sys/fs/cgroup/memory.max", "max\n");
  const HostFacts facts = read_host_facts(host.root(), {0, 1});
  EXPECT_EQ(facts.processor, "");
  EXPECT_EQ(facts.cores, 2);
  EXPECT_EQ(facts.quota, 0);
  EXPECT_EQ(facts.memory_limit, 0);
  EXPECT_EQ(facts.huge_pages, "");
  EXPECT_TRUE(facts.caches.empty());
  EXPECT_EQ(facts.last_level_bytes(), 0);
}

TEST(HostFacts, ListsOfProcessors) {
  EXPECT_EQ(parse_cpu_list("0-2,5"), (std::vector<int>{0, 1, 2, 5}));
  EXPECT_EQ(parse_cpu_list("7"), std::vector<int>{7});
  EXPECT_TRUE(parse_cpu_list("").empty());
  EXPECT_EQ(parse_cpu_list("1,x"), std::vector<int>{1});
  EXPECT_TRUE(parse_cpu_list("3-").empty());
}

TEST(MachineProbe, EveryInstructionSetComputes) {
  for (const Isa isa : kIsas) {
    if (!supported(isa)) continue;
    const IsaPeaks peaks = probe_peaks(isa, 2);
    for (const double rate : {peaks.fma.one, peaks.fma.all, peaks.int8.one, peaks.int8.all})
      EXPECT_GT(rate, 0) << name(isa);
    EXPECT_EQ(peaks.tiles.one > 0, isa == Isa::amx);
  }
}

TEST(MachineProbe, EveryInstructionSetReads) {
  for (const Isa isa : kIsas) {
    if (!supported(isa)) continue;
    const Rate memory = probe_memory(isa, 2, 16 << 20);
    EXPECT_GT(memory.one, 0) << name(isa);
    EXPECT_GT(memory.all, 0) << name(isa);
  }
  EXPECT_GE(memory_probe_bytes(), 1 << 20);
}

TEST(MachineProbe, PlacementHasAName) {
  EXPECT_EQ((Placement{60e-9, 1.05}.kind()), "siblings");
  EXPECT_EQ((Placement{150e-9, 1.95}.kind()), "near");
  EXPECT_EQ((Placement{600e-9, 2.0}.kind()), "far");
  if (read_host_facts().allowed.size() < 2) GTEST_SKIP() << "one processor alone";
  const auto placement = probe_placement(Isa::portable);
  ASSERT_TRUE(placement.has_value());
  EXPECT_GT(placement->round_trip, 0);
  EXPECT_GT(placement->scaling, 0);
}

}  // namespace
}  // namespace cohort
