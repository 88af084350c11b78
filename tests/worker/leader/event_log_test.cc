// SPDX-License-Identifier: Apache-2.0
#include "worker/leader/event_log.h"

#include <gtest/gtest.h>

namespace cohort {
namespace {

constexpr TimePoint kStart{};
constexpr SequenceId kId{7, 1};

SequenceEvent token(int32_t index, int32_t id, SequenceId sequence = kId) {
  SequenceEvent event{.id = sequence, .index = index};
  event.token = SampledToken{};
  event.token->token = id;
  return event;
}

SequenceEvent last_token(int32_t index, int32_t id) {
  SequenceEvent event = token(index, id);
  event.finish = FinishReason::stop;
  return event;
}

std::vector<int32_t> ids(const replica::v1::TokenEvent& event) {
  std::vector<int32_t> list;
  for (const auto& t : event.tokens()) list.push_back(t.id());
  return list;
}

TEST(EventLog, SendsOnceAndGathersWhatCameMeanwhile) {
  EventLog log(100);
  EXPECT_TRUE(log.open(kId, 5));
  EXPECT_FALSE(log.open(kId, 5));
  log.append(token(5, 50));
  log.append(token(6, 60));
  auto events = log.take_unsent(100, kStart);
  ASSERT_EQ(events.size(), 1u);
  EXPECT_EQ(events[0].index(), 5u);
  EXPECT_EQ(ids(events[0]), (std::vector<int32_t>{50, 60}));
  EXPECT_FALSE(log.has_unsent());
  EXPECT_TRUE(log.take_unsent(100, kStart).empty());
}

TEST(EventLog, ResendsFromWhereTheCoordinatorStands) {
  EventLog log(100);
  log.open(kId, 0);
  for (int i = 0; i < 6; ++i) log.append(token(i, 10 * i));
  log.take_unsent(100, kStart);
  log.acknowledge(kId, 2);
  EXPECT_EQ(log.live()[0].next_index(), 6u);
  EXPECT_TRUE(log.resume({{kId, 4}}).empty());
  log.append(last_token(6, 60));
  const auto events = log.take_unsent(100, kStart);
  ASSERT_EQ(events.size(), 1u);
  EXPECT_EQ(events[0].index(), 4u);
  EXPECT_EQ(ids(events[0]), (std::vector<int32_t>{40, 50, 60}));
  EXPECT_EQ(events[0].finish(), replica::v1::FINISH_STOP);
  log.acknowledge(kId, 6);
  EXPECT_FALSE(log.empty()) << "its last token is on the way";
  log.acknowledge(kId, 7);
  EXPECT_TRUE(log.empty());
}

TEST(EventLog, ForgetsWhatTheNextStreamDoesNotName) {
  EventLog log(100);
  log.open(kId, 0);
  log.open({8, 1}, 0);
  log.append(token(0, 1));
  EXPECT_EQ(log.resume({{{8, 1}, 0}}), std::vector<SequenceId>{kId});
  log.append(token(1, 2));
  EXPECT_FALSE(log.has_unsent());
  EXPECT_EQ(log.live().size(), 1u);
}

TEST(EventLog, AFullLogEndsTheAttemptWithAnError) {
  EventLog log(2);
  log.open(kId, 0);
  EXPECT_TRUE(log.append(token(0, 1)));
  EXPECT_TRUE(log.append(token(1, 2)));
  EXPECT_FALSE(log.append(token(2, 3)));
  EXPECT_TRUE(log.append(token(3, 4))) << "it has ended: nothing is kept";
  const auto events = log.take_unsent(100, kStart);
  ASSERT_EQ(events.size(), 1u);
  EXPECT_EQ(ids(events[0]), (std::vector<int32_t>{1, 2}));
  EXPECT_EQ(events[0].finish(), replica::v1::FINISH_ERROR);
}

TEST(EventLog, SplitsMessagesAndEndsWithTheLast) {
  EventLog log(100);
  log.open(kId, 0);
  for (int i = 0; i < 4; ++i) log.append(token(i, i));
  log.append(last_token(4, 4));
  auto events = log.take_unsent(3, kStart);
  EXPECT_EQ(ids(events.at(0)), (std::vector<int32_t>{0, 1, 2}));
  EXPECT_EQ(events.at(0).finish(), replica::v1::FINISH_UNSPECIFIED);
  events = log.take_unsent(3, kStart);
  EXPECT_EQ(ids(events.at(0)), (std::vector<int32_t>{3, 4}));
  EXPECT_EQ(events.at(0).finish(), replica::v1::FINISH_STOP);
}

TEST(EventLog, ForgetsEndsThatWereSentLongAgo) {
  EventLog log(100);
  log.open(kId, 0);
  log.append({.id = kId, .index = 0, .finish = FinishReason::error, .error = "no"});
  log.take_unsent(100, kStart + std::chrono::seconds(1));
  log.forget_ended(kStart);
  EXPECT_FALSE(log.empty());
  log.forget_ended(kStart + std::chrono::seconds(2));
  EXPECT_TRUE(log.empty());
}

TEST(EventLog, FindsOlderAttempts) {
  EventLog log(100);
  log.open({7, 1}, 0);
  log.open({7, 2}, 0);
  log.open({8, 1}, 0);
  EXPECT_EQ(log.others({7, 2}), (std::vector<SequenceId>{{7, 1}}));
}

}  // namespace
}  // namespace cohort
