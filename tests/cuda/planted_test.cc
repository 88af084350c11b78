// SPDX-License-Identifier: Apache-2.0
// The emulated device finds planted mistakes by what a kernel computes: in any order of threads a
// right kernel is right and a wrong one is wrong, or reported.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <fstream>
#include <functional>
#include <numeric>
#include <string>
#include <vector>

#include "tests/cuda/planted_kernels.h"
#include "tests/cuda/run_kernel.h"

namespace cohort {
namespace {
using planted::kThreads;
using testing::AllOf;
using testing::HasSubstr;

std::vector<emu::Options> all_orders() {
  std::vector<emu::Options> all{{.order = emu::Order::forward}, {.order = emu::Order::reverse}};
  for (std::uint64_t seed = 1; seed <= 8; ++seed)
    all.push_back({.order = emu::Order::random, .seed = seed});
  return all;
}

// In how many orders run(planted) gives something else than it should.
int found(const std::function<bool(bool)>& right, bool planted) {
  int wrong = 0;
  for (const auto& options : all_orders()) {
    emu::options() = options;
    wrong += !right(planted);
  }
  emu::options() = {};
  return wrong;
}

std::vector<float> numbers() {
  std::vector<float> v(kThreads);
  std::iota(v.begin(), v.end(), 1.0f);
  return v;
}

TEST(PlantedTest, MissingBarrierInAReduction) {
  const auto right = [](bool planted) {
    const auto in = numbers();
    float out = 0;
    run_kernel(1, kThreads, kThreads * sizeof(float),
               [&] { planted::sum(in.data(), &out, planted); });
    return out == kThreads * (kThreads + 1) / 2;
  };
  EXPECT_EQ(found(right, false), 0);
  // In reverse order the upper half happens to be there; the race check sees it in any order.
  EXPECT_GE(found(right, true), 9);
}

TEST(PlantedTest, MissingBarrierBetweenReadsAndTheNextWrites) {
  const auto right = [](bool planted) {
    const auto in = numbers();
    std::vector<float> out(kThreads);
    run_kernel(1, kThreads, kThreads * sizeof(float),
               [&] { planted::rounds(in.data(), out.data(), planted); });
    for (int i = 0; i < kThreads; ++i)
      if (out[i] != 6 * in[i ^ 64]) return false;
    return true;
  };
  EXPECT_EQ(found(right, false), 0);
  EXPECT_EQ(found(right, true), 10);
}

template <class Kernel>
bool reverses(Kernel kernel, bool planted) {
  std::vector<uint4> in(kThreads), out(kThreads);
  for (unsigned i = 0; i < kThreads; ++i) in[i] = {i, i + 1, i + 2, i + 3};
  run_kernel(1, kThreads, kThreads * sizeof(uint4),
             [&] { kernel(in.data(), out.data(), planted); });
  for (int i = 0; i < kThreads; ++i)
    if (std::memcmp(&out[i], &in[kThreads - 1 - i], sizeof(uint4)) != 0) return false;
  return true;
}

TEST(PlantedTest, MissingWaitForAnAsynchronousCopy) {
  const auto right = [](bool planted) { return reverses(planted::reverse, planted); };
  EXPECT_EQ(found(right, false), 0);
  EXPECT_EQ(found(right, true), 10);
}

TEST(PlantedTest, MissingBarrierAfterAnAsynchronousCopy) {
  const auto right = [](bool planted) { return reverses(planted::reverse_barrier, planted); };
  EXPECT_EQ(found(right, false), 0);
  EXPECT_EQ(found(right, true), 10);
}

TEST(PlantedTest, MissingSyncwarp) {
  const auto right = [](bool planted) {
    const auto in = numbers();
    std::vector<float> out(kThreads);
    run_kernel(1, kThreads, 0, [&] { planted::swap_neighbours(in.data(), out.data(), planted); });
    for (int i = 0; i < kThreads; ++i)
      if (out[i] != in[i ^ 1]) return false;
    return true;
  };
  EXPECT_EQ(found(right, false), 0);
  EXPECT_EQ(found(right, true), 10);
}

// Line of planted_kernels.cu that holds the text.
std::string line_of(const std::string& text) {
  std::ifstream file("tests/cuda/planted_kernels.cu");
  std::string line;
  for (int n = 1; std::getline(file, line); ++n)
    if (line.find(text) != std::string::npos) return "planted_kernels.cu:" + std::to_string(n);
  ADD_FAILURE() << "no line holds " << text;
  return "";
}

TEST(PlantedTest, DivergentBarriersAreReportedWithBothLines) {
  for (const auto& options : all_orders()) {
    emu::options() = options;
    float out = 0;
    const auto run = [&](bool planted) {
      return mistake_of(1, kThreads, 0, [&] { planted::divergent(&out, planted); });
    };
    EXPECT_EQ(run(false), "");
    EXPECT_EQ(out, 1);
    EXPECT_THAT(run(true),
                AllOf(HasSubstr(line_of("// first warp")), HasSubstr(line_of("// others"))));
  }
  emu::options() = {};
}
}  // namespace
}  // namespace cohort
