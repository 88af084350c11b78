// SPDX-License-Identifier: Apache-2.0
// The race checker on kernels: a missing barrier is reported with both lines, in an order of
// threads in which the result is right; a right kernel is not reported.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>

#include <cstdio>
#include <fstream>
#include <string>

namespace cohort {
namespace {
using testing::AllOf;
using testing::HasSubstr;
constexpr int kRaceStatus = 66;

struct Outcome {
  int status;
  std::string text;  // of stderr
};

Outcome run(const std::string& kernel, const std::string& variant) {
  const std::string command = "TSAN_OPTIONS='exitcode=" + std::to_string(kRaceStatus) +
                              " halt_on_error=1 atexit_sleep_ms=0' '" RACE_PROGRAM "' " + kernel +
                              " " + variant + " 2>&1";
  Outcome outcome{-1, ""};
  std::FILE* pipe = popen(command.c_str(), "r");
  if (!pipe) return outcome;
  char buffer[4096];
  for (std::size_t n; (n = std::fread(buffer, 1, sizeof buffer, pipe)) > 0;)
    outcome.text.append(buffer, n);
  const int status = pclose(pipe);
  if (WIFEXITED(status)) outcome.status = WEXITSTATUS(status);
  return outcome;
}

// Line of planted_kernels.cu that ends with the comment.
std::string line_of(const std::string& comment) {
  std::ifstream file("tests/cuda/planted_kernels.cu");
  std::string line;
  for (int n = 1; std::getline(file, line); ++n)
    if (line.ends_with("// " + comment)) return "planted_kernels.cu:" + std::to_string(n);
  ADD_FAILURE() << "no line ends with " << comment;
  return "";
}

struct Case {
  const char* kernel;
  const char* first;
  const char* second;
};
class DeviceRaceTest : public testing::TestWithParam<Case> {};

TEST_P(DeviceRaceTest, RightKernelIsNotReported) {
  const Outcome outcome = run(GetParam().kernel, "right");
  EXPECT_EQ(outcome.status, 0) << outcome.text;
  EXPECT_EQ(outcome.text, "");
}

TEST_P(DeviceRaceTest, PlantedRaceIsReportedWithBothLines) {
  const Outcome outcome = run(GetParam().kernel, "planted");
  EXPECT_EQ(outcome.status, kRaceStatus);
  EXPECT_THAT(outcome.text,
              AllOf(HasSubstr("ThreadSanitizer: data race"), HasSubstr(line_of(GetParam().first)),
                    HasSubstr(line_of(GetParam().second))));
}

TEST(DeviceRaceFibersTest, ManyStreamsAreNoTrouble) {
  const Outcome outcome = run("streams", "right");
  EXPECT_EQ(outcome.status, 0) << outcome.text;
}

INSTANTIATE_TEST_SUITE_P(Kernels, DeviceRaceTest,
                         testing::Values(Case{"sum", "sum reads", "sum writes"},
                                         Case{"rounds", "rounds read", "rounds write"},
                                         Case{"reverse_barrier", "reverse writes", "reverse reads"},
                                         Case{"swap_neighbours", "swap writes", "swap reads"},
                                         Case{"count", "count adds", "count adds"},
                                         Case{"blocks", "blocks read", "blocks write"}),
                         [](const auto& info) { return std::string(info.param.kernel); });
}  // namespace
}  // namespace cohort
