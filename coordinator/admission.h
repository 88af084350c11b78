// SPDX-License-Identifier: Apache-2.0
// Who may come in. Decided before anything costly is done, under one short lock, by the thread of
// the front: an overloaded coordinator says no within microseconds. Thread-safe.
#pragma once
#include <mutex>
#include <optional>
#include <string>
#include <unordered_map>

#include "coordinator/failure.h"

namespace cohort {

struct AdmissionLimits {
  int queued_sequences = 512;         // waiting for a replica
  int64_t queued_tokens = 1'000'000;  // prompt tokens of those
  int tenant_sequences = 256;         // open of one named tenant, waiting or running
  int open_sequences = 8192;          // of all
};

// What one request weighs. queued is what of it still waits for a replica.
struct AdmissionCost {
  std::string tenant;
  int sequences = 0;
  int queued_sequences = 0;
  int64_t queued_tokens = 0;
};

class Admission {
 public:
  explicit Admission(const AdmissionLimits& limits) : limits_(limits) {}

  // Takes the cost in, or says why not: RESOURCE_EXHAUSTED for the tenant's own limit, UNAVAILABLE
  // for everybody's; both with the time after which to try again. A request whose tokens alone
  // exceed the limit still enters an empty queue.
  std::optional<Failure> enter(const AdmissionCost& cost);
  // From now on nothing enters.
  void close();
  bool closed() const;
  // Part of what entered no longer waits, or waits again.
  void queued_changed(int sequences, int64_t tokens);
  // The sequences of a request that are open are fewer by this many.
  void leave(const std::string& tenant, int sequences);

  int queued_sequences() const;
  int open_sequences() const;

 private:
  const AdmissionLimits limits_;
  mutable std::mutex mutex_;
  bool closed_ = false;  // this and all below guarded by mutex_
  int queued_sequences_ = 0;
  int64_t queued_tokens_ = 0;
  int open_ = 0;
  std::unordered_map<std::string, int> tenants_;  // open sequences; no zeros
};

}  // namespace cohort
