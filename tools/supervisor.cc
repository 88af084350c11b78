// SPDX-License-Identifier: Apache-2.0
#include "tools/supervisor.h"

#include <signal.h>

#include <algorithm>
#include <cstdlib>

#include "base/log.h"

namespace cohort {

using namespace std::chrono_literals;

Duration BackOff::next_delay() {
  const int exponent = std::min(failures_++, 5);
  return std::min<Duration>(1s * (1 << exponent), 30s);
}

void ReplicaSupervisor::start(TimePoint now) {
  auto launch = launch_();
  if (!launch.ok()) {  // such as an address that is gone with its cable
    failure_ = name_ + " cannot be started: " + launch.status().message();
    return wait_to_start_again(now);
  }
  auto process = Process::start(launch->command);
  if (!process.ok()) {
    phase_ = ReplicaPhase::failed;
    failure_ = process.status().message();
    return;
  }
  watch_ = std::move(launch->watch);
  given_up_ = {};
  loaded_ = false;
  process_ = std::move(*process);
  phase_ = ReplicaPhase::loading;
  progress_ = 0;
}

void ReplicaSupervisor::read_output() {
  process_->read_lines([&](const std::string& line) {
    if (line.rfind("progress ", 0) == 0) {
      loaded_ = true;
      progress_ = std::clamp(std::strtod(line.c_str() + 9, nullptr), 0.0, 1.0);
    } else if (line == "serving") {
      loaded_ = true;
      phase_ = ReplicaPhase::serving;
      serving_since_ = std::chrono::steady_clock::now();
    } else if (!line.empty()) {
      log_info(name_ + ": " + line);
    }
  });
}

void ReplicaSupervisor::check_watch(TimePoint now) {
  if (!watch_ || stopping_) return;
  if (given_up_.ok()) {
    given_up_ = watch_->poll(loaded_);
    given_up_since_ = now;
    if (given_up_.code() == Code::kUnavailable || given_up_.ok()) return;
  }
  if (given_up_.code() != Code::kUnavailable || now - given_up_since_ > kGrace)
    process_->signal_group(SIGKILL);
}

void ReplicaSupervisor::handle_exit(const Exit& exit, TimePoint now) {
  if (phase_ == ReplicaPhase::serving && now - serving_since_ > 60s) back_off_.succeeded();
  process_.reset();
  std::string why = given_up_.message();
  // What ended by itself may have ended its daemons: that explains nothing.
  if (watch_ && exit.signal != SIGKILL) why = watch_->explanation();
  watch_.reset();
  if (stopping_) return;
  failure_ = name_ + " ended with " + exit.to_string() + (why.empty() ? "" : ": " + why);
  if (exit.code == kExitUsage) {
    phase_ = ReplicaPhase::failed;
    return;
  }
  wait_to_start_again(now);
}

void ReplicaSupervisor::wait_to_start_again(TimePoint now) {
  if (back_off_.failures() + 1 >= kMaxFailures) {
    phase_ = ReplicaPhase::failed;
    return;
  }
  const Duration delay = back_off_.next_delay();
  start_again_ = now + delay;
  phase_ = ReplicaPhase::waiting;
  log_warning(concat(failure_, "; starting it again in ", cohort::seconds(delay), " s"));
}

void ReplicaSupervisor::poll_once(TimePoint now) {
  if (process_) {
    read_output();
    check_watch(now);
    if (auto exit = process_->try_wait()) {
      read_output();
      handle_exit(*exit, now);
    }
    return;
  }
  if (stopping_ || phase_ == ReplicaPhase::failed) return;
  if (phase_ == ReplicaPhase::waiting) {
    if (now < start_again_) return;
    restarts_++;
  }
  start(now);
}

void ReplicaSupervisor::terminate() {
  stopping_ = true;
  if (process_) process_->signal(SIGTERM);
}

bool ReplicaSupervisor::ended(Duration wait) {
  if (!process_) return true;
  const auto exit = process_->wait(wait);
  process_.reset();  // kills the group if it still runs
  watch_.reset();
  return exit.has_value();
}

}  // namespace cohort
