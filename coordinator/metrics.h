// SPDX-License-Identifier: Apache-2.0
// Counters for operators, in Prometheus' text format, named as users of other servers expect under
// the prefix cohort_. Thread-safe.
#pragma once
#include <memory>
#include <string>

#include "coordinator/cluster_view.h"

namespace cohort {

enum class Outcome { stop, length, cancelled, failed, rejected, timed_out };
const char* name(Outcome outcome);

class Metrics {
 public:
  explicit Metrics(const std::string& model);
  ~Metrics();

  void prompt_tokens(int64_t tokens, int64_t cached);
  void generation_tokens(int64_t tokens);
  void first_token(double seconds);
  void next_token(double seconds);  // between two events of a sequence, per token
  void request_done(Outcome outcome, double seconds);
  void failover();
  // The text of /metrics, gauges taken from the view.
  std::string render(const ClusterView& view);

 private:
  struct Families;
  const std::unique_ptr<Families> families_;
};

}  // namespace cohort
