// SPDX-License-Identifier: Apache-2.0
#include "tools/bench/machine_report.h"

#include <cstdio>

#include "base/check.h"
#include "tools/bench/timing.h"
#include "tools/probe/host_facts.h"

namespace cohort::bench {
namespace {

json to_json(const Rate& rate) { return {{"one", rate.one}, {"all", rate.all}}; }

std::string both(const Rate& rate, const char* unit) {
  return concat(giga(rate.one, unit), " by one thread, ", giga(rate.all, unit), " by all");
}

}  // namespace

json to_json(const MachineLimits& machine) {
  json out = {{"processor", read_host_facts().processor},
              {"isa", name(machine.peaks.isa)},
              {"threads", machine.threads},
              {"memory_bytes_per_second", to_json(machine.memory)},
              {"cache_bytes_per_second", to_json(machine.cache)},
              {"int8_operations_per_second", to_json(machine.peaks.int8)},
              {"fma_operations_per_second", to_json(machine.peaks.fma)},
              {"placement", nullptr}};
  if (machine.peaks.tiles.one > 0) out["tile_operations_per_second"] = to_json(machine.peaks.tiles);
  if (const auto& place = machine.placement)
    out["placement"] = {{"kind", place->kind()},
                        {"round_trip_seconds", place->round_trip},
                        {"two_threads_over_one", place->scaling}};
  return out;
}

json to_json(const IsaPeaks& peaks) {
  json out = {{"isa", name(peaks.isa)},
              {"int8_operations_per_second", to_json(peaks.int8)},
              {"fma_operations_per_second", to_json(peaks.fma)}};
  if (peaks.tiles.one > 0) out["tile_operations_per_second"] = to_json(peaks.tiles);
  return out;
}

std::string to_text(const IsaPeaks& peaks) {
  return concat(name(peaks.isa), ": int8 ", both(peaks.int8, "Gop/s"), "; fma ",
                both(peaks.fma, "Gop/s"), "\n");
}

std::string to_text(const MachineLimits& machine) {
  const HostFacts facts = read_host_facts();
  std::string text = concat(
      "machine  ", facts.processor.empty() ? "unknown processor" : facts.processor, ", ",
      name(machine.peaks.isa), ", ", machine.threads, machine.threads == 1 ? " thread" : " threads",
      "\nmemory   ", both(machine.memory, "GB/s"), "\ncache    ", both(machine.cache, "GB/s"),
      "\nint8     ", both(machine.peaks.int8, "Gop/s"), "\nfma      ",
      both(machine.peaks.fma, "Gop/s"), "\n");
  if (machine.peaks.tiles.one > 0)
    text += concat("tiles    ", both(machine.peaks.tiles, "Gop/s"), "\n");
  if (const auto& place = machine.placement) {
    char numbers[96];
    std::snprintf(numbers, sizeof numbers,
                  "flag round trip %.0f ns, two threads compute %.2f of one",
                  place->round_trip * 1e9, place->scaling);
    text += concat("place    two processors are ", place->kind(), ": ", numbers, "\n");
  }
  return text;
}

}  // namespace cohort::bench
