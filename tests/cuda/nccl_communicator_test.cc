// SPDX-License-Identifier: Apache-2.0
// Every verb of a group of GPUs against what the host computes, in hostile schedules and in graphs.
#include "comm/nccl_communicator.h"

#include <cstring>
#include <random>

#include "base/half.h"
#include "tests/comm/reduction_case.h"
#include "tests/cuda/nccl_fixture.h"

namespace cohort {
namespace {

using Bytes = std::vector<uint8_t>;

Bytes bytes_of_rank(int64_t size, uint32_t seed) {
  std::mt19937 random(seed);
  Bytes bytes(static_cast<size_t>(size));
  for (uint8_t& byte : bytes) byte = uint8_t(random());
  return bytes;
}

void check_broadcast(NcclRank& rank, Communicator& group, int64_t size, int root) {
  const Bytes expected = bytes_of_rank(size, uint32_t(root + 10));
  const Buffer data = rank.gpu->allocate(size_t(size));
  if (group.rank() == root) rank.enqueue_values(data, expected);
  require(group.broadcast(data.data(), size, root));
  EXPECT_EQ(rank.on_host<uint8_t>(data), expected);
}

void check_gather(NcclRank& rank, Communicator& group, const std::vector<int64_t>& sizes) {
  Bytes expected;
  for (int r = 0; r < group.size(); r++) {
    const Bytes part = bytes_of_rank(sizes[size_t(r)], uint32_t(r));
    expected.insert(expected.end(), part.begin(), part.end());
  }
  const int64_t mine = sizes[size_t(group.rank())];
  const Buffer in = rank.gpu->allocate(size_t(mine)), out = rank.gpu->allocate(expected.size());
  if (mine > 0) rank.enqueue_values(in, bytes_of_rank(mine, uint32_t(group.rank())));
  require(group.all_gather(in.data(), out.data(), sizes));
  EXPECT_EQ(rank.on_host<uint8_t>(out), expected);
}

// sizes[i][j]: bytes from rank i to rank j.
void check_all_to_all(NcclRank& rank, Communicator& group,
                      const std::vector<std::vector<int64_t>>& sizes) {
  const auto n = size_t(group.size()), me = size_t(group.rank());
  Bytes mine, expected;
  std::vector<int64_t> to, from;
  for (size_t r = 0; r < n; r++) {
    to.push_back(sizes[me][r]);
    from.push_back(sizes[r][me]);
    const Bytes there = bytes_of_rank(to[r], uint32_t(me * n + r)),
                here = bytes_of_rank(from[r], uint32_t(r * n + me));
    mine.insert(mine.end(), there.begin(), there.end());
    expected.insert(expected.end(), here.begin(), here.end());
  }
  const Buffer in = rank.gpu->allocate(mine.size()), out = rank.gpu->allocate(expected.size());
  if (!mine.empty()) rank.enqueue_values(in, mine);
  require(group.all_to_all(in.data(), to, out.data(), from));
  EXPECT_EQ(rank.on_host<uint8_t>(out), expected);
}

void check_reduce(NcclRank& rank, Communicator& group, const ReductionCase& test) {
  const TreePlan plan(test.units, test.owned);
  const std::vector<float> mine = test.pieces(plan, group.rank()), expected = test.sum();
  const Buffer pieces = group.allocate(*rank.gpu, mine.size() * sizeof(float)),
               out = group.allocate(*rank.gpu, size_t(test.count) * sizeof(float));
  if (!mine.empty()) rank.enqueue_values(pieces, mine);
  require(group.all_reduce(plan, pieces.as<float>(), out.as<float>(), test.count));
  const std::vector<float> got = rank.on_host<float>(out);
  EXPECT_EQ(std::memcmp(got.data(), expected.data(), got.size() * sizeof(float)), 0)
      << test.units << " units, " << test.count << " elements";
}

// Small integers have exact sums in every type and order.
template <class T, class Round>
void check_add_up(NcclRank& rank, Communicator& group, DType dtype, bool in_place,
                  const Round& round) {
  std::vector<T> mine, expected;
  for (int i = 0; i < 777; i++) {
    mine.push_back(round(float((group.rank() + 1) * (i % 13) - 5)));
    int sum = 0;
    for (int r = 0; r < group.size(); r++) sum += (r + 1) * (i % 13) - 5;
    expected.push_back(round(float(sum)));
  }
  const Buffer in = group.allocate(*rank.gpu, mine.size() * sizeof(T)),
               out = group.allocate(*rank.gpu, mine.size() * sizeof(T));
  rank.enqueue_values(in, mine);
  const Buffer& to = in_place ? in : out;
  require(group.add_up(in.data(), to.data(), int64_t(mine.size()), dtype));
  EXPECT_EQ(rank.on_host<T>(to), expected);
}

// Everyone to the next rank, in an order that cannot block.
void check_ring(NcclRank& rank, Communicator& group, int64_t size) {
  const int n = group.size(), me = group.rank();
  const Buffer out = rank.gpu->allocate(size_t(size)), in = rank.gpu->allocate(size_t(size));
  const auto send = [&] {
    rank.enqueue_values(out, bytes_of_rank(size, uint32_t(me)));
    require(group.send(out.data(), size, (me + 1) % n));
    // The sender's stream goes on after the send: what it does next harms nothing.
    cuda_check(cudaMemsetAsync(out.data(), 0, out.size(), rank.gpu->compute()), "cudaMemsetAsync");
  };
  if (me == 0) send();
  require(group.recv(in.data(), size, (me + n - 1) % n));
  if (me != 0) send();
  EXPECT_EQ(rank.on_host<uint8_t>(in), bytes_of_rank(size, uint32_t((me + n - 1) % n)));
}

void check_every_verb(NcclRank& rank, uint32_t seed) {
  const int n = rank.meeting->size();
  auto ordered = rank.group({.ordered = true}, 200000), fast = rank.group();
  EXPECT_EQ(ordered->size(), n);
  EXPECT_EQ(ordered->rank(), rank.meeting->rank());
  EXPECT_TRUE(ordered->ordered());
  EXPECT_FALSE(fast->ordered());
  std::mt19937 random(seed);  // the same on all ranks
  for (const int64_t count : {1, 96, 1025})
    for (int i = 0; i < 3; i++)
      check_reduce(rank, *ordered, ReductionCase::random(random, n, count));
  for (const int64_t size : {1, 1000}) {
    check_broadcast(rank, *fast, size, int(random() % uint32_t(n)));
    check_gather(rank, *ordered, std::vector<int64_t>(size_t(n), size));
    std::vector<int64_t> sizes;
    for (int r = 0; r < n; r++) sizes.push_back(r == 1 ? 0 : size + r);
    check_gather(rank, *fast, sizes);
    if (n > 1) check_ring(rank, *fast, size);
  }
  for (const uint32_t most : {1, 3000}) {
    std::vector<std::vector<int64_t>> table;
    for (int i = 0; i < n; i++) {
      table.emplace_back();
      for (int j = 0; j < n; j++)
        table.back().push_back(random() % 3 == 0 ? 0 : int64_t(random() % (most + 1)));
    }
    check_all_to_all(rank, *fast, table);
  }
  require(fast->barrier());
  for (const bool in_place : {false, true}) {
    check_add_up<float>(rank, *fast, DType::f32, in_place, [](float x) { return x; });
    check_add_up<uint16_t>(rank, *fast, DType::f16, in_place, float_to_half);
    check_add_up<uint16_t>(rank, *fast, DType::bf16, in_place, float_to_bf16);
  }
  require(ordered->status());
  require(fast->status());
}

TEST_F(NcclTest, EveryVerbOfOneToFourRanks) {
  for (int ranks = 1; ranks <= 4; ranks++)
    run_ranks(ranks, [&](NcclRank& rank) { check_every_verb(rank, uint32_t(ranks)); });
}

TEST_F(NcclTest, EveryVerbInHostileSchedules) {
  for (int seed = 0; seed <= 20; seed++) {
    if (seed == 0)
      emu::set_schedule(emu::Schedule::newest_first);
    else
      emu::set_schedule(emu::Schedule::random, uint64_t(seed));
    run_ranks(2 + seed % 3, [&](NcclRank& rank) { check_every_verb(rank, uint32_t(seed)); });
  }
}

TEST_F(NcclTest, NothingIsTheSumOfNoUnitsAndNoBytes) {
  run_ranks(2, [](NcclRank& rank) {
    auto group = rank.group({.ordered = true}, 100);
    check_reduce(rank, *group, {.units = 0, .owned = {{0, 0}, {0, 0}}, .count = 5, .seed = 1});
    require(group->all_gather(nullptr, nullptr, std::vector<int64_t>{0, 0}));
    const std::vector<int64_t> none{0, 0};
    require(group->all_to_all(nullptr, none, nullptr, none));
    require(group->broadcast(nullptr, 0, 1));
    require(group->send(nullptr, 0, 1 - group->rank()));
    require(group->recv(nullptr, 0, 1 - group->rank()));
  });
}

TEST_F(NcclTest, TrafficIsWhatVerbsMeanToPeers) {
  run_ranks(3, [](NcclRank& rank) {
    auto group = rank.group();
    const int me = group->rank();
    const Buffer in = rank.gpu->allocate(300), out = rank.gpu->allocate(600);
    require(group->all_gather(in.data(), out.data(), std::vector<int64_t>{10, 20, 30}));
    EXPECT_EQ(group->traffic().sent_within, 2 * 10 * (me + 1));
    EXPECT_EQ(group->traffic().received_within, 60 - 10 * (me + 1));
    const std::vector<int64_t> sizes{100, 100, 100};
    require(group->all_to_all(in.data(), sizes, out.data(), sizes));
    EXPECT_EQ(group->traffic().sent_within, 2 * 10 * (me + 1) + 200);
    EXPECT_EQ(group->traffic().sent_between, 0);
    EXPECT_TRUE(group->shares_host(0));
  });
}

// A layer's sums as they are replayed: the order of the tree, a sum in any order, a gather.
TEST_F(NcclTest, VerbsInAGraphAreReplayed) {
  for (int seed = 1; seed <= 10; seed++) {
    emu::set_schedule(emu::Schedule::random, uint64_t(seed));
    const ReductionCase first{.units = 5, .owned = {{0, 1}, {1, 5}}, .count = 64, .seed = 1};
    run_ranks(2, [&](NcclRank& rank) {
      auto ordered = rank.group({.ordered = true}, 1000), fast = rank.group();
      const TreePlan plan(first.units, first.owned);
      const size_t pieces = plan.pieces(ordered->rank()).size();
      const Buffer in = ordered->allocate(*rank.gpu, pieces * 64 * 4),
                   sum = fast->allocate(*rank.gpu, 64 * 4), all = rank.gpu->allocate(2 * 64 * 4);
      const auto verbs = [&] {
        require(ordered->all_reduce(plan, in.as<float>(), sum.as<float>(), 64));
        require(fast->add_up(sum.data(), sum.data(), 64, DType::f32));
        require(fast->all_gather(sum.data(), all.data(), std::vector<int64_t>{256, 256}));
      };
      const CudaGraph graph = CudaGraph::capture(*rank.gpu, verbs);
      for (uint32_t input = 1; input <= 3; input++) {
        ReductionCase test = first;
        test.seed = input;
        rank.enqueue_values(in, test.pieces(plan, ordered->rank()));
        graph.launch(rank.gpu->compute());
        std::vector<float> expected = test.sum();
        for (float& x : expected) x *= 2;  // exact
        expected.insert(expected.end(), expected.begin(), expected.begin() + 64);
        EXPECT_EQ(rank.on_host<float>(all), expected) << "input " << input;
      }
    });
  }
}

TEST_F(NcclTest, AnAttachedSendHoldsTheStreamAndADetachedOneDoesNot) {
  for (const bool detached : {false, true})
    run_ranks(2, [&](NcclRank& rank) {
      emu::set_host_threads(0);  // waiting for a message that comes late is no deadlock
      auto group = rank.group({.queue = NcclQueue::pipe, .detached_send = detached});
      const Buffer data = rank.on_device<int>({group->rank()});
      if (group->rank() == 1) {
        require(rank.meeting->barrier());
        require(group->recv(data.data(), 4, 0));
      } else {
        require(group->send(data.data(), 4, 1));
        CudaEvent sent(*rank.gpu), next(*rank.gpu);
        sent.record(rank.gpu->pipe());
        next.record(rank.gpu->compute());
        EXPECT_EQ(next.wait(std::chrono::milliseconds(detached ? 20000 : 30)).ok(), detached);
        EXPECT_FALSE(sent.done());
        require(rank.meeting->barrier());
        require(sent.wait(std::chrono::seconds(20)));
      }
      EXPECT_EQ(rank.on_host<int>(data)[0], 0);
    });
}

TEST_F(NcclTest, GroupsOnSeveralStreamsAtOnce) {
  run_ranks(2, [](NcclRank& rank) {
    auto tp = rank.group(), pipe = rank.group({.queue = NcclQueue::pipe}),
         tokens = rank.group({.queue = NcclQueue::tokens, .detached_send = true});
    const Buffer a = rank.on_device<float>({1.0f}), b = rank.on_device<float>({2.0f}),
                 c = rank.on_device<float>({float(tp->rank())});
    const bool first = tp->rank() == 0;
    for (int step = 0; step < 5; step++) {
      require(tp->add_up(a.data(), a.data(), 1, DType::f32));
      require(first ? pipe->send(b.data(), 4, 1) : pipe->recv(b.data(), 4, 0));
      require(first ? tokens->recv(c.data(), 4, 1) : tokens->send(c.data(), 4, 0));
    }
    EXPECT_EQ(rank.on_host<float>(a)[0], 32.0f);
    EXPECT_EQ(rank.on_host<float>(c)[0], 1.0f);
  });
}

}  // namespace
}  // namespace cohort
