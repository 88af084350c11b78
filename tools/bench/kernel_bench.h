// SPDX-License-Identifier: Apache-2.0
// Measures kernels one after the other, beside what the machine allows.
#pragma once
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "base/status.h"
#include "tools/bench/demand.h"
#include "tools/bench/timing.h"

namespace cohort::bench {

struct KernelOptions {
  int threads = 1;
  Isa isa = Isa::portable;
  std::string filter;   // a regular expression that a part of the name matches; "": all
  double seconds = 60;  // about, for all of them
};

struct KernelResult {
  std::string name;
  Demand demand;
  // Nothing: left out, because it would take too much of the time.
  std::optional<Spread> seconds;
  double expected_seconds = 0;  // of one call, where it was left out
  double fraction_of_bound = 0;
  Bound bound = Bound::bandwidth;
};

// begin: when the machine has been measured. told: of each kernel, in order. INVALID_ARGUMENT: the
// filter is not a regular expression, or nothing matches it.
Status bench_kernels(const KernelOptions& options,
                     const std::function<void(const MachineLimits&)>& begin,
                     const std::function<void(const KernelResult&)>& told);

}  // namespace cohort::bench
