// SPDX-License-Identifier: Apache-2.0
#include "tools/bench/demand.h"

namespace cohort::bench {

std::string_view name(Bound bound) {
  switch (bound) {
    case Bound::bandwidth:
      return "bandwidth";
    case Bound::cache:
      return "cache";
    case Bound::int8:
      return "int8";
    case Bound::tiles:
      return "tiles";
    case Bound::fma:
      break;
  }
  return "fma";
}

LeastTime least_compute_time(const Demand& demand, const MachineLimits& machine) {
  const IsaPeaks& peaks = machine.peaks;
  const bool has_tiles = peaks.tiles.all > 0;
  const double int8 = demand.int8_operations / peaks.int8.all;
  const double tiles = has_tiles ? demand.bf16_operations / peaks.tiles.all : 0;
  const double fma =
      (demand.fma_operations + (has_tiles ? 0 : demand.bf16_operations)) / peaks.fma.all;
  const Bound bound = int8 > fma && int8 > tiles ? Bound::int8
                      : tiles > fma              ? Bound::tiles
                                                 : Bound::fma;
  return {.seconds = int8 + tiles + fma, .bound = bound};
}

LeastTime least_time(const Demand& demand, const MachineLimits& machine) {
  LeastTime most = least_compute_time(demand, machine);
  const double memory = demand.memory_bytes / machine.memory.all;
  const double cache = demand.cache_bytes / machine.cache.all;
  if (memory >= most.seconds) most = {memory, Bound::bandwidth};
  if (cache > most.seconds) most = {cache, Bound::cache};
  return most;
}

}  // namespace cohort::bench
