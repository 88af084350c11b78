// SPDX-License-Identifier: Apache-2.0
#include "worker/plan_record.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>

#include "fake_executor.h"
#include "worker/leader/scheduler.h"

namespace cohort {
namespace {

class PlanRecordTest : public testing::Test {
 protected:
  void TearDown() override { std::filesystem::remove(path_); }
  const std::string path_ =
      testing::TempDir() + concat("cohort_plans_", getpid(), "_",
                                  testing::UnitTest::GetInstance()->current_test_info()->name());
};

// Some sequences run to their ends; plans and results go to the file.
void record_some(const StepLimits& limits, PlanRecorder& recorder, FakeExecutor& fake) {
  Scheduler scheduler(limits, 3);
  for (uint64_t id = 1; id <= 5; ++id) {
    SequenceRequest request;
    request.id = {id, 1};
    request.prompt.assign(10 * id, int32_t(20 + id));
    request.max_tokens = 20;
    ASSERT_TRUE(scheduler.admit(request).ok());
  }
  while (!scheduler.idle()) {
    while (auto plan = scheduler.plan()) {
      ASSERT_TRUE(recorder.add(*plan).ok());
      ASSERT_TRUE(fake.submit(*plan).ok());
    }
    const auto result = fake.next_result();
    ASSERT_TRUE(result.ok());
    ASSERT_TRUE(recorder.add(*result).ok());
    ASSERT_TRUE(scheduler.commit(*result).ok());
  }
}

TEST_F(PlanRecordTest, ReplayGivesTheSameResultsAndState) {
  const StepLimits limits{
      .dp = 2, .max_slots = 4, .max_rows = 32, .max_context = 128, .blocks = 20, .in_flight = 2};
  auto recorder = PlanRecorder::create(path_, limits);
  ASSERT_TRUE(recorder.ok()) << recorder.status().to_string();
  FakeExecutor first(limits);
  record_some(limits, **recorder, first);

  const auto record = read_plan_record(path_);
  ASSERT_TRUE(record.ok()) << record.status().to_string();
  EXPECT_EQ(record->limits.dp, 2);
  EXPECT_EQ(record->limits.blocks, 20);
  EXPECT_GT(record->plans.size(), 20u);
  EXPECT_EQ(record->plans, first.plans());
  FakeExecutor second(record->limits);
  const auto results = replay(record->plans, second);
  ASSERT_TRUE(results.ok()) << results.status().to_string();
  EXPECT_EQ(*results, record->results);
  EXPECT_EQ(first.state(), second.state());

  // A replica that was killed while it wrote.
  std::filesystem::resize_file(path_, std::filesystem::file_size(path_) - 3);
  const auto cut = read_plan_record(path_);
  ASSERT_TRUE(cut.ok()) << cut.status().to_string();
  EXPECT_EQ(cut->plans, record->plans);
  EXPECT_EQ(cut->results.size() + 1, record->results.size());
}

TEST_F(PlanRecordTest, OtherFilesAreRefused) {
  EXPECT_FALSE(read_plan_record(path_).ok());
  std::ofstream(path_) << "something else entirely, and long enough";
  EXPECT_EQ(read_plan_record(path_).status().code(), Code::kInvalidArgument);
  std::ofstream(path_) << "CSREC002" << std::string(24, '\0') << 'X' << std::string(4, '\0');
  EXPECT_EQ(read_plan_record(path_).status().code(), Code::kDataLoss);
  EXPECT_FALSE(PlanRecorder::create("/nonexistent/plans", {}).ok());
}

}  // namespace
}  // namespace cohort
