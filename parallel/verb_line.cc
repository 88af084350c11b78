// SPDX-License-Identifier: Apache-2.0
#include "parallel/verb_line.h"

#include <algorithm>

#include "base/check.h"
#include "base/threads.h"

namespace cohort {
namespace {

TimePoint now() { return std::chrono::steady_clock::now(); }

}  // namespace

VerbLine::VerbLine(bool threaded) {
  if (threaded) thread_ = std::thread([this] { serve(); });
}

void VerbLine::stop() {
  open_ = false;
  if (!threaded()) return;
  stop_.store(true, std::memory_order_relaxed);
  posted_.fetch_add(1, std::memory_order_release);
  posted_.notify_one();
  thread_.join();
}

Status VerbLine::run(const VerbCall& call) {
  if (failed_.load(std::memory_order_acquire) >= 0) return failure_;
  Entry entry{.call = call, .tag = observer_ == nullptr ? 0 : observer_->posted()};
  entry.start = now();
  Status status = perform(call);
  entry.end = now();
  times_.idle += seconds(entry.end - entry.start);
  if (observer_ != nullptr) observer_->waited(entry.start, entry.end);
  account(entry, {}, {entry.start, entry.end});
  return status;
}

int64_t VerbLine::post(const VerbCall& call) {
  COHORT_CHECK(open_);
  if (next_ - accounted_ == kCapacity) (void)finish(accounted_);  // its own awaiter is told again
  Entry& place = entry(next_);
  place = {.call = call, .tag = observer_ == nullptr ? 0 : observer_->posted()};
  posted_.store(uint32_t(next_ + 1), std::memory_order_release);
  posted_.notify_one();
  return next_++;
}

Status VerbLine::finish(int64_t number) {
  COHORT_CHECK_LT(number, next_);
  if (number < accounted_) return failure_of(number);
  const Wait now = wait(number);
  // Of all waits only this one and the last, from which the step thread may have woken late, can
  // have been while a verb ran that is not accounted for: the others were for verbs before it.
  for (; accounted_ <= number; accounted_++) account(entry(accounted_), last_, now);
  if (now.from < now.until) last_ = now;
  return failure_of(number);
}

VerbLine::Wait VerbLine::wait(int64_t number) {
  const auto left = [&](uint32_t done) { return int32_t(uint32_t(number) - done) >= 0; };
  uint32_t done = done_.load(std::memory_order_acquire);
  if (!left(done)) return {};
  const TimePoint from = now();
  while (left(done)) done = spin_wait_change(done_, done);
  const TimePoint until = now();
  times_.idle += seconds(until - from);
  if (observer_ != nullptr) observer_->waited(from, until);
  return {from, until};
}

Status VerbLine::failure_of(int64_t number) const {
  const int64_t failed = failed_.load(std::memory_order_acquire);
  return failed >= 0 && number >= failed ? failure_ : Status();
}

void VerbLine::account(const Entry& entry, const Wait& before, const Wait& now) {
  const auto exposed = [&](const Wait& wait) {
    return std::max(Duration(0),
                    std::min(entry.end, wait.until) - std::max(entry.start, wait.from));
  };
  const Duration took = entry.end - entry.start;
  VerbTotals& totals = times_.groups[size_t(entry.call.group)];
  totals.calls++;
  totals.bytes_sent += bytes_sent(entry.call);
  totals.seconds += seconds(took);
  totals.hidden += seconds(took - exposed(before) - exposed(now));
  if (observer_ != nullptr)
    observer_->finished({entry.call.kind, entry.call.group, bytes_sent(entry.call), entry.start,
                         entry.end, entry.tag});
}

void VerbLine::serve() {
  for (int64_t number = 0;; number++) {
    while (posted_.load(std::memory_order_acquire) == uint32_t(number))
      spin_wait_change(posted_, uint32_t(number));
    if (stop_.load(std::memory_order_relaxed)) return;
    Entry& verb = entry(number);
    verb.start = now();
    if (failed_.load(std::memory_order_relaxed) < 0) {
      if (Status status = perform(verb.call); !status.ok()) {
        failure_ = std::move(status);
        failed_.store(number, std::memory_order_release);
      }
    }
    verb.end = now();
    done_.store(uint32_t(number + 1), std::memory_order_release);
    done_.notify_one();
  }
}

}  // namespace cohort
