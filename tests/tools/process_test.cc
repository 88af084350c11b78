// SPDX-License-Identifier: Apache-2.0
#include "tools/process.h"

#include <gtest/gtest.h>
#include <signal.h>

#include <thread>

namespace cohort {
namespace {

using namespace std::chrono_literals;

Command shell(const std::string& script) { return {{"/bin/sh", "-c", script}, {}}; }

// Everything that the process prints until its end.
std::vector<std::string> lines_of(Process& process, std::optional<Exit>* exit = nullptr) {
  std::vector<std::string> lines;
  std::optional<Exit> end;
  const Deadline deadline = Deadline::after(10s);
  while (!end && !deadline.expired()) {
    end = process.wait(20ms);
    process.read_lines([&](const std::string& line) { lines.push_back(line); });
  }
  if (exit != nullptr) *exit = end;
  return lines;
}

TEST(Process, GivesLinesAndExitStatus) {
  auto process = Process::start(shell("echo one; printf 'two\\nrest'; exit 3"));
  ASSERT_TRUE(process.ok());
  std::optional<Exit> exit;
  EXPECT_EQ(lines_of(*process, &exit), (std::vector<std::string>{"one", "two", "rest"}));
  ASSERT_TRUE(exit);
  EXPECT_EQ(exit->code, 3);
  EXPECT_EQ(exit->to_string(), "exit status 3");
}

TEST(Process, NamesTheSignalThatEndedIt) {
  auto process = Process::start(shell("kill -9 $$"));
  ASSERT_TRUE(process.ok());
  std::optional<Exit> exit;
  lines_of(*process, &exit);
  ASSERT_TRUE(exit);
  EXPECT_EQ(exit->signal, SIGKILL);
}

TEST(Process, AddsToTheEnvironmentAndReplaces) {
  ASSERT_EQ(setenv("COHORT_PROCESS_TEST", "old", 1), 0);
  Command command = shell("echo $COHORT_PROCESS_TEST $COHORT_PROCESS_NEW");
  command.environment = {{"COHORT_PROCESS_TEST", "new"}, {"COHORT_PROCESS_NEW", "too"}};
  auto process = Process::start(command);
  ASSERT_TRUE(process.ok());
  EXPECT_EQ(lines_of(*process), (std::vector<std::string>{"new too"}));
}

TEST(Process, MissingProgramIsAnErrorThatNamesIt) {
  auto process = Process::start({{"/no/such/program"}, {}});
  ASSERT_FALSE(process.ok());
  EXPECT_EQ(process.status().code(), Code::kNotFound);
  EXPECT_NE(process.status().message().find("/no/such/program"), std::string::npos);
}

TEST(Process, DestructionKillsTheWholeGroup) {
  pid_t child = 0;
  {
    auto process = Process::start(shell("sleep 600 & echo $!; wait"));
    ASSERT_TRUE(process.ok());
    for (int i = 0; i < 500 && child == 0; i++) {
      process->read_lines([&](const std::string& line) { child = std::stoi(line); });
      std::this_thread::sleep_for(10ms);
    }
    ASSERT_GT(child, 0);
    ASSERT_EQ(kill(child, 0), 0);
  }
  // The orphan is reaped by init, or stays a zombie where init does not reap: either way it is
  // dead.
  for (int i = 0; i < 500 && kill(child, 0) == 0; i++) {
    std::string state;
    if (FILE* stat = fopen(("/proc/" + std::to_string(child) + "/stat").c_str(), "r")) {
      char buffer[256] = {};
      (void)!fread(buffer, 1, sizeof buffer - 1, stat);
      fclose(stat);
      state = std::string(buffer);
    }
    if (state.find(") Z") != std::string::npos) return;
    std::this_thread::sleep_for(10ms);
  }
  EXPECT_NE(kill(child, 0), 0);
}

}  // namespace
}  // namespace cohort
