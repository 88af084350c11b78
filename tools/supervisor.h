// SPDX-License-Identifier: Apache-2.0
// Keeps one replica alive: starts its mpirun, follows its progress, and starts it again with
// back-off when it dies. Not a thread: the loop of `cohort up` calls poll_once().
#pragma once
#include <functional>
#include <optional>
#include <string>

#include "base/clock.h"
#include "tools/launch.h"
#include "tools/process.h"

namespace cohort {

// 1, 2, 4 .. 30 seconds after consecutive failures; a replica that served for a minute starts anew.
class BackOff {
 public:
  Duration next_delay();
  void succeeded() { failures_ = 0; }
  int failures() const { return failures_; }

 private:
  int failures_ = 0;
};

enum class ReplicaPhase { starting, loading, serving, waiting, failed };

class ReplicaSupervisor {
 public:
  static constexpr int kMaxFailures = 8;  // in a row, before giving up
  static constexpr int kExitUsage = 64;   // of the worker: starting it again would not help

  // How long a start that its watch has given up may take to end by itself, and say why.
  static constexpr Duration kGrace = std::chrono::seconds(2);

  ReplicaSupervisor(std::string name, Command command)
      : ReplicaSupervisor(std::move(name), [command] {
          return Launch{command, nullptr};
        }) {}
  // launch: called for every start.
  ReplicaSupervisor(std::string name, MakeLaunch launch)
      : name_(std::move(name)), launch_(std::move(launch)) {}

  // Reads output, notices the end, starts again when it is time. Calls never wait.
  void poll_once(TimePoint now);
  void terminate();           // SIGTERM, no restarts from now on
  bool ended(Duration wait);  // after terminate(); kills what is left after `wait`

  const std::string& name() const { return name_; }
  ReplicaPhase phase() const { return phase_; }
  double progress() const { return progress_; }  // 0 to 1 while loading
  int restarts() const { return restarts_; }
  const std::string& failure() const { return failure_; }
  int output() const { return process_ ? process_->output() : -1; }

 private:
  void start(TimePoint now);
  void read_output();
  void check_watch(TimePoint now);
  void handle_exit(const Exit& exit, TimePoint now);
  void wait_to_start_again(TimePoint now);

  const std::string name_;
  const MakeLaunch launch_;
  std::unique_ptr<LaunchWatch> watch_;  // of process_; may be null
  std::optional<Process> process_;
  Status given_up_;  // by watch_
  TimePoint given_up_since_{};
  bool loaded_ = false;  // the leader of process_ has begun to load
  ReplicaPhase phase_ = ReplicaPhase::starting;
  double progress_ = 0;
  BackOff back_off_;
  TimePoint start_again_{};
  TimePoint serving_since_{};
  bool stopping_ = false;
  int restarts_ = 0;
  std::string failure_;
};

}  // namespace cohort
