// SPDX-License-Identifier: Apache-2.0
#include "worker/end_signals.h"

#include <poll.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <sys/signalfd.h>

#include <utility>

#include "base/check.h"
#include "base/log.h"

namespace cohort {
namespace {

sigset_t end_signals() {
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGTERM);
  sigaddset(&signals, SIGINT);
  return signals;
}

// Takes a signal when one comes; false if the event comes first.
bool signal_before(int event) {
  const sigset_t wanted = end_signals();
  const FileDescriptor signals(::signalfd(-1, &wanted, SFD_CLOEXEC));
  COHORT_CHECK(signals.valid());
  pollfd either[] = {{event, POLLIN, 0}, {signals.get(), POLLIN, 0}};
  while (::poll(either, 2, -1) < 0) {
  }
  if (either[0].revents != 0) return false;
  signalfd_siginfo taken;
  return ::read(signals.get(), &taken, sizeof taken) == sizeof taken;
}

}  // namespace

void block_end_signals() {
  const sigset_t signals = end_signals();
  ::pthread_sigmask(SIG_BLOCK, &signals, nullptr);
}

bool told_to_end(Duration wait) {
  const sigset_t signals = end_signals();
  const timespec most{.tv_sec = wait.count() / 1'000'000'000,
                      .tv_nsec = wait.count() % 1'000'000'000};
  return ::sigtimedwait(&signals, nullptr, &most) > 0;
}

void wait_for_end_signal() {
  const sigset_t signals = end_signals();
  int number = 0;
  ::sigwait(&signals, &number);
}

EndOnSignal::EndOnSignal(EndProcess end_process)
    : stop_(::eventfd(0, EFD_CLOEXEC)), thread_([this, end = std::move(end_process)] {
        if (!signal_before(stop_.get())) return;
        log_info("told to end while loading");
        end(kExitDone);
      }) {
  COHORT_CHECK(stop_.valid());
}

EndOnSignal::~EndOnSignal() {
  ::eventfd_write(stop_.get(), 1);
  thread_.join();
}

}  // namespace cohort
