// SPDX-License-Identifier: Apache-2.0
// What `cohort bench` prints: a table that grows as results come, or one JSON object at the end.
// Each writer is used by one thread at a time.
#pragma once
#include <ostream>

#include "tools/bench/kernel_bench.h"
#include "tools/bench/machine_report.h"
#include "tools/bench/model_bench.h"

namespace cohort::bench {

class KernelReportWriter {
 public:
  KernelReportWriter(std::ostream& out, bool as_json) : out_(out), as_json_(as_json) {}
  void begin(const MachineLimits& machine);
  void add(const KernelResult& result);
  void finish();

 private:
  std::ostream& out_;
  const bool as_json_;
  MachineLimits machine_;
  json results_ = json::array();
};

class ModelReportWriter {
 public:
  ModelReportWriter(std::ostream& out, const ModelOptions& options, bool as_json)
      : out_(out), options_(options), as_json_(as_json) {}
  void show(const ModelReport& so_far);
  void finish(const ModelReport& report);

 private:
  std::ostream& out_;
  const ModelOptions& options_;
  const bool as_json_;
  bool begun_ = false;
  size_t shown_ = 0;  // measurements
};

}  // namespace cohort::bench
