// SPDX-License-Identifier: Apache-2.0
// What a rank did when, in the trace-event format that chrome://tracing and ui.perfetto.dev read
// ("Trace Event Format", Google, 2016). Two tracks: the step thread's steps, with what it computed
// and where it waited inside; and its collectives and messages. The newest events are kept, in
// memory of a fixed size. Used by the step thread alone.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/status.h"
#include "parallel/verb_line.h"
#include "worker/replica_options.h"
#include "worker/where.h"

namespace cohort {

class Trace final : public WhereListener, public VerbObserver {
 public:
  static constexpr size_t kEvents = 1 << 17;

  // process: what the rank is called, "replica-0 rank 1 on host". rank: tells processes apart.
  Trace(std::string process, int rank, size_t events = kEvents);

  void begin_step(uint64_t step, int64_t rows, int micro_batches);
  void end_step();
  int64_t steps() const { return steps_; }

  void moved(uint64_t word, int lane) override;
  uint64_t posted() override;
  void waited(TimePoint start, TimePoint end) override;
  void finished(const VerbRecord& record) override;

  // One JSON object. Times are microseconds since otherData.start_ns, which is the system's time.
  std::string json() const;

 private:
  enum class Kind : uint8_t { step, compute, wait, verb };
  struct Event {
    TimePoint start{}, end{};
    uint64_t word = 0;  // Where; of a step: its number
    int64_t size = 0;   // step: rows; verb: bytes
    Kind kind{};
    uint8_t lane = 0;  // step: micro-batches
    VerbKind verb{};
    GroupKind group{};
  };
  void add(const Event& event);
  void close(TimePoint end);
  std::string text(const Event& event) const;

  const std::string process_;
  const int rank_;
  const TimePoint start_;
  const int64_t start_ns_;  // the system's time then
  std::vector<Event> events_;
  size_t next_ = 0;  // in events_, a ring
  int64_t steps_ = 0;
  Event step_, open_;  // what is under way
  bool computing_ = false;
};

// Writes the trace to options.path + ".<rank>.json".
Status write_trace(const Trace& trace, const TraceOptions& options, int rank);

}  // namespace cohort
