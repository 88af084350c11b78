// SPDX-License-Identifier: Apache-2.0
#include "base/status.h"

#include <gtest/gtest.h>

#include <memory>

namespace cohort {
namespace {

TEST(Status, OkHasNoMessage) {
  const Status status;
  EXPECT_TRUE(status.ok());
  EXPECT_EQ(status.code(), Code::kOk);
  EXPECT_EQ(status.to_string(), "OK");
  EXPECT_TRUE(status.annotate("reading").ok());
}

TEST(Status, ErrorsSayTheirCodeAndMessage) {
  const Status status = invalid_argument("top_p must be in (0, 1]");
  EXPECT_FALSE(status.ok());
  EXPECT_EQ(status.to_string(), "INVALID_ARGUMENT: top_p must be in (0, 1]");
  EXPECT_EQ(status.annotate("request 7").to_string(),
            "INVALID_ARGUMENT: request 7: top_p must be in (0, 1]");
  EXPECT_EQ(status, invalid_argument("top_p must be in (0, 1]"));
  EXPECT_FALSE(status == not_found("top_p must be in (0, 1]"));
}

TEST(Status, CodesHaveTheNumbersAndNamesOfGrpc) {
  // grpc/grpc doc/statuscodes.md
  const std::pair<int, const char*> expected[] = {
      {0, "OK"},           {1, "CANCELLED"},           {3, "INVALID_ARGUMENT"},
      {5, "NOT_FOUND"},    {4, "DEADLINE_EXCEEDED"},   {6, "ALREADY_EXISTS"},
      {10, "ABORTED"},     {7, "PERMISSION_DENIED"},   {8, "RESOURCE_EXHAUSTED"},
      {13, "INTERNAL"},    {9, "FAILED_PRECONDITION"}, {12, "UNIMPLEMENTED"},
      {14, "UNAVAILABLE"}, {15, "DATA_LOSS"},          {16, "UNAUTHENTICATED"},
  };
  for (const auto& [number, text] : expected) EXPECT_STREQ(name(Code(number)), text);
}

Result<std::unique_ptr<int>> half_of(int value) {
  if (value % 2) return invalid_argument("odd");
  return std::make_unique<int>(value / 2);
}

Result<int> quarter_of(int value) {
  COHORT_ASSIGN_OR_RETURN(const std::unique_ptr<int> half, half_of(value));
  COHORT_ASSIGN_OR_RETURN(const std::unique_ptr<int> quarter, half_of(*half));
  return *quarter;
}

Status check_quarter(int value) {
  COHORT_RETURN_IF_ERROR(quarter_of(value).status());
  return {};
}

TEST(Result, HoldsAValueOrTheReason) {
  EXPECT_EQ(*quarter_of(12), 3);
  EXPECT_TRUE(quarter_of(12).status().ok());
  EXPECT_EQ(quarter_of(6).status(), invalid_argument("odd"));
  EXPECT_TRUE(check_quarter(8).ok());
  EXPECT_EQ(check_quarter(3).message(), "odd");
}

TEST(StatusDeathTest, MisuseEndsTheProcess) {
  EXPECT_DEATH(Status(Code::kOk, "no failure"), "check failed");
  EXPECT_DEATH((void)Result<int>(not_found("gone")).value(), "NOT_FOUND: gone");
  EXPECT_DEATH((void)Result<int>(Status()), "check failed");
}

TEST(CheckDeathTest, SaysWhereAndBothOperands) {
  const int two = 2;
  EXPECT_DEATH(COHORT_CHECK_EQ(two, 3), "status_test.cc:.*two == 3: 2 against 3");
  EXPECT_DEATH(COHORT_CHECK_MSG(two > 2, "too few"), "two > 2: too few");
  COHORT_CHECK_LE(two, 2);
}

}  // namespace
}  // namespace cohort
