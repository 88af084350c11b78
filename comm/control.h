// SPDX-License-Identifier: Apache-2.0
// Host talk between the leader (rank 0) and its ranks, outside MPI: step plans down, results and
// errors up, heartbeats both ways, over one TCP connection per rank. It sleeps in the kernel when
// idle, and it notices what MPI does not: a peer that died (the connection closes at once) and one
// that hangs or is unreachable (no heartbeat).
//
// Frame: u32 length of payload | u32 type | payload, little endian. Bounded by kMaxFrameBytes.
// Methods are thread-safe unless noted.
#pragma once
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/status.h"

namespace cohort {

inline constexpr int64_t kMaxFrameBytes = 64 << 20;

enum class FrameType : uint32_t { hello = 1, heartbeat, plan, result, error, shutdown, load };

struct Frame {
  int rank = 0;  // whose frame it is
  FrameType type = FrameType::heartbeat;
  std::string payload;
};

// Where the time of a rank's steps went since it started; what it is on a GPU is not known.
struct WorkTotals {
  double compute_seconds = 0;               // the step thread did not wait
  double communication_seconds = 0;         // collectives and messages ran, waiting for peers too
  double hidden_communication_seconds = 0;  // of that, while the step thread computed
  double idle_seconds = 0;                  // the step thread waited for them
  uint64_t bytes_sent = 0;                  // to other ranks
  friend bool operator==(const WorkTotals&, const WorkTotals&) = default;
};

// What a rank says about itself with every heartbeat.
struct Progress {
  uint64_t step = 0;  // last finished step
  bool busy = false;  // a step is running
  std::string where;  // "all-reduce tp, layer 17", or "idle"
  WorkTotals work = {};
};

struct PeerState {
  int rank = 0;
  bool connected = false;
  TimePoint last_heartbeat{};
  TimePoint last_progress{};  // when `step` last rose, or it was last idle
  Progress progress;
};

struct ControlTimes {
  Duration heartbeat = std::chrono::milliseconds(500);
  Duration lease = std::chrono::seconds(5);  // without a heartbeat for so long a peer is lost
};

// The leader's end.
class ControlHub {
 public:
  // Listens on an address of this host that the other ranks can reach (host: "" for all).
  static Result<std::unique_ptr<ControlHub>> listen(const std::string& host, ControlTimes times);
  virtual ~ControlHub() = default;
  virtual const std::string& address() const = 0;  // "host:port" for ControlLink::connect
  // Until ranks 1 .. ranks-1 have connected with the right secret; the error names those missing.
  virtual Status accept(int ranks, Duration timeout) = 0;
  virtual Status broadcast(FrameType type, const std::string& payload) = 0;
  // The next result, error or load frame of any rank. A lost peer is UNAVAILABLE naming the rank,
  // its host and where it was; no frame in time is DEADLINE_EXCEEDED.
  virtual Result<Frame> next(Duration timeout) = 0;
  virtual void set_progress(const Progress& progress) = 0;  // of rank 0
  virtual std::vector<PeerState> peers() const = 0;         // all ranks, rank 0 included
};

// A rank's end.
class ControlLink {
 public:
  static Result<std::unique_ptr<ControlLink>> connect(const std::string& address, int rank,
                                                      const std::string& host, ControlTimes times,
                                                      Duration timeout);
  virtual ~ControlLink() = default;
  virtual Status send(FrameType type, const std::string& payload) = 0;
  // The next plan or shutdown frame. UNAVAILABLE when the leader is gone.
  virtual Result<Frame> next(Duration timeout) = 0;
  virtual void set_progress(const Progress& progress) = 0;
};

}  // namespace cohort
