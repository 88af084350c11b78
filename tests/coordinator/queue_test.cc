// SPDX-License-Identifier: Apache-2.0
// Order, limits and choice of replica, as values without threads.
#include <gtest/gtest.h>

#include <map>

#include "coordinator/admission.h"
#include "coordinator/fair_queue.h"
#include "coordinator/prefix_index.h"
#include "coordinator/router.h"

namespace cohort {
namespace {

FairQueue::Entry entry(uint64_t id, const std::string& tenant, int priority = 0,
                       TimePoint arrived = {}, int64_t tokens = 10) {
  return {id, tenant, priority, tokens, arrived};
}

TEST(FairQueue, E20_TwoTenantsShareByTokensNotByRequests) {
  FairQueue queue;
  std::map<std::string, int64_t> served;
  uint64_t id = 0;
  // One tenant sends many long prompts, the other short ones; both always have some waiting.
  for (int i = 0; i < 200; ++i) {
    queue.push(entry(++id, "long", 0, {}, 1000));
    for (int k = 0; k < 10; ++k) queue.push(entry(++id, "short", 0, {}, 100));
  }
  int64_t total = 0;
  while (total < 100'000) {
    const auto next = queue.pop({});
    served[next.tenant] += next.prompt_tokens;
    total += next.prompt_tokens;
  }
  EXPECT_NEAR(static_cast<double>(served["long"]), static_cast<double>(served["short"]),
              0.1 * static_cast<double>(total) / 2);
}

TEST(FairQueue, OutputCountsTwice) {
  FairQueue queue;
  for (uint64_t i = 0; i < 4; ++i) queue.push(entry(i, i % 2 ? "b" : "a"));
  queue.charge_output("a", 100);
  EXPECT_EQ(queue.pop({}).tenant, "b");
  EXPECT_EQ(queue.pop({}).tenant, "b");
  EXPECT_EQ(queue.pop({}).tenant, "a");
}

TEST(FairQueue, CreditIsNotSavedWhileAway) {
  FairQueue queue;
  for (uint64_t i = 0; i < 100; ++i) queue.push(entry(i, "busy", 0, {}, 100));
  for (int i = 0; i < 50; ++i) queue.pop({});
  for (uint64_t i = 200; i < 300; ++i) queue.push(entry(i, "new", 0, {}, 100));
  int fresh = 0;
  for (int i = 0; i < 20; ++i) fresh += queue.pop({}).tenant == "new";
  EXPECT_NEAR(fresh, 10, 1);
}

TEST(FairQueue, E20_LowPriorityStartsWithinTheAgeingBound) {
  FairQueue queue;
  TimePoint now{};
  queue.push(entry(1, "low", FairQueue::kLowestBand, now));
  const Duration bound = 2 * FairQueue::kLowestBand * FairQueue::kBandAge;
  uint64_t id = 100;
  bool started = false;
  for (; now <= TimePoint{} + bound + std::chrono::seconds(2); now += std::chrono::seconds(1)) {
    queue.push(entry(++id, "high", -FairQueue::kLowestBand, now));
    queue.push(entry(++id, "high", -FairQueue::kLowestBand, now));
    if (queue.pop(now).tenant == "low") {
      started = true;
      EXPECT_GE(now - TimePoint{}, FairQueue::kBandAge) << "bands are strict before";
      break;
    }
  }
  EXPECT_TRUE(started);
}

TEST(FairQueue, ErasesWhatIsGone) {
  FairQueue queue;
  queue.push(entry(1, "a"));
  queue.push(entry(2, "a"));
  EXPECT_TRUE(queue.erase(1));
  EXPECT_FALSE(queue.erase(1));
  EXPECT_EQ(queue.pop({}).sequence, 2U);
  EXPECT_TRUE(queue.empty());
}

TEST(Admission, WhoGivesNoNameHasOnlyTheCommonLimits) {
  Admission admission(
      {.queued_sequences = 10, .queued_tokens = 100, .tenant_sequences = 2, .open_sequences = 10});
  EXPECT_FALSE(admission.enter({"", 5, 5, 5}));
  EXPECT_FALSE(admission.enter({"", 5, 5, 5}));
  EXPECT_EQ(admission.enter({"", 1, 1, 1})->code, Code::kUnavailable);
}

TEST(Admission, CountsInAndOut) {
  Admission admission(
      {.queued_sequences = 3, .queued_tokens = 100, .tenant_sequences = 2, .open_sequences = 10});
  EXPECT_FALSE(admission.enter({"a", 2, 2, 50}));
  EXPECT_EQ(admission.enter({"a", 1, 1, 1})->code, Code::kResourceExhausted);
  EXPECT_EQ(admission.enter({"b", 2, 2, 1})->code, Code::kUnavailable);
  EXPECT_EQ(admission.enter({"b", 1, 1, 51})->code, Code::kUnavailable);
  admission.queued_changed(-2, -50);
  EXPECT_FALSE(admission.enter({"b", 1, 1, 5000})) << "an empty queue takes any size";
  admission.leave("a", 2);
  EXPECT_EQ(admission.open_sequences(), 1);
  admission.close();
  EXPECT_EQ(admission.enter({"c", 1, 1, 1})->code, Code::kUnavailable);
}

RouteCandidate candidate(int64_t pending, int running, int64_t matched = 0) {
  RouteCandidate c;
  c.pending_prefill = pending;
  c.running = running;
  c.step_seconds = 0.01;
  c.token_seconds = 0.001;
  c.matched_tokens = matched;
  return c;
}

TEST(Router, PrefersTheIdleAndTheWarm) {
  std::mt19937_64 random(1);
  const std::vector<RouteCandidate> idle = {candidate(2000, 8), candidate(0, 0)};
  EXPECT_EQ(choose_replica(idle, 100, 16, random), 1U);
  const std::vector<RouteCandidate> warm = {candidate(0, 0), candidate(0, 0, 512)};
  EXPECT_EQ(choose_replica(warm, 600, 16, random), 1U);
  EXPECT_FALSE(choose_replica({}, 10, 10, random).has_value());
}

TEST(Router, AHotPrefixDoesNotPullEverybodyToOneReplica) {
  std::mt19937_64 random(1);
  std::vector<RouteCandidate> fleet(4, candidate(0, 0));
  fleet[0].matched_tokens = 1024;
  std::vector<int> load(4);
  for (int i = 0; i < 64; ++i) {
    const size_t chosen = *choose_replica(fleet, 1100, 64, random);
    ++load[chosen];
    fleet[chosen].pending_prefill += 1100 - fleet[chosen].matched_tokens;
    fleet[chosen].matched_tokens = 1024;  // it has seen the prefix now
    ++fleet[chosen].running;
  }
  for (const int n : load) EXPECT_LE(n, 2 * 64 / 4);
}

TEST(Router, NearTiesAreSpread) {
  std::mt19937_64 random(1);
  const std::vector<RouteCandidate> equal(3, candidate(0, 0));
  std::vector<int> count(3);
  for (int i = 0; i < 300; ++i) ++count[*choose_replica(equal, 10, 10, random)];
  for (const int n : count) EXPECT_GT(n, 50);
}

TEST(PrefixIndex, MatchesLeadingBlocksOfTheSameSalt) {
  std::vector<TokenId> tokens(100);
  for (size_t i = 0; i < tokens.size(); ++i) tokens[i] = static_cast<TokenId>(i);
  const auto chain = block_chain(tokens, "");
  EXPECT_EQ(chain.size(), 6U);
  PrefixIndex index;
  index.insert(std::span(chain).first(3));
  EXPECT_EQ(index.matched(chain), 3U);
  EXPECT_EQ(index.matched(block_chain(tokens, "salt")), 0U);
  tokens[20] = 7;
  EXPECT_EQ(index.matched(block_chain(tokens, "")), 1U);
}

TEST(PrefixIndex, ForgetsTheOldestWhenFull) {
  PrefixIndex index(10);
  for (uint64_t i = 0; i < 100; ++i) index.insert(std::vector<uint64_t>{i});
  EXPECT_EQ(index.matched(std::vector<uint64_t>{0}), 0U);
  EXPECT_EQ(index.matched(std::vector<uint64_t>{99}), 1U);
}

}  // namespace
}  // namespace cohort
