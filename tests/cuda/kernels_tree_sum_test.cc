// SPDX-License-Identifier: Apache-2.0
// Additions in the order of the tree, against sums that are taken level by level on the host.
#include "kernels/cuda/tree_sum.h"

#include <gtest/gtest.h>

#include <cstring>
#include <random>

#include "base/device_cuda.h"
#include "tests/comm/reduction_case.h"
#include "tests/cuda_emulation/device.h"
#include "tests/cuda_emulation/runtime.h"

namespace cohort {
namespace {

constexpr int64_t kCounts[] = {1, 3, 4, 255, 1000, 4100, 5003};

class TreeSumTest : public ::testing::TestWithParam<emu::Order> {
 protected:
  TreeSumTest() {
    emu::reset();
    emu::options().order = GetParam();
    gpu_ = CudaDevice::open(0).value();
  }
  ~TreeSumTest() override {
    EXPECT_TRUE(emu::reports().empty());
    emu::options() = {};
  }
  // Values on the device, and `shift` floats before them that break their alignment.
  Buffer on_device(const std::vector<float>& values, int shift = 0) {
    Buffer buffer = gpu_->allocate((values.size() + size_t(shift)) * sizeof(float));
    gpu_->upload(buffer.as<float>() + shift, values.data(), values.size() * sizeof(float));
    return buffer;
  }
  void expect_bits(const float* device, const std::vector<float>& expected, const char* what) {
    std::vector<float> got(expected.size());
    gpu_->download(got.data(), device, got.size() * sizeof(float));
    EXPECT_EQ(std::memcmp(got.data(), expected.data(), got.size() * sizeof(float)), 0)
        << what << ", " << expected.size() << " elements";
  }
  void check_pieces(const ReductionCase& test, int shift = 0) {
    const TreePlan plan(test.units, test.owned);
    std::vector<float> pieces;
    for (int r = 0; r < plan.ranks(); r++) {
      const std::vector<float> mine = test.pieces(plan, r);
      pieces.insert(pieces.end(), mine.begin(), mine.end());
    }
    const Buffer in = on_device(pieces, shift);
    const Buffer out = on_device(std::vector<float>(size_t(test.count) + 8, -1.0f));
    cuda::add_pieces(gpu_->compute(), plan, in.as<float>() + shift, out.as<float>(), test.count);
    std::vector<float> expected = test.sum();
    expected.resize(size_t(test.count) + 8, -1.0f);
    expect_bits(out.as<float>(), expected, "add_pieces");
  }

  std::shared_ptr<CudaDevice> gpu_;
};

TEST_P(TreeSumTest, PiecesOfRandomGroups) {
  std::mt19937 random(1);
  for (int ranks = 1; ranks <= 8; ranks++)
    for (const int64_t count : kCounts) check_pieces(ReductionCase::random(random, ranks, count));
}

// Every unit a piece of its own, up to more than two loads of a thread, and stacks of all depths.
TEST_P(TreeSumTest, AnyNumberOfPieces) {
  for (const int units : {1, 2, 3, 7, 8, 9, 15, 16, 17, 31, 33, 64, 100, 255}) {
    ReductionCase test{.units = units, .owned = {}, .count = 36, .seed = uint32_t(units)};
    for (int u = 0; u < units; u++) test.owned.push_back({u, u + 1});
    check_pieces(test);
  }
}

TEST_P(TreeSumTest, RowsThatAreNotAligned) {
  std::mt19937 random(2);
  for (int shift = 1; shift < 4; shift++)
    check_pieces(ReductionCase::random(random, 4, 512), shift);
}

TEST_P(TreeSumTest, NoPiecesAreZeros) {
  check_pieces({.units = 0, .owned = {{0, 0}, {0, 0}}, .count = 77, .seed = 1});
}

TEST_P(TreeSumTest, UnitsOfPieces) {
  std::mt19937 random(3);
  Stream stream(gpu_, DType::f32, 1, true);
  for (const int units : {1, 2, 3, 5, 8, 13, 21, 67, 130, 200}) {
    const UnitRange owned = {int(random() % 3) * units / 4, units};
    const int64_t count = kCounts[random() % std::size(kCounts)] % 1500 + 1;
    const ReductionCase test{.units = units, .owned = {}, .count = count, .seed = uint32_t(units)};
    // Whole nodes of the tree, and every unit alone (more pieces than one launch takes).
    std::vector<UnitRange> alone;
    for (int u = owned.begin; u < owned.end; u++) alone.push_back({u, u + 1});
    for (const auto& pieces : {maximal_subtrees(units, owned), alone}) {
      std::vector<float> in, expected;
      for (int u = owned.begin; u < owned.end; u++) {
        const std::vector<float> values = test.unit(u);
        in.insert(in.end(), values.begin(), values.end());
      }
      for (const UnitRange& piece : pieces) {
        const std::vector<float> sum = test.sum(piece);
        expected.insert(expected.end(), sum.begin(), sum.end());
      }
      const Buffer device_in = on_device(in), out = gpu_->allocate(expected.size() * sizeof(float));
      cuda::add_units(stream, device_in.as<float>(), out.as<float>(), count, pieces);
      expect_bits(out.as<float>(), expected, "add_units");
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Orders, TreeSumTest,
                         ::testing::Values(emu::Order::forward, emu::Order::reverse,
                                           emu::Order::random));

}  // namespace
}  // namespace cohort
