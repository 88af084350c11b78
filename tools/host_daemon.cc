// SPDX-License-Identifier: Apache-2.0
#include "tools/host_daemon.h"

#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <array>
#include <charconv>
#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include "comm/control.h"
#include "tools/process.h"

namespace cohort {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr Duration kConnectLimit = seconds(20);
constexpr Duration kPoll = milliseconds(200);
constexpr Duration kDaemonEnd = seconds(2);  // after SIGTERM; ranks die with their daemon

struct DaemonOptions {
  std::string keeper;  // of `cohort up`
  std::vector<std::string> command;
};

std::string host_name() {
  std::array<char, 256> name{};
  return ::gethostname(name.data(), name.size() - 1) == 0 ? name.data() : "unknown";
}

// mpirun numbers its daemons: "... -mca ess_base_vpid 2 ...".
Result<int> daemon_number(const std::vector<std::string>& command) {
  for (size_t i = 0; i + 1 < command.size(); i++) {
    int number = 0;
    const std::string& value = command[i + 1];
    if (command[i] == "ess_base_vpid" &&
        std::from_chars(value.data(), value.data() + value.size(), number).ec == std::errc{})
      return number;
  }
  return invalid_argument("the command line is not one of mpirun's daemon: no ess_base_vpid");
}

// Until the line breaks, or MPI's daemon has ended by itself.
void watch(ControlLink& link, Process& daemon) {
  while (!daemon.try_wait()) {
    daemon.read_lines([](const std::string&) {});
    const auto frame = link.next(kPoll);
    if (frame.ok() || frame.status().code() != Code::kDeadlineExceeded) break;
  }
  daemon.signal(SIGTERM);
  daemon.wait(kDaemonEnd);  // what is left is killed with the object
}

// The whole of the background process. started: told of success, or why not.
void run_in_background(const DaemonOptions& options, int started) {
  auto tell = [&](const std::string& text) { (void)!write(started, text.data(), text.size()); };
  const auto number = daemon_number(options.command);
  if (!number.ok()) return tell(number.status().message());
  auto link = ControlLink::connect(options.keeper, *number, host_name(), {}, kConnectLimit);
  if (!link.ok()) return tell(link.status().message());
  auto daemon = Process::start({options.command, {}});
  if (!daemon.ok()) return tell(daemon.status().message());
  close(started);
  // Whoever logged in to start us waits until nobody has these open.
  const int null = open("/dev/null", O_RDWR);
  for (int fd : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) dup2(null, fd);
  watch(**link, *daemon);
}

// In the background, as MPI's daemon goes there: mpirun waits for the end of the login. Returns
// when it is known whether it runs.
int run_daemon(DaemonOptions options) {
  std::erase(options.command, "--daemonize");
  int started[2];
  if (pipe2(started, O_CLOEXEC) != 0) return 1;
  const pid_t pid = fork();
  if (pid == 0) {
    setsid();
    close(started[0]);
    run_in_background(options, started[1]);
    _exit(0);
  }
  close(started[1]);
  std::string why;
  char bytes[512];
  for (ssize_t n = 0; (n = read(started[0], bytes, sizeof bytes)) > 0;)
    why.append(bytes, size_t(n));
  close(started[0]);
  if (pid > 0 && why.empty()) return 0;
  std::fprintf(stderr, "cohort on host %s: %s\n", host_name().c_str(),
               pid < 0 ? "cannot fork" : why.c_str());
  return 1;
}

}  // namespace

void add_host_daemon_command(CLI::App& app, int& exit_code) {
  auto options = std::make_shared<DaemonOptions>();
  CLI::App* daemon = app.add_subcommand("host-daemon", "Started by mpirun for cohort up --hosts");
  daemon->group("");  // hidden
  daemon->add_option("--keeper", options->keeper, "Where cohort up waits for us")->required();
  daemon->add_option("command", options->command, "MPI's daemon, after --")->required();
  daemon->callback([options, &exit_code] { exit_code = run_daemon(*options); });
}

}  // namespace cohort
