// SPDX-License-Identifier: Apache-2.0
// Rows reach the experts that their tokens chose and come back, the same bits as where one rank has
// everything.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <random>

#include "kernels/ops.h"
#include "parallel/expert_exchange_traffic.h"
#include "tests/support/local_ranks.h"

namespace cohort {
namespace {

constexpr int64_t kAlways = 1000, kNever = 0;  // few_rows: send all that there could be

struct GroupTokens {
  std::vector<float> h;          // [tokens, hidden]
  std::vector<int32_t> experts;  // [tokens, k]
  std::vector<float> weights;    // [tokens, k]
};

// A layer's tokens of all groups and its experts; the same on all ranks.
struct Layer {
  ExpertPlacement placement;
  int64_t hidden;
  int k;
  std::vector<int64_t> group_rows;
  std::vector<GroupTokens> groups;
};

class Dice {
 public:
  explicit Dice(unsigned seed) : random_(seed) {}
  int upto(int n) { return std::uniform_int_distribution<int>(0, n)(random_); }
  float real() { return std::uniform_real_distribution<float>(-2, 2)(random_); }
  // k of n, ascending.
  std::vector<int32_t> choose(int k, int n) {
    std::vector<int32_t> all(static_cast<size_t>(n));
    for (int i = 0; i < n; i++) all[size_t(i)] = i;
    std::shuffle(all.begin(), all.end(), random_);
    all.resize(size_t(k));
    std::sort(all.begin(), all.end());
    return all;
  }

 private:
  std::mt19937 random_;
};

ExpertPlacement random_placement(Dice& dice, int ranks, int experts) {
  const bool whole = dice.upto(1) == 0;
  const int begin = whole ? 0 : dice.upto(experts);
  const int end = whole ? experts : begin + dice.upto(experts - begin);
  std::vector<int> cuts{begin, end};
  for (int i = 1; i < ranks; i++) cuts.push_back(begin + dice.upto(end - begin));
  std::sort(cuts.begin(), cuts.end());
  std::vector<UnitRange> owned;
  for (size_t i = 1; i < cuts.size(); i++) owned.push_back({cuts[i - 1], cuts[i]});
  ExpertPlacement placement(experts, owned);
  for (int copies = dice.upto(6); copies > 0; copies--)
    placement.add(dice.upto(experts - 1), dice.upto(ranks - 1));
  return placement;
}

GroupTokens random_tokens(Dice& dice, int64_t rows, int64_t hidden, int k, int experts) {
  GroupTokens tokens;
  for (int64_t i = 0; i < rows; i++) {
    for (const int32_t expert : dice.choose(k, experts)) {
      tokens.experts.push_back(expert);
      tokens.weights.push_back(dice.real());
    }
    for (int64_t c = 0; c < hidden; c++) tokens.h.push_back(dice.real());
  }
  return tokens;
}

constexpr int kMostRows = 9, kMostExperts = 12;

Layer random_layer(Dice& dice, int ranks, int64_t hidden, int k) {
  const int experts = k + dice.upto(kMostExperts - k);
  Layer layer{random_placement(dice, ranks, experts), hidden, k, {}, {}};
  for (int d = 0; d < ranks; d++) {
    layer.group_rows.push_back(dice.upto(2) == 0 ? 0 : dice.upto(kMostRows));
    layer.groups.push_back(random_tokens(dice, layer.group_rows.back(), hidden, k, experts));
  }
  return layer;
}

// One multiplication: exact in any order.
float expert_output(const float* row, int64_t hidden, int expert, int64_t column) {
  return row[(column + expert) % hidden] * (1.25f + float(expert));
}

// The sum over the column's experts as one rank has it, pieces back to back.
std::vector<float> pieces_of(Stream& stream, const Layer& layer, int dp, Tensor outputs,
                             Tensor places) {
  const GroupTokens& tokens = layer.groups[size_t(dp)];
  const int64_t rows = layer.group_rows[size_t(dp)];
  const std::vector<UnitRange> ranges =
      maximal_subtrees(layer.placement.experts(), layer.placement.column());
  std::vector<float> pieces(ranges.size() * size_t(rows * layer.hidden));
  const int64_t count = int64_t(ranges.size());
  ops::combine_experts(stream, Tensor(pieces.data(), DType::f32, {count, rows, layer.hidden}),
                       outputs, places, Tensor(tokens.experts.data(), DType::i32, {rows, layer.k}),
                       Tensor(tokens.weights.data(), DType::f32, {rows, layer.k}), ranges);
  return pieces;
}

std::vector<float> expected_pieces(Stream& stream, const Layer& layer, int dp) {
  const GroupTokens& tokens = layer.groups[size_t(dp)];
  const int64_t rows = layer.group_rows[size_t(dp)], pairs = rows * layer.k;
  const UnitRange column = layer.placement.column();
  std::vector<float> outputs(size_t(pairs * layer.hidden));
  std::vector<int32_t> places(size_t(pairs), -1);
  for (int64_t pair = 0; pair < pairs; pair++) {
    const int expert = tokens.experts[size_t(pair)];
    if (expert < column.begin || expert >= column.end) continue;
    places[size_t(pair)] = int32_t(pair);
    const float* row = tokens.h.data() + pair / layer.k * layer.hidden;
    for (int64_t c = 0; c < layer.hidden; c++)
      outputs[size_t(pair * layer.hidden + c)] = expert_output(row, layer.hidden, expert, c);
  }
  return pieces_of(stream, layer, dp, Tensor(outputs.data(), DType::f32, {pairs, layer.hidden}),
                   Tensor(places.data(), DType::i32, {rows, layer.k}));
}

std::vector<float> run_experts(const Layer& layer, int dp, const Route& route) {
  const std::vector<int>& held = layer.placement.held(dp);
  std::vector<float> y(size_t(route.x.elements()));
  EXPECT_EQ(route.offsets.dim(0), int64_t(held.size()) + 1);
  EXPECT_EQ(route.offsets.i32()[held.size()], route.x.dim(0));
  for (size_t e = 0; e < held.size(); e++)
    for (int64_t i = route.offsets.i32()[e]; i < route.offsets.i32()[e + 1]; i++)
      for (int64_t c = 0; c < layer.hidden; c++)
        y[size_t(i * layer.hidden + c)] =
            expert_output(route.x.f32() + i * layer.hidden, layer.hidden, held[e], c);
  return y;
}

Task forward(Stream& stream, ExpertExchange& exchange, const Layer& layer, int dp,
             std::vector<float>& pieces) {
  Route route;
  const GroupTokens& tokens = layer.groups[size_t(dp)];
  const int64_t rows = layer.group_rows[size_t(dp)];
  const Tensor h(tokens.h.data(), DType::f32, {rows, layer.hidden});
  const Tensor experts(tokens.experts.data(), DType::i32, {rows, layer.k});
  int calls = 0;
  const auto meanwhile = [&calls] { calls++; };
  co_await exchange.dispatch(route, layer.placement, h, experts, layer.group_rows, meanwhile);
  EXPECT_EQ(calls, 1);
  EXPECT_LE(route.x.dim(0), exchange.max_rows());
  const std::vector<float> outputs = run_experts(layer, dp, route);
  const Tensor y(outputs.data(), DType::f32, {route.x.dim(0), layer.hidden});
  co_await exchange.combine(route, y);
  pieces = pieces_of(stream, layer, dp, route.outputs, route.places);
}

void run(Task task) {
  task.start();
  ASSERT_TRUE(task.done());
  task.result();
}

void expect_same_bits(const std::vector<float>& a, const std::vector<float>& b) {
  ASSERT_EQ(a.size(), b.size());
  ASSERT_EQ(a.empty() ? 0 : std::memcmp(a.data(), b.data(), a.size() * sizeof(float)), 0);
}

std::unique_ptr<Communicator> dp_group(World& world) {
  std::vector<int> everyone;
  for (int r = 0; r < world.size(); r++) everyone.push_back(r);
  auto made = world.group(everyone, "dp");
  if (!made.ok()) throw Failure(made.status());
  (*made)->set_timeout(std::chrono::seconds(20));
  return std::move(*made);
}

ExchangeShape shape(int64_t hidden, int k, int64_t few_rows) {
  return {.max_rows = kMostRows,
          .hidden = hidden,
          .per_token = k,
          .most_held = kMostExperts,
          .few_rows = few_rows};
}

// `steps` random layers through one exchange on every rank.
void run_random_layers(int ranks, int k, int64_t few_rows, int steps, int64_t hidden = 5,
                       int threads = 1) {
  run_local_ranks(ranks, [&](World& world) {
    const auto communicator = dp_group(world);
    Stream stream(threads, Isa::portable);
    const auto exchange =
        make_expert_exchange(stream, Group(*communicator), shape(hidden, k, few_rows));
    Dice dice(unsigned(100 * ranks + k));
    std::vector<float> pieces;
    for (int step = 0; step < steps; step++) {
      SCOPED_TRACE(concat("step ", step, ", rank ", world.rank(), " of ", ranks, ", k ", k));
      const Layer layer = random_layer(dice, ranks, hidden, k);
      run(forward(stream, *exchange, layer, world.rank(), pieces));
      expect_same_bits(pieces, expected_pieces(stream, layer, world.rank()));
      if (::testing::Test::HasFailure()) return;
    }
  });
}

TEST(ExpertExchangeTest, AnySpreadGivesTheBitsOfOneRank) {
  for (int ranks = 1; ranks <= 4; ranks++)
    for (const int k : {1, 2, 5})
      for (const int64_t few_rows : {kNever, int64_t{4}, kAlways})
        run_random_layers(ranks, k, few_rows, 60);
}

TEST(ExpertExchangeTest, WideRowsAreCopiedBySeveralThreads) {
  for (const int64_t few_rows : {kNever, kAlways}) run_random_layers(2, 4, few_rows, 10, 4100, 3);
}

TEST(ExpertExchangeTest, TwoThousandStepsDoNotHang) { run_random_layers(4, 3, 5, 2000); }

// Resumes two tasks in turn until both are done.
void alternate(VerbLine& line, Task& a, Task& b) {
  Task* tasks[] = {&a, &b};
  std::coroutine_handle<> waiting[2];
  for (int i = 0; i < 2; i++) {
    tasks[i]->start();
    waiting[i] = line.take_suspended();
  }
  while (!a.done() || !b.done())
    for (int i = 0; i < 2; i++) {
      if (tasks[i]->done()) continue;
      waiting[i].resume();
      waiting[i] = line.take_suspended();
    }
}

TEST(ExpertExchangeTest, TwoMicroBatchesTakeTurns) {
  constexpr int64_t kHidden = 7;
  constexpr int kPerToken = 3;
  run_local_ranks(3, [&](World& world) {
    const auto communicator = dp_group(world);
    VerbLine line(true);
    const Group group(*communicator, GroupKind::dp, &line);
    Stream stream(1, Isa::portable);
    std::unique_ptr<ExpertExchange> exchanges[2];
    for (auto& exchange : exchanges)
      exchange = make_expert_exchange(stream, group, shape(kHidden, kPerToken, 4));
    Dice dice(7);
    for (int step = 0; step < 200; step++) {
      const Layer first = random_layer(dice, 3, kHidden, kPerToken);
      const Layer second = random_layer(dice, 3, kHidden, kPerToken);
      std::vector<float> a, b;
      line.open();
      Task one = forward(stream, *exchanges[0], first, world.rank(), a);
      Task two = forward(stream, *exchanges[1], second, world.rank(), b);
      alternate(line, one, two);
      line.close();
      one.result();
      two.result();
      expect_same_bits(a, expected_pieces(stream, first, world.rank()));
      expect_same_bits(b, expected_pieces(stream, second, world.rank()));
    }
  });
}

// Bytes that must move, counted pair by pair.
int64_t bytes_needed(const Layer& layer, int dp) {
  int64_t rows = 0;
  for (int d = 0; d < layer.placement.ranks(); d++)
    for (int64_t i = 0; i < layer.group_rows[size_t(d)]; i++) {
      std::vector<bool> goes(size_t(layer.placement.ranks()), false);
      for (int j = 0; j < layer.k; j++) {
        const int expert = layer.groups[size_t(d)].experts[size_t(i * layer.k + j)];
        const int at = layer.placement.place(expert, d, i);
        if (at < 0 || at == d) continue;
        if (d == dp && !goes[size_t(at)]) rows++;  // the token's row
        if (at == dp) rows++;                      // an output
        goes[size_t(at)] = true;
      }
    }
  return rows * layer.hidden * 4;
}

TEST(ExpertExchangeTest, WhatIsSentIsWhatTheFiguresSay) {
  constexpr int64_t kHidden = 16;
  constexpr int kPerToken = 4;
  for (const int64_t few_rows : {kNever, int64_t{5}, kAlways})
    run_local_ranks(3, [&](World& world) {
      const auto communicator = dp_group(world);
      VerbLine line(false);
      Stream stream(1, Isa::portable);
      const auto exchange = make_expert_exchange(stream, Group(*communicator, GroupKind::dp, &line),
                                                 shape(kHidden, kPerToken, few_rows));
      Dice dice(3);
      int64_t needed = 0;
      std::vector<float> pieces;
      for (int step = 0; step < 50; step++) {
        const Layer layer = random_layer(dice, 3, kHidden, kPerToken);
        needed += bytes_needed(layer, world.rank());
        run(forward(stream, *exchange, layer, world.rank(), pieces));
      }
      const ExchangeTraffic bytes = exchange->traffic();
      EXPECT_EQ(bytes.sent, line.times().groups[size_t(GroupKind::dp)].bytes_sent);
      EXPECT_EQ(bytes.minimum, needed);
      EXPECT_GT(bytes.minimum, 0);
      EXPECT_GE(bytes.exact, bytes.minimum);
      EXPECT_GE(bytes.fixed, bytes.minimum);
      EXPECT_TRUE(few_rows != kNever || bytes.sent == bytes.exact);
      EXPECT_TRUE(few_rows != kAlways || bytes.sent == bytes.fixed);
    });
}

TEST(ExpertExchangeTest, TrafficOfAKnownCase) {
  // 2 ranks of 2 experts; rank 0 has 3 tokens, of which 2 need rank 1; rank 1 has 1 token, with
  // both of its experts here.
  const ExpertPlacement placement(4, {{0, 2}, {2, 4}});
  ExchangeShape s{.max_rows = 8, .hidden = 10, .per_token = 3, .most_held = 2, .few_rows = 4};
  const std::vector<int64_t> rows{3, 1}, to{0, 2}, pairs{0, 2};
  const ExchangeCounts counts{.group_rows = rows, .rows_to = to, .pairs_for = pairs};
  ExchangeTraffic bytes = exchange_traffic(placement, s, 0, counts);
  EXPECT_EQ(bytes.fixed, 3 * (10 + 2) * 4 + 1 * 2 * 10 * 4);
  EXPECT_EQ(bytes.exact, 4 + 2 * (10 + 2) * 4 + 2 * 10 * 4);
  EXPECT_EQ(bytes.minimum, 2 * 10 * 4 + 2 * 10 * 4);
  EXPECT_EQ(bytes.sent, bytes.fixed);
  s.few_rows = 2;
  EXPECT_EQ(exchange_traffic(placement, s, 0, counts).sent, bytes.exact);
}

// Rank 0's group has more tokens than the others believe. Nobody hangs, and everybody fails.
void expect_mismatch_is_found(int64_t few_rows, int64_t told) {
  constexpr int64_t kHidden = 4;
  Dice dice(5);
  const ExpertPlacement placement(6, {{0, 2}, {2, 4}, {4, 6}});
  Layer layer{placement, kHidden, 6, {8, 2, 2}, {}};
  for (const int64_t rows : layer.group_rows)
    layer.groups.push_back(random_tokens(dice, rows, kHidden, 6, 6));
  std::vector<Status> found(3);
  run_local_ranks(3, [&](World& world) {
    const auto communicator = dp_group(world);
    communicator->set_timeout(std::chrono::milliseconds(300));
    Stream stream(1, Isa::portable);
    const auto exchange =
        make_expert_exchange(stream, Group(*communicator), shape(kHidden, 6, few_rows));
    Layer mine = layer;
    if (world.rank() != 0) mine.group_rows[0] = told;
    std::vector<float> pieces;
    try {
      run(forward(stream, *exchange, mine, world.rank(), pieces));
    } catch (const Failure& failure) {
      found[size_t(world.rank())] = failure.status();
    }
  });
  for (const Status& status : found) {
    EXPECT_FALSE(status.ok());
    EXPECT_FALSE(status.message().empty());
  }
}

TEST(ExpertExchangeTest, ADifferentPlanIsFound) {
  expect_mismatch_is_found(kAlways, 7);  // sizes differ
  expect_mismatch_is_found(kNever, 5);   // more rows come than there can be
  expect_mismatch_is_found(4, 3);        // one way here, another way there
}

}  // namespace
}  // namespace cohort
