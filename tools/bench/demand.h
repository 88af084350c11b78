// SPDX-License-Identifier: Apache-2.0
// What a piece of work asks of the machine, and how long it takes at least, by what was measured of
// the machine (tools/probe/machine_probe.h).
#pragma once
#include <string_view>

#include "tools/probe/machine_probe.h"

namespace cohort::bench {

struct Demand {
  double memory_bytes = 0;     // read from main memory
  double cache_bytes = 0;      // read and written, of what a cache holds
  double int8_operations = 0;  // a multiply-add is two
  double bf16_operations = 0;  // of bf16 by bf16
  double fma_operations = 0;   // on f32
  double operations() const { return int8_operations + bf16_operations + fma_operations; }
  double bytes() const { return memory_bytes + cache_bytes; }
};

enum class Bound { bandwidth, cache, int8, tiles, fma };
std::string_view name(Bound bound);

struct LeastTime {
  double seconds = 0;
  Bound bound = Bound::bandwidth;  // what takes the longest
};
// With all threads that the machine was measured with. Reading, moving and computing go on at the
// same time; operations of several kinds follow each other. Products of bf16 are done on tiles
// where there are some.
LeastTime least_time(const Demand& demand, const MachineLimits& machine);
// The same, of its operations alone.
LeastTime least_compute_time(const Demand& demand, const MachineLimits& machine);

}  // namespace cohort::bench
