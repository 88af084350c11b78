// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/tokens.h"

#include "tests/cuda/kernel_fixture.h"

namespace cohort {
namespace {

using test::DeviceArray;
using Ints = std::vector<int32_t>;

class TokensTest : public test::KernelTest {
 protected:
  Ints contents() {
    Ints out(size_t(table_.slots()) * size_t(table_.positions()));
    device().download(out.data(), table_.data(), out.size() * 4);
    return out;
  }
  size_t at(int slot, int position) const { return size_t(slot * 1000 + position); }

  Stream stream_ = stream(DType::bf16);
  const cuda::TokenTable table_{stream_, 4, 1000};
};

TEST_F(TokensTest, StoresAndLooksUp) {
  const int n = 300;
  Ints tokens, slots, positions, expected;
  for (int i = 0; i < n; i++) {
    tokens.push_back(1000 + i);
    slots.push_back(i % 7 == 3 ? -1 : i % 4);
    positions.push_back(i);
    expected.push_back(i % 7 == 3 ? 0 : 1000 + i);
  }
  const DeviceArray from = ints(tokens), s = ints(slots), p = ints(positions), ids = ints(Ints(n));
  cuda::store_tokens(stream_, table_, from.list(), s.list(), p.list());
  for (int i = 0; i < n; i++)
    if (slots[size_t(i)] < 0) positions[size_t(i)] = -1;
  const DeviceArray padded = ints(positions);
  in_every_order([&] {
    const DeviceArray out = ints(Ints(n, 77));
    cuda::look_up_tokens(stream_, table_, out.list(), s.list(), padded.list());
    EXPECT_EQ(out.ints(), expected);
  });
  Ints all = contents();
  for (int i = 0; i < n; i++)
    if (slots[size_t(i)] >= 0) all[at(slots[size_t(i)], i)] = 0;
  EXPECT_EQ(all, Ints(4000));  // nothing else was written
}

TEST_F(TokensTest, AReplayedGraphFeedsWhatWasSampledBack) {
  DeviceArray sampled = ints({0, 0}), slots = ints({1, 3}), last = ints({0, 0}),
              next = ints({0, 0}), ids = ints({0, 0});
  const CudaGraph graph = CudaGraph::capture(device(), [&] {
    cuda::store_tokens(stream_, table_, sampled.list(), slots.list(), next.list());
    cuda::look_up_tokens(stream_, table_, ids.list(), slots.list(), last.list());
  });
  Ints before = {0, 0};
  for (int32_t step = 0; step < 4; step++) {
    sampled.set(Ints{10 + step, 20 + step});
    next.set(Ints{step, 500 + step});
    last.set(Ints{step - 1, 499 + step});
    graph.launch(device().compute());
    EXPECT_EQ(ids.ints(), before);
    before = {10 + step, 20 + step};
  }
}

TEST_F(TokensTest, NoRowsAreNoWork) {
  const DeviceArray one = ints({1, 2, 3, 4});
  const Tensor none(one.data(), DType::i32, {0});
  cuda::look_up_tokens(stream_, table_, none, none, none);
  cuda::store_tokens(stream_, table_, none, none, none);
  EXPECT_EQ(contents(), Ints(4000));
}

}  // namespace
}  // namespace cohort
