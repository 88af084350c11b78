// SPDX-License-Identifier: Apache-2.0
// How the verbs of a rank's groups run: at once on the step thread, or, while the line is open, one
// after the other on a thread of their own, so that the step thread computes meanwhile.
//
//   step thread   compute A │ post a │ compute B      │ post b │ wait for a? │ compute A ...
//   its line                         │ a ───────────► │          b ────────► │
//
// All groups of a rank share the line. The order in which the step thread posts depends on the plan
// alone, so every rank runs its verbs in the same order, as it would without a line.
//
// It also keeps account: how long verbs took, and how much of that the step thread spent waiting.
// Two clock reads a verb.
//
// Everything but the thread inside is used by the step thread alone. After a verb has failed all
// later ones fail with the same status. A verb ends by its communicator's timeout or abort, so
// every wait here ends, too.
#pragma once
#include <array>
#include <atomic>
#include <coroutine>
#include <cstdint>
#include <thread>
#include <utility>

#include "base/clock.h"
#include "base/status.h"
#include "parallel/verb_call.h"

namespace cohort {

struct VerbTotals {
  int64_t calls = 0, bytes_sent = 0;
  double seconds = 0;  // that verbs ran, which includes waiting for peers
  double hidden = 0;   // of them, while the step thread computed
};

// Since the line was made.
struct CommunicationTimes {
  std::array<VerbTotals, kGroupKinds> groups;
  double idle = 0;  // seconds that the step thread waited for verbs, or ran them itself
};

// A verb that has run.
struct VerbRecord {
  VerbKind kind{};
  GroupKind group{};
  int64_t bytes_sent = 0;
  TimePoint start{}, end{};
  uint64_t tag = 0;  // what posted() had said
};

// Sees verbs come and go; on the step thread.
class VerbObserver {
 public:
  virtual ~VerbObserver() = default;
  virtual uint64_t posted() = 0;                            // anything; comes back in the record
  virtual void waited(TimePoint start, TimePoint end) = 0;  // of the step thread
  virtual void finished(const VerbRecord& record) = 0;      // in the order of the line
};

class VerbLine {
 public:
  // threaded: has a thread and can be opened.
  explicit VerbLine(bool threaded);
  ~VerbLine() { stop(); }
  VerbLine(const VerbLine&) = delete;
  VerbLine& operator=(const VerbLine&) = delete;

  // Waits for the verb that runs, if one does; what is posted behind it does not run. After that
  // nothing of what verbs were given is used any more.
  void stop();

  bool threaded() const { return thread_.joinable(); }
  // While it is open, verbs are posted.
  void open() { open_ = threaded(); }
  void close() { open_ = false; }
  bool is_open() const { return open_; }

  // At once, on the calling thread.
  Status run(const VerbCall& call);
  // To the end of the line; gives its number. `call` is copied, what it points to is not.
  int64_t post(const VerbCall& call);
  // Waits until verb `number` has run.
  Status finish(int64_t number);

  // The innermost coroutine that waits for a verb leaves itself here, for who drives the outermost.
  void suspend(std::coroutine_handle<> handle) { suspended_ = handle; }
  std::coroutine_handle<> take_suspended() { return std::exchange(suspended_, nullptr); }

  const CommunicationTimes& times() const { return times_; }
  void observe(VerbObserver* observer) { observer_ = observer; }  // borrowed; may be null

 private:
  // Verbs that are posted and not yet accounted for at most.
  static constexpr int64_t kCapacity = 64;
  struct Entry {
    VerbCall call;
    TimePoint start{}, end{};
    uint64_t tag = 0;
  };
  Entry& entry(int64_t number) { return entries_[size_t(number % kCapacity)]; }
  Status failure_of(int64_t number) const;
  // When the step thread waited.
  struct Wait {
    TimePoint from{}, until{};
  };
  Wait wait(int64_t number);
  void account(const Entry& entry, const Wait& before, const Wait& now);
  void serve();  // the thread

  std::array<Entry, kCapacity> entries_;
  bool open_ = false;
  int64_t next_ = 0, accounted_ = 0;  // numbers: of the next verb, and of the first not in times_
  std::coroutine_handle<> suspended_;
  CommunicationTimes times_;
  Wait last_;
  VerbObserver* observer_ = nullptr;

  std::atomic<uint32_t> posted_{0}, done_{0};  // how many, modulo 2^32
  std::atomic<bool> stop_{false};
  Status failure_;                   // written by the thread before failed_
  std::atomic<int64_t> failed_{-1};  // number of the first verb that failed
  std::thread thread_;
};

}  // namespace cohort
