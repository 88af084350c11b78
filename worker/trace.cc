// SPDX-License-Identifier: Apache-2.0
#include "worker/trace.h"

#include <chrono>
#include <cstdio>
#include <fstream>
#include <utility>

namespace cohort {
namespace {

constexpr int kStepTrack = 1, kVerbTrack = 2;
constexpr int kLaneShift = 56;  // a word of Where has less bits

const char* short_name(Operation operation) {
  switch (operation) {
    case Operation::wait_for_tokens:
      return "sampled tokens";
    case Operation::embedding:
      return "embedding";
    case Operation::receive:
      return "receive";
    case Operation::attention:
      return "attention";
    case Operation::attention_output:
      return "attention output";
    case Operation::feed_forward:
      return "feed-forward";
    case Operation::feed_forward_output:
      return "feed-forward output";
    case Operation::router:
      return "router";
    case Operation::dispatch:
      return "dispatch";
    case Operation::experts:
      return "experts";
    case Operation::combine:
      return "combine";
    case Operation::experts_output:
      return "experts output";
    case Operation::send:
      return "send";
    case Operation::head:
      return "head";
    case Operation::sample:
      return "sample";
    case Operation::publish_tokens:
      return "publish tokens";
    default:
      return "other";
  }
}

// For JSON strings: names of hosts and replicas.
std::string quoted(const std::string& text) {
  std::string out = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') out += '\\';
    out += static_cast<unsigned char>(c) < 0x20 ? ' ' : c;
  }
  return out + '"';
}

std::string microseconds(Duration d) {
  char text[32];
  std::snprintf(text, sizeof text, "%.3f", double(d.count()) / 1000);
  return text;
}

std::string metadata(const char* what, int pid, int tid, const std::string& name) {
  return concat("{\"ph\":\"M\",\"name\":\"", what, "\",\"pid\":", pid, ",\"tid\":", tid,
                ",\"args\":{\"name\":", quoted(name), "}}");
}

std::string layer_text(uint64_t word) {
  return Where::layer(word) == Where::kNoLayer ? std::string()
                                               : concat(",\"layer\":", Where::layer(word));
}

}  // namespace

Trace::Trace(std::string process, int rank, size_t events)
    : process_(std::move(process)),
      rank_(rank),
      start_(std::chrono::steady_clock::now()),
      start_ns_(std::chrono::duration_cast<std::chrono::nanoseconds>(
                    std::chrono::system_clock::now().time_since_epoch())
                    .count()) {
  events_.reserve(events);
}

void Trace::add(const Event& event) {
  if (events_.size() < events_.capacity())
    events_.push_back(event);
  else
    events_[next_] = event;
  next_ = (next_ + 1) % events_.capacity();
}

void Trace::begin_step(uint64_t step, int64_t rows, int micro_batches) {
  step_ = {.start = std::chrono::steady_clock::now(),
           .word = step,
           .size = rows,
           .kind = Kind::step,
           .lane = uint8_t(micro_batches)};
}

void Trace::end_step() {
  step_.end = std::chrono::steady_clock::now();
  close(step_.end);
  add(step_);
  steps_++;
}

// What was computed until now has ended; it is told unless it took no time.
void Trace::close(TimePoint end) {
  if (!std::exchange(computing_, false) || end <= open_.start) return;
  open_.end = end;
  add(open_);
}

void Trace::moved(uint64_t word, int lane) {
  const TimePoint now = std::chrono::steady_clock::now();
  close(now);
  open_ = {.start = now, .word = word, .kind = Kind::compute, .lane = uint8_t(lane)};
  computing_ = Where::operation(word) != Operation::idle;
}

uint64_t Trace::posted() { return open_.word | uint64_t(open_.lane) << kLaneShift; }

void Trace::waited(TimePoint start, TimePoint end) {
  Event wait = open_;
  const bool computing = computing_;
  close(start);
  wait.kind = Kind::wait;
  wait.start = start;
  wait.end = end;
  add(wait);
  open_.start = end;
  computing_ = computing;
}

void Trace::finished(const VerbRecord& record) {
  add({.start = record.start,
       .end = record.end,
       .word = record.tag & ((uint64_t{1} << kLaneShift) - 1),
       .size = record.bytes_sent,
       .kind = Kind::verb,
       .lane = uint8_t(record.tag >> kLaneShift),
       .verb = record.kind,
       .group = record.group});
}

std::string Trace::text(const Event& e) const {
  const int track = e.kind == Kind::verb ? kVerbTrack : kStepTrack;
  const char* operation = short_name(Where::operation(e.word));
  std::string name, args;
  if (e.kind == Kind::step) {
    name = concat("step ", e.word);
    args = concat("\"rows\":", e.size, ",\"micro_batches\":", int(e.lane));
  } else {
    args = concat("\"operation\":\"", operation, "\",\"micro_batch\":", int(e.lane),
                  layer_text(e.word));
    name = e.kind == Kind::wait ? "wait" : operation;
  }
  if (e.kind == Kind::verb) {
    name = concat(cohort::name(e.verb), ' ', cohort::name(e.group));
    args += concat(",\"group\":\"", cohort::name(e.group), "\",\"bytes\":", e.size);
  }
  return concat("{\"ph\":\"X\",\"name\":\"", name, "\",\"pid\":", rank_, ",\"tid\":", track,
                ",\"ts\":", microseconds(e.start - start_),
                ",\"dur\":", microseconds(e.end - e.start), ",\"args\":{", args, "}}");
}

std::string Trace::json() const {
  std::string out = concat("{\"displayTimeUnit\":\"ms\",\"otherData\":{\"start_ns\":\"", start_ns_,
                           "\"},\"traceEvents\":[\n", metadata("process_name", rank_, 0, process_),
                           ",\n", metadata("thread_name", rank_, kStepTrack, "step thread"), ",\n",
                           metadata("thread_name", rank_, kVerbTrack, "communication"));
  const size_t oldest = events_.size() < events_.capacity() ? 0 : next_;
  for (size_t i = 0; i < events_.size(); i++)
    out += ",\n" + text(events_[(oldest + i) % events_.size()]);
  return out + "\n]}\n";
}

Status write_trace(const Trace& trace, const TraceOptions& options, int rank) {
  const std::string path = concat(options.path, ".", rank, ".json");
  std::ofstream file(path, std::ios::binary | std::ios::trunc);
  file << trace.json();
  file.close();
  return file ? Status() : unavailable(concat("cannot write the trace ", path));
}

}  // namespace cohort
