// SPDX-License-Identifier: Apache-2.0
#include "tools/up_command.h"

#include <poll.h>
#include <signal.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <memory>

#include "base/check.h"
#include "base/log.h"
#include "tools/host_watch.h"
#include "tools/model_store.h"
#include "tools/supervisor.h"
#include "tools/up_launch.h"

namespace cohort {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr Duration kCoordinatorStart = seconds(30);
constexpr Duration kCoordinatorDrain = seconds(15);  // its own limit is 10
constexpr Duration kReplicaEnd = seconds(5);         // mpirun needs 2 after SIGTERM

// SIGINT and SIGTERM as something that poll() sees: the loop has no other interruption.
class StopSignal {
 public:
  StopSignal() {
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGINT);
    sigaddset(&set, SIGTERM);
    sigprocmask(SIG_BLOCK, &set, nullptr);
    fd_ = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
  }
  ~StopSignal() { close(fd_); }
  int fd() const { return fd_; }
  bool received() {
    signalfd_siginfo info;
    received_ = received_ || read(fd_, &info, sizeof info) == sizeof info;
    return received_;
  }

 private:
  int fd_;
  bool received_ = false;
};

// One line that is drawn over and over on a terminal; silent elsewhere.
class ProgressBar {
 public:
  void draw(double fraction) {
    if (!isatty(STDERR_FILENO)) return;
    constexpr int kWidth = 40;
    const int full = int(fraction * kWidth);
    std::fprintf(stderr, "\rloading [%s%s] %3.0f %%", std::string(size_t(full), '=').c_str(),
                 std::string(size_t(kWidth - full), ' ').c_str(), fraction * 100);
    drawn_ = true;
  }
  void finish() {
    if (drawn_) std::fprintf(stderr, "\r\033[K");
    drawn_ = false;
  }

 private:
  bool drawn_ = false;
};

class Cluster {
 public:
  Cluster(UpOptions options, std::string model, HostPlan plan)
      : options_(std::move(options)),
        paths_{program_folder(), std::move(model)},
        plan_(std::move(plan)) {}

  int run() {
    if (Status status = start_coordinator(); !status.ok()) return fail(status.message());
    for (int i = 0; i < options_.replicas; i++) {
      const std::string name = "replica-" + std::to_string(i);
      say_where(name, plan_.replicas[size_t(i)]);
      replicas_.push_back(
          std::make_unique<ReplicaSupervisor>(name, [this, i] { return launch(i); }));
    }
    const int code = supervise();
    stop_all();
    return code;
  }

 private:
  // why: empty if it has been said.
  static int fail(const std::string& why) {
    if (!why.empty()) log_error(why);
    return 1;
  }

  static void say_where(const std::string& name, const ReplicaHosts& replica) {
    if (replica.others.empty()) return;
    log_info(concat(name, ": ranks on ", to_string(replica.hosts), " over ",
                    replica.network.empty() ? "what MPI chooses" : replica.network,
                    replica.rank_host.empty() ? "" : ", rank 0 at " + replica.rank_host));
  }

  // One start of a replica.
  Result<Launch> launch(int index) const {
    const ReplicaHosts& replica = plan_.replicas[size_t(index)];
    Launch launch;
    std::string keeper;
    if (!replica.others.empty()) {
      COHORT_ASSIGN_OR_RETURN(auto watch, HostWatch::create({.listen = plan_.listen,
                                                             .hosts = replica.others,
                                                             .agent = options_.rsh_agent,
                                                             .times = {}}));
      keeper = watch->address();
      launch.watch = std::move(watch);
    }
    launch.command = replica_command(options_, paths_, plan_, session_, keeper, index);
    return launch;
  }

  Status start_coordinator() {
    COHORT_ASSIGN_OR_RETURN(Process process,
                            Process::start(coordinator_command(options_, paths_, plan_.listen)));
    coordinator_ = std::move(process);
    const Deadline deadline = Deadline::after(kCoordinatorStart);
    while (session_.empty()) {
      wait_for_events(milliseconds(100));
      coordinator_->read_lines([&](const std::string& line) { read_coordinator(line); });
      if (stop_.received()) return cancelled("stopped while starting");
      if (!session_.empty()) break;
      if (auto exit = coordinator_->try_wait())
        return internal_error(exit->signal == 0
                                  ? std::string()  // it has said why
                                  : "the coordinator ended with " + exit->to_string());
      if (deadline.expired()) return deadline_exceeded("the coordinator did not start in time");
    }
    return {};
  }

  // "listening http=HOST:PORT grpc=HOST:PORT session=HOST:PORT", "replica NAME STATE".
  void read_coordinator(const std::string& line) {
    auto field = [&](const std::string& key) {
      const size_t at = line.find(" " + key + "=");
      if (at == std::string::npos) return std::string();
      const size_t begin = at + key.size() + 2;
      return line.substr(begin, line.find(' ', begin) - begin);
    };
    if (line.rfind("listening ", 0) != 0) return;
    http_ = field("http");
    grpc_ = field("grpc");
    session_ = field("session");
  }

  void wait_for_events(Duration timeout) {
    std::vector<pollfd> fds{{stop_.fd(), POLLIN, 0}};
    if (coordinator_) fds.push_back({coordinator_->output(), POLLIN, 0});
    for (const auto& replica : replicas_) fds.push_back({replica->output(), POLLIN, 0});
    poll(fds.data(), nfds_t(fds.size()),
         int(std::chrono::duration_cast<milliseconds>(timeout).count()));
  }

  // Until a signal (0) or until something cannot be mended (1).
  int supervise() {
    while (!stop_.received()) {
      const TimePoint now = std::chrono::steady_clock::now();
      coordinator_->read_lines([](const std::string&) {});
      if (auto exit = coordinator_->try_wait())
        return fail("the coordinator ended with " + exit->to_string());
      int failed = 0;
      for (const auto& replica : replicas_) {
        replica->poll_once(now);
        if (replica->phase() == ReplicaPhase::failed) failed++;
      }
      if (failed == int(replicas_.size())) return fail(replicas_[0]->failure());
      announce();
      wait_for_events(ready_ ? seconds(1) : milliseconds(100));
    }
    return 0;
  }

  void announce() {
    if (ready_) return;
    double loaded = 0;
    int serving = 0;
    for (const auto& replica : replicas_) {
      const bool serves = replica->phase() == ReplicaPhase::serving;
      serving += serves ? 1 : 0;
      loaded += serves ? 1 : replica->progress();
    }
    bar_.draw(loaded / double(replicas_.size()));
    if (serving < int(replicas_.size())) return;
    bar_.finish();
    ready_ = true;
    std::printf("ready: http://%s (OpenAI API), %s (gRPC), %d replica%s of tp %d x pp %d%s\n",
                http_.c_str(), grpc_.c_str(), options_.replicas, options_.replicas == 1 ? "" : "s",
                options_.tp, options_.pp,
                options_.dp_groups() == 1 ? "" : concat(" x dp ", options_.dp_groups()).c_str());
    std::fflush(stdout);
  }

  void stop_all() {
    bar_.finish();
    log_info("stopping");
    // The coordinator first: open streams end in order while their replicas still run.
    if (coordinator_) {
      coordinator_->signal(SIGTERM);
      coordinator_->wait(kCoordinatorDrain);
      coordinator_.reset();
    }
    for (const auto& replica : replicas_) replica->terminate();
    for (const auto& replica : replicas_)
      if (!replica->ended(kReplicaEnd))
        log_warning(replica->name() + " did not end by itself and was killed");
  }

  const UpOptions options_;
  const UpPaths paths_;
  const HostPlan plan_;
  StopSignal stop_;
  std::optional<Process> coordinator_;
  std::string http_, grpc_, session_;
  std::vector<std::unique_ptr<ReplicaSupervisor>> replicas_;
  ProgressBar bar_;
  bool ready_ = false;
};

int run_up(const UpOptions& options) {
  configure_log("cohort", parse_log_level(options.log_level));
  auto model = resolve_model(options.model);
  if (!model.ok()) {
    std::fprintf(stderr, "cohort up: %s\n", model.status().message().c_str());
    return 1;
  }
  auto plan = plan_hosts(options);
  if (!plan.ok()) {
    std::fprintf(stderr, "cohort up: %s\n", plan.status().message().c_str());
    return 1;
  }
  return Cluster(options, *model, std::move(*plan)).run();
}

}  // namespace

void add_up_command(CLI::App& app, int& exit_code) {
  auto options = std::make_shared<UpOptions>();
  CLI::App* up =
      app.add_subcommand("up", "Start a cluster, here or on several hosts, and keep it alive");
  up->footer(
      "\nStarts a coordinator and, for each replica, an mpirun of its ranks; restarts replicas "
      "that\n"
      "die. When everything serves it prints one line that begins with 'ready: '. Ctrl-C ends "
      "it.\n\n"
      "  cohort up                                one rank with all cores, model smollm2\n"
      "  cohort up --tp 2 --replicas 2            two copies, each sharded over two ranks\n"
      "  cohort up --model model.gguf --tp 3 --shares 2:1:1\n"
      "  cohort up --hosts a,b --tp 2 --pp 2      two ranks on each of two hosts\n");
  declare_up_options(*up, *options);
  up->callback([options, &exit_code] { exit_code = run_up(*options); });
}

}  // namespace cohort
