// SPDX-License-Identifier: Apache-2.0
#include "worker/leader/session_messages.h"

#include <gtest/gtest.h>

namespace cohort {
namespace {

TEST(SessionMessages, TheCoordinatorSeesWhatAllDpGroupsHaveTogether) {
  ReplicaDescription description;
  description.tp = 2;
  description.limits = {
      .dp = 3, .max_slots = 4, .max_rows = 32, .max_context = 256, .blocks = 64, .in_flight = 2};
  const replica::v1::Hello hello = to_wire(description);
  EXPECT_EQ(hello.layout().tp(), 2);
  EXPECT_EQ(hello.layout().dp(), 3);
  EXPECT_EQ(hello.max_batch(), 12);
  EXPECT_EQ(hello.max_rows(), 96);
  EXPECT_EQ(hello.kv_blocks(), 192);
  EXPECT_EQ(hello.max_context(), 256) << "of one sequence";
}

TEST(SessionMessages, LoadNamesGroupsWhereThereAreSeveral) {
  LoadReport report;
  report.scheduler.running = 5;
  report.scheduler.blocks = {.total = 20, .free = 8, .parked = 2, .held = 10};
  report.scheduler.groups = {{5, report.scheduler.blocks}};
  EXPECT_EQ(to_wire(report).groups_size(), 0);
  report.scheduler.groups = {{3, {.total = 10, .free = 3, .parked = 1, .held = 6}},
                             {2, {.total = 10, .free = 5, .parked = 1, .held = 4}}};
  const replica::v1::Load load = to_wire(report);
  EXPECT_EQ(load.running(), 5);
  EXPECT_EQ(load.blocks_total(), 20);
  ASSERT_EQ(load.groups_size(), 2);
  EXPECT_EQ(load.groups(0).running(), 3);
  EXPECT_EQ(load.groups(1).blocks_total(), 10);
  EXPECT_EQ(load.groups(1).blocks_free(), 5);
  EXPECT_EQ(load.groups(1).blocks_cached(), 1);
}

TEST(SessionMessages, ExpertsAreTotalsUpToABound) {
  ExpertReport report{.layers = {{3, {5, 0, uint64_t{1} << 40}}}, .imbalance = 1.5, .copies = 2};
  const replica::v1::Experts experts = to_wire(report);
  ASSERT_EQ(experts.layers_size(), 1);
  EXPECT_EQ(experts.layers(0).layer(), 3);
  ASSERT_EQ(experts.layers(0).tokens_size(), 3);
  EXPECT_EQ(experts.layers(0).tokens(2), uint64_t{1} << 40);
  EXPECT_EQ(experts.imbalance(), 1.5);
  EXPECT_EQ(experts.copies(), 2);
  report.layers.push_back({4, std::vector<uint64_t>(kMostExpertCounts, 1)});
  EXPECT_EQ(to_wire(report).layers_size(), 1);
}

}  // namespace
}  // namespace cohort
