// SPDX-License-Identifier: Apache-2.0
// A build for real GPUs on a host that has none: one line says so, and nothing crashes.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/open_device.h"

namespace cohort {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

TEST(NoGpuTest, OpeningOneSaysWhatIsMissingInOneLine) {
  const int count = count_cuda_devices();
  // Where there are GPUs, the one after the last is missing.
  const auto opened = open_cuda_device(count);
  ASSERT_FALSE(opened.ok());
  EXPECT_EQ(opened.status().code(), Code::kFailedPrecondition);
  EXPECT_THAT(opened.status().message(), Not(HasSubstr("\n")));
  if (count > 0)
    EXPECT_THAT(opened.status().message(), HasSubstr("does not exist"));
  else
    EXPECT_THAT(opened.status().message(), HasSubstr("runtime 13."));
}

}  // namespace
}  // namespace cohort
