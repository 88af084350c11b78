// SPDX-License-Identifier: Apache-2.0
#include "worker/end_signals.h"

#include <signal.h>

#include <utility>

#include "base/log.h"

namespace cohort {
namespace {

constexpr Duration kWait = std::chrono::milliseconds(100);

sigset_t end_signals() {
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGTERM);
  sigaddset(&signals, SIGINT);
  return signals;
}

}  // namespace

void block_end_signals() {
  const sigset_t signals = end_signals();
  ::pthread_sigmask(SIG_BLOCK, &signals, nullptr);
}

bool told_to_end() {
  const sigset_t signals = end_signals();
  const timespec wait{.tv_sec = 0, .tv_nsec = kWait.count()};
  return ::sigtimedwait(&signals, nullptr, &wait) > 0;
}

void wait_for_end_signal() {
  const sigset_t signals = end_signals();
  int number = 0;
  ::sigwait(&signals, &number);
}

EndOnSignal::EndOnSignal(EndProcess end_process)
    : thread_([this, end = std::move(end_process)] {
        while (!stop_)
          if (told_to_end()) {
            log_info("told to end while loading");
            return end(kExitDone);
          }
      }) {}

EndOnSignal::~EndOnSignal() {
  stop_ = true;
  thread_.join();
}

}  // namespace cohort
