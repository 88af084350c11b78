// SPDX-License-Identifier: Apache-2.0
// Traces of ranks (worker/trace.h) made into one, on one time line.
#pragma once
#include <string>
#include <vector>

#include "base/status.h"

namespace cohort {

// texts: one trace each, of any replicas and hosts; names: theirs, for errors. Each becomes a
// process of the result, in their order; time zero is the start of the first. Clocks of hosts are
// taken as they are.
Result<std::string> merge_traces(const std::vector<std::string>& texts,
                                 const std::vector<std::string>& names);

}  // namespace cohort
