// SPDX-License-Identifier: Apache-2.0
#include "tests/comm/communicator_suite.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <random>
#include <thread>

#include "tests/comm/mismatch_checks.h"
#include "tests/comm/reduction_case.h"
#include "tests/comm/suite_support.h"

namespace cohort {
namespace {

using std::chrono::milliseconds;
using ::testing::AnyOf;
using ::testing::HasSubstr;

std::vector<uint8_t> bytes_of_rank(int64_t size, uint32_t seed) {
  std::vector<uint8_t> bytes(static_cast<size_t>(size));
  uint64_t state = seed * 0x9e3779b97f4a7c15ull + 1;
  for (size_t i = 0; i < bytes.size(); i += 8) {
    state = state * 6364136223846793005ull + 1442695040888963407ull;
    const uint64_t mixed = state ^ state >> 29;
    std::memcpy(&bytes[i], &mixed, std::min<size_t>(8, bytes.size() - i));
  }
  return bytes;
}

void check_broadcast(Communicator& comm, int64_t size, int root, uint32_t seed) {
  const std::vector<uint8_t> expected = bytes_of_rank(size, seed);
  std::vector<uint8_t> data(static_cast<size_t>(size));
  if (comm.rank() == root) data = expected;
  const Status status = comm.broadcast(data.data(), size, root);
  ASSERT_TRUE(status.ok()) << status.to_string();
  EXPECT_TRUE(data == expected) << "broadcast of " << size << " from " << root;
}

void check_gather(Communicator& comm, const std::vector<int64_t>& sizes, uint32_t seed) {
  std::vector<uint8_t> expected, mine;
  for (int r = 0; r < comm.size(); r++) {
    const std::vector<uint8_t> part = bytes_of_rank(sizes[size_t(r)], seed + uint32_t(r));
    expected.insert(expected.end(), part.begin(), part.end());
    if (r == comm.rank()) mine = part;
  }
  std::vector<uint8_t> out(expected.size());
  const Status status = comm.all_gather(mine.data(), out.data(), sizes);
  ASSERT_TRUE(status.ok()) << status.to_string();
  EXPECT_TRUE(out == expected) << "all_gather of " << expected.size();
}

void check_reduce(Communicator& comm, const ReductionCase& test) {
  const TreePlan plan(test.units, test.owned);
  std::vector<float> pieces = test.pieces(plan, comm.rank()), out(size_t(test.count), -1.0f);
  const Status status = comm.all_reduce(plan, pieces.data(), out.data(), test.count);
  ASSERT_TRUE(status.ok()) << status.to_string();
  const std::vector<float> expected = test.sum();
  // Bits, and not values; no elements have no address to compare.
  EXPECT_TRUE(out.empty() ||
              std::memcmp(out.data(), expected.data(), out.size() * sizeof(float)) == 0)
      << test.units << " units, " << test.count << " elements";
}

// sizes[i][j]: bytes from rank i to rank j.
using SizeTable = std::vector<std::vector<int64_t>>;

void check_all_to_all(Communicator& comm, const SizeTable& sizes, uint32_t seed) {
  const int n = comm.size(), me = comm.rank();
  std::vector<uint8_t> in, expected;
  std::vector<int64_t> to, from;
  for (int r = 0; r < n; r++) {
    to.push_back(sizes[size_t(me)][size_t(r)]);
    from.push_back(sizes[size_t(r)][size_t(me)]);
    const std::vector<uint8_t> mine = bytes_of_rank(to.back(), seed + uint32_t(me * n + r));
    const std::vector<uint8_t> theirs = bytes_of_rank(from.back(), seed + uint32_t(r * n + me));
    in.insert(in.end(), mine.begin(), mine.end());
    expected.insert(expected.end(), theirs.begin(), theirs.end());
  }
  std::vector<uint8_t> out(expected.size());
  const Status status = comm.all_to_all(in.data(), to, out.data(), from);
  ASSERT_TRUE(status.ok()) << status.to_string();
  EXPECT_TRUE(out == expected) << "all_to_all, seed " << seed;
}

// Every third pair has nothing to say; the others at most `most`.
SizeTable random_sizes(std::mt19937& random, int ranks, int64_t most) {
  const std::vector<int64_t> row(static_cast<size_t>(ranks));
  SizeTable sizes(row.size(), row);
  for (auto& row : sizes)
    for (int64_t& size : row) size = random() % 3 == 0 ? 0 : int64_t(random() % uint64_t(most + 1));
  return sizes;
}

// Everyone to the next rank at once, in an order that cannot block.
void check_ring(Communicator& comm, int64_t size, uint32_t seed) {
  if (comm.size() == 1) return;
  const int next = (comm.rank() + 1) % comm.size();
  const int previous = (comm.rank() + comm.size() - 1) % comm.size();
  const std::vector<uint8_t> mine = bytes_of_rank(size, seed + uint32_t(comm.rank()));
  const std::vector<uint8_t> expected = bytes_of_rank(size, seed + uint32_t(previous));
  std::vector<uint8_t> got(mine.size());
  const auto send = [&] {
    const Status status = comm.send(mine.data(), size, next);
    ASSERT_TRUE(status.ok()) << status.to_string();
  };
  if (comm.rank() != 0) {
    const Status status = comm.recv(got.data(), size, previous);
    ASSERT_TRUE(status.ok()) << status.to_string();
    send();
  } else {
    send();
    const Status status = comm.recv(got.data(), size, previous);
    ASSERT_TRUE(status.ok()) << status.to_string();
  }
  EXPECT_TRUE(got == expected) << "ring of " << size;
}

void every_verb_of_many_sizes(World& world) {
  auto comm = whole_group(world);
  EXPECT_EQ(comm->size(), world.size());
  EXPECT_EQ(comm->rank(), world.rank());
  uint32_t seed = 1;
  for (int64_t size : {0, 1, 64, 1000, 65537, 131072, 262145, 1 << 20}) {
    check_broadcast(*comm, size, 0, seed++);
    check_broadcast(*comm, size, comm->size() - 1, seed++);
    std::vector<int64_t> sizes(size_t(comm->size()), size);
    check_gather(*comm, sizes, seed++);
    sizes[0] = 0;
    sizes.back() = size / 2 + 1;
    check_gather(*comm, sizes, seed++);
    check_ring(*comm, size, seed++);
    EXPECT_TRUE(comm->barrier().ok());
  }
}

void all_reduce_has_the_bits_of_the_tree(World& world) {
  auto comm = whole_group(world);
  std::mt19937 random(7);
  for (int trial = 0; trial < 63; trial++) {
    const int64_t counts[] = {0, 1, 15, 16, 17, 576, 1025, 4608, 20000};
    check_reduce(*comm, ReductionCase::random(random, world.size(), counts[trial % 9]));
  }
  check_reduce(*comm, ReductionCase::random(random, world.size(), 300000));
  check_reduce(*comm, ReductionCase::random(random, world.size(), 1 << 20));
}

// Memory that is summed may be written again at once, and the next sum be of other pieces.
void sums_of_allocated_memory(World& world) {
  auto comm = whole_group(world);
  const auto device = make_cpu_device();
  const Buffer pieces = comm->allocate(*device, size_t(26 << 20) + size_t(comm->rank()) * 4096);
  const Buffer out = comm->allocate(*device, 4 << 20);
  for (size_t at = 0; at < out.size(); at += 4096) ASSERT_EQ(out.data()[at], std::byte{0});
  std::mt19937 random(31);
  for (int trial = 0; trial < 24; trial++) {
    const int64_t counts[] = {16, 4608, 16384, 20000, 33333, 150000};
    const ReductionCase test = ReductionCase::random(random, world.size(), counts[trial % 6]);
    const TreePlan plan(test.units, test.owned);
    const std::vector<float> mine = test.pieces(plan, comm->rank());
    float* const at = pieces.as<float>() + (trial % 2) * 16;
    std::copy(mine.begin(), mine.end(), at);
    const Status status = comm->all_reduce(plan, at, out.as<float>(), test.count);
    ASSERT_TRUE(status.ok()) << status.to_string();
    const std::vector<float> sum(out.as<float>(), out.as<float>() + test.count);
    std::fill_n(at, mine.size(), -1.0f);
    std::fill_n(out.as<float>(), test.count, -1.0f);
    const std::vector<float> expected = test.sum();
    EXPECT_EQ(std::memcmp(sum.data(), expected.data(), sum.size() * sizeof(float)), 0)
        << test.units << " units, " << test.count << " elements";
  }
}

void all_to_all_of_uneven_sizes(World& world) {
  auto comm = whole_group(world);
  std::mt19937 random(23);
  const int n = world.size();
  uint32_t seed = 1;
  check_all_to_all(*comm, SizeTable(size_t(n), std::vector<int64_t>(size_t(n), 0)), seed++);
  for (int trial = 0; trial < 20; trial++)
    for (int64_t most : {1, 63, 5000, 200000})
      check_all_to_all(*comm, random_sizes(random, n, most), seed++);
  // One pair alone has much to say: the others wait for its rounds.
  SizeTable sizes = random_sizes(random, n, 100);
  sizes[0][size_t(n - 1)] = (3 << 20) + 77;
  check_all_to_all(*comm, sizes, seed++);
  EXPECT_TRUE(comm->barrier().ok());
}

void a_thousand_collectives_in_random_order(World& world) {
  auto comm = whole_group(world);
  std::mt19937 random(11);
  for (uint32_t i = 0; i < 1000; i++) {
    const int64_t size = int64_t(random() % 4 ? random() % 3000 : random() % 200000);
    const int root = int(random() % uint32_t(world.size()));
    std::vector<int64_t> sizes;
    for (int r = 0; r < world.size(); r++) sizes.push_back(int64_t(random() % 5000));
    switch (random() % 6) {
      case 0:
        check_broadcast(*comm, size, root, i);
        break;
      case 1:
        check_gather(*comm, sizes, i);
        break;
      case 2:
        check_reduce(*comm, ReductionCase::random(random, world.size(), size / 40));
        break;
      case 3:
        check_ring(*comm, size, i);
        break;
      case 4:
        check_all_to_all(*comm, random_sizes(random, world.size(), size / 8), i);
        break;
      default:
        EXPECT_TRUE(comm->barrier().ok());
    }
    if (::testing::Test::HasFailure()) return;
  }
}

void messages_of_a_pair_keep_their_order(World& world) {
  if (world.size() < 2) return;
  auto comm = whole_group(world);
  constexpr int kMessages = 300;
  for (int i = 0; i < kMessages; i++) {
    int got = i;
    Status status;
    if (world.rank() == 0) status = comm->send(&i, sizeof i, 1);
    if (world.rank() == 1) {
      got = -1;
      status = comm->recv(&got, sizeof got, 0);
    }
    ASSERT_TRUE(status.ok()) << status.to_string();
    ASSERT_EQ(got, i);
  }
  EXPECT_TRUE(comm->barrier().ok());
}

// The token route relies on it: nobody receives before everybody has sent.
void short_messages_need_no_receiver(World& world) {
  auto comm = whole_group(world);
  comm->set_timeout(std::chrono::seconds(10));
  for (int lap = 0; lap < 2; lap++) {
    for (int i = 0; i < Communicator::kHeldMessages; i++)
      for (int peer = 0; peer < comm->size(); peer++) {
        if (peer == comm->rank()) continue;
        std::vector<uint8_t> mine =
            bytes_of_rank(Communicator::kHeldBytes - i, uint32_t(100 * i + comm->rank()));
        const Status status = comm->send(mine.data(), int64_t(mine.size()), peer);
        ASSERT_TRUE(status.ok()) << status.to_string();
        std::fill(mine.begin(), mine.end(), uint8_t(0));  // it is free again
      }
    meet(world);
    for (int i = 0; i < Communicator::kHeldMessages; i++)
      for (int peer = 0; peer < comm->size(); peer++) {
        if (peer == comm->rank()) continue;
        std::vector<uint8_t> got(size_t(Communicator::kHeldBytes - i));
        const Status status = comm->recv(got.data(), int64_t(got.size()), peer);
        ASSERT_TRUE(status.ok()) << status.to_string();
        EXPECT_TRUE(got == bytes_of_rank(int64_t(got.size()), uint32_t(100 * i + peer)));
      }
  }
}

void exchange_gives_everybodys_text(World& world) {
  for (int i = 0; i < 3; i++) {
    const auto text = [&](int r) {
      return std::string(size_t(r) * 3, 'a') + std::to_string(i + r);
    };
    Result<std::vector<std::string>> texts = world.exchange(text(world.rank()), kLong);
    ASSERT_TRUE(texts.ok()) << texts.status().to_string();
    ASSERT_EQ(int(texts->size()), world.size());
    for (int r = 0; r < world.size(); r++) EXPECT_EQ((*texts)[size_t(r)], text(r));
  }
}

void groups_do_not_mix(World& world) {
  const int n = world.size();
  auto all = whole_group(world, "first"), again = whole_group(world, "first");
  std::vector<int> members;  // of this rank's parity, highest first
  for (int r = n - 1; r >= 0; r--)
    if (r % 2 == world.rank() % 2) members.push_back(r);
  auto half = world.group(members, "half").value();
  ASSERT_EQ(half->size(), int(members.size()));
  ASSERT_EQ(members[size_t(half->rank())], world.rank());
  for (uint32_t i = 0; i < 20; i++) {
    check_broadcast(*half, 5000, half->size() - 1, i + uint32_t(world.rank() % 2) * 100);
    check_broadcast(*all, 3000, 0, i);
    check_broadcast(*again, 2000, n - 1, i + 50);
  }
  EXPECT_EQ(world.group({0, 0}, "bad").status().code(), Code::kInvalidArgument);
  EXPECT_EQ(world.group({n}, "bad").status().code(), Code::kInvalidArgument);
  EXPECT_EQ(world.group({}, "bad").status().code(), Code::kInvalidArgument);
}

void E03_a_timeout_names_who_did_not_come(World& world) {
  if (world.size() < 2) return;
  auto comm = whole_group(world);
  EXPECT_TRUE(comm->barrier().ok());
  comm->set_timeout(milliseconds(150));
  const int absent = world.size() - 1;
  if (world.rank() != absent) {
    const TimePoint start = std::chrono::steady_clock::now();
    const Status status = comm->barrier();
    // With more than one waiting rank the first to give up is news for the others.
    EXPECT_THAT(status.code(), AnyOf(Code::kDeadlineExceeded, Code::kUnavailable));
    EXPECT_THAT(status.message(), HasSubstr("rank " + std::to_string(absent)));
    EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(3));
  }
  meet(world);
}

void abort_wakes_whoever_waits(World& world) {
  if (world.size() < 2) return;
  auto comm = whole_group(world);
  EXPECT_TRUE(comm->barrier().ok());
  comm->set_timeout(kLong);
  if (world.rank() == 0) {
    std::thread other([&] {
      std::this_thread::sleep_for(milliseconds(50));
      comm->abort(cancelled("watchdog: step 17 is stuck"));
    });
    char byte;
    const TimePoint start = std::chrono::steady_clock::now();
    const Status status = comm->recv(&byte, 1, 1);
    EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(3));
    EXPECT_THAT(status.message(), HasSubstr("step 17 is stuck"));
    EXPECT_FALSE(comm->barrier().ok());
    other.join();
  }
  meet(world);
}

void a_rank_that_gives_up_says_why(World& world) {
  if (world.size() < 2) return;
  auto comm = whole_group(world);
  EXPECT_TRUE(comm->barrier().ok());
  if (world.rank() == world.size() - 1) {
    comm->abort(cancelled("watchdog: no progress in layer 3"));
  } else {
    const Status status = comm->barrier();
    EXPECT_EQ(status.code(), Code::kUnavailable) << status.to_string();
    EXPECT_THAT(status.message(), HasSubstr(concat("rank ", world.size() - 1, " on host")));
    EXPECT_THAT(status.message(), HasSubstr("no progress in layer 3"));
  }
  meet(world);
}

constexpr CommunicatorCheck kChecks[] = {
    {"EveryVerbOfManySizes", every_verb_of_many_sizes},
    {"AllReduceHasTheBitsOfTheTree", all_reduce_has_the_bits_of_the_tree},
    {"SumsOfAllocatedMemory", sums_of_allocated_memory},
    {"AllToAllOfUnevenSizes", all_to_all_of_uneven_sizes},
    {"AThousandCollectivesInRandomOrder", a_thousand_collectives_in_random_order},
    {"MessagesOfAPairKeepTheirOrder", messages_of_a_pair_keep_their_order},
    {"ShortMessagesNeedNoReceiver", short_messages_need_no_receiver},
    {"ExchangeGivesEverybodysText", exchange_gives_everybodys_text},
    {"GroupsDoNotMix", groups_do_not_mix},
    {"E21DifferentVerbs", mismatch::different_verbs},
    {"E21DifferentSizes", mismatch::different_sizes},
    {"E21AllToAllSizes", mismatch::all_to_all_sizes},
    {"E21ASkippedCollective", mismatch::a_skipped_collective},
    {"E21SwappedCollectives", mismatch::swapped_collectives},
    {"E21EqualCollectivesOfDifferentLayers", mismatch::equal_collectives_of_different_layers},
    {"E21DifferentSteps", mismatch::different_steps},
    {"E21NumbersStartAnewInAStep", mismatch::numbers_start_anew_in_a_step},
    {"E03ARankThatStaysBehind", mismatch::a_rank_that_stays_behind},
    {"E03ATimeoutNamesWhoDidNotCome", E03_a_timeout_names_who_did_not_come},
    {"ARankThatGivesUpSaysWhy", a_rank_that_gives_up_says_why},
    {"AbortWakesWhoeverWaits", abort_wakes_whoever_waits},
};

}  // namespace

std::span<const CommunicatorCheck> communicator_checks() { return kChecks; }

}  // namespace cohort
