// SPDX-License-Identifier: Apache-2.0
#include "tools/gpu_check/child.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <thread>

#include "base/check.h"
#include "base/failure.h"

namespace cohort::gpu_check {
namespace {

[[noreturn]] void become(const std::vector<std::string>& command, const Environment& environment,
                         const std::string& log) {
  ::setpgid(0, 0);
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  const int file = ::open(log.c_str(), O_WRONLY | O_CREAT | O_APPEND, 0644);
  if (file >= 0) {
    ::dup2(file, STDOUT_FILENO);
    ::dup2(file, STDERR_FILENO);
  }
  for (const auto& [name, value] : environment) ::setenv(name.c_str(), value.c_str(), 1);
  std::vector<char*> arguments;
  for (const std::string& text : command) arguments.push_back(const_cast<char*>(text.c_str()));
  arguments.push_back(nullptr);
  ::execvp(arguments[0], arguments.data());
  ::_exit(127);
}

ChildEnd end_of(int status) {
  if (WIFSIGNALED(status))
    return {false,
            concat("ended by signal ", WTERMSIG(status), " (", strsignal(WTERMSIG(status)), ")")};
  return {WEXITSTATUS(status) == 0, concat("ended with ", WEXITSTATUS(status))};
}

}  // namespace

std::string own_path() {
  char path[4096];
  const ssize_t length = ::readlink("/proc/self/exe", path, sizeof path - 1);
  COHORT_CHECK_GT(length, 0);
  return std::string(path, size_t(length));
}

Child::Child(const std::vector<std::string>& command, const Environment& environment,
             const std::string& log)
    : pid_(::fork()) {
  if (pid_ < 0) throw Failure(internal_error(concat("cannot start ", command.at(0))));
  if (pid_ == 0) become(command, environment, log);
}

Child::~Child() {
  if (pid_ <= 0) return;
  ::kill(-pid_, SIGKILL);
  ::kill(pid_, SIGKILL);
  ::waitpid(pid_, nullptr, 0);
}

ChildEnd Child::wait(const Deadline& deadline) {
  for (;;) {
    int status = 0;
    if (::waitpid(pid_, &status, WNOHANG) == pid_) {
      pid_ = -1;
      return end_of(status);
    }
    if (deadline.expired()) return {false, "killed: it took too long"};
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
}

ChildEnd run_command(const std::vector<std::string>& command, const Environment& environment,
                     const std::string& log, Duration limit) {
  return Child(command, environment, log).wait(Deadline::after(limit));
}

}  // namespace cohort::gpu_check
