// SPDX-License-Identifier: Apache-2.0
#include "tools/process.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <thread>

namespace cohort {
namespace {

constexpr size_t kMaxLine = 64 << 10;  // longer lines are cut: children print short ones

// Everything that the child needs, built before fork: between fork and exec only
// async-signal-safe calls are allowed.
struct ExecImage {
  std::vector<char*> arguments;
  std::vector<std::string> storage;
  std::vector<char*> environment;
};

ExecImage exec_image(const Command& command) {
  ExecImage image;
  for (char** e = environ; *e != nullptr; e++) {
    const std::string entry = *e;
    bool replaced = false;
    for (const auto& [key, value] : command.environment)
      replaced = replaced || entry.compare(0, key.size() + 1, key + "=") == 0;
    if (!replaced) image.storage.push_back(entry);
  }
  for (const auto& [key, value] : command.environment) image.storage.push_back(key + "=" + value);
  for (std::string& entry : image.storage) image.environment.push_back(entry.data());
  image.environment.push_back(nullptr);
  for (const std::string& argument : command.arguments)
    image.arguments.push_back(const_cast<char*>(argument.c_str()));
  image.arguments.push_back(nullptr);
  return image;
}

[[noreturn]] void become(const ExecImage& image, int output, int failure, pid_t parent) {
  setpgid(0, 0);
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != parent) _exit(127);  // the parent died before the line above
  const int null = open("/dev/null", O_RDONLY);
  dup2(null, STDIN_FILENO);
  if (output >= 0) dup2(output, STDOUT_FILENO);
  sigset_t none;
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, nullptr);
  execvpe(image.arguments[0], image.arguments.data(), image.environment.data());
  const int error = errno;
  (void)!write(failure, &error, sizeof error);
  _exit(127);
}

// fork + exec; the reason if the program could not be started.
Result<pid_t> spawn(const Command& command, int output) {
  int failure[2];
  if (pipe2(failure, O_CLOEXEC) != 0) return internal_error("pipe2 failed");
  const ExecImage image = exec_image(command);
  const pid_t parent = getpid();
  const pid_t pid = fork();
  if (pid == 0) become(image, output, failure[1], parent);
  close(failure[1]);
  if (pid < 0) {
    close(failure[0]);
    return internal_error("cannot fork: " + std::string(std::strerror(errno)));
  }
  setpgid(pid, pid);  // both sides set it, so that it holds whoever runs first
  int error = 0;
  const ssize_t got = read(failure[0], &error, sizeof error);
  close(failure[0]);
  if (got == sizeof error) {
    waitpid(pid, nullptr, 0);
    return not_found("cannot start '" + command.arguments[0] + "': " + std::strerror(error));
  }
  return pid;
}

Exit to_exit(int status) {
  if (WIFSIGNALED(status)) return {0, WTERMSIG(status)};
  return {WEXITSTATUS(status), 0};
}

}  // namespace

std::string Exit::to_string() const {
  if (signal != 0) return "killed by signal " + std::to_string(signal);
  return "exit status " + std::to_string(code);
}

Result<Process> Process::start(const Command& command) {
  int output[2];
  if (pipe2(output, O_CLOEXEC) != 0) return internal_error("pipe2 failed");
  auto pid = spawn(command, output[1]);
  close(output[1]);
  if (!pid.ok()) {
    close(output[0]);
    return pid.status();
  }
  fcntl(output[0], F_SETFL, O_NONBLOCK);
  return Process(*pid, output[0]);
}

Process::Process(Process&& other) noexcept
    : pid_(std::exchange(other.pid_, -1)),
      output_(std::exchange(other.output_, -1)),
      partial_(std::move(other.partial_)) {}

Process& Process::operator=(Process&& other) noexcept {
  std::swap(pid_, other.pid_);
  std::swap(output_, other.output_);
  std::swap(partial_, other.partial_);
  return *this;
}

Process::~Process() {
  if (output_ >= 0) close(output_);
  if (pid_ < 0) return;
  signal_group(SIGKILL);
  waitpid(pid_, nullptr, 0);
}

void Process::read_lines(const std::function<void(const std::string&)>& line) {
  char bytes[4096];
  while (output_ >= 0) {
    const ssize_t n = read(output_, bytes, sizeof bytes);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) break;
    if (n == 0) {
      close(output_);
      output_ = -1;
      break;
    }
    for (ssize_t i = 0; i < n; i++) {
      if (bytes[i] == '\n' || partial_.size() >= kMaxLine) {
        line(partial_);
        partial_.clear();
      }
      if (bytes[i] != '\n') partial_ += bytes[i];
    }
  }
  if (output_ < 0 && !partial_.empty()) line(std::exchange(partial_, {}));
}

std::optional<Exit> Process::try_wait() {
  if (pid_ < 0) return std::nullopt;
  int status = 0;
  if (waitpid(pid_, &status, WNOHANG) != pid_) return std::nullopt;
  // Whatever it left in its group goes with it.
  kill(-pid_, SIGKILL);
  pid_ = -1;
  return to_exit(status);
}

std::optional<Exit> Process::wait(Duration timeout) {
  const Deadline deadline = Deadline::after(timeout);
  while (pid_ >= 0) {
    if (auto exit = try_wait()) return exit;
    if (deadline.expired()) return std::nullopt;
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
  return std::nullopt;
}

void Process::signal(int number) const {
  if (pid_ > 0) kill(pid_, number);
}

void Process::signal_group(int number) const {
  if (pid_ > 0) kill(-pid_, number);
}

Result<Exit> run_to_end(const Command& command) {
  COHORT_ASSIGN_OR_RETURN(const pid_t pid, spawn(command, -1));
  int status = 0;
  while (waitpid(pid, &status, 0) < 0 && errno == EINTR) {
  }
  return to_exit(status);
}

std::string program_folder() {
  std::error_code error;
  const auto self = std::filesystem::read_symlink("/proc/self/exe", error);
  return error ? "." : self.parent_path().string();
}

}  // namespace cohort
