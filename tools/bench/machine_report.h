// SPDX-License-Identifier: Apache-2.0
// What was measured of the machine, for people and programs.
#pragma once
#include <nlohmann/json.hpp>
#include <string>

#include "tools/probe/machine_probe.h"

namespace cohort::bench {

// Keys in the order in which they are written.
using json = nlohmann::ordered_json;

// Bytes and operations per second; placement: null where there is one processor alone.
json to_json(const MachineLimits& machine);
json to_json(const IsaPeaks& peaks);
// A few lines; one line.
std::string to_text(const MachineLimits& machine);
std::string to_text(const IsaPeaks& peaks);

}  // namespace cohort::bench
