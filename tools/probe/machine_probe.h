// SPDX-License-Identifier: Apache-2.0
// Measures what bounds a program on this machine. Each probe takes a fraction of a second and keeps
// the processors busy; of several runs the best counts, because a limit is what can be reached.
#pragma once
#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "base/cpu.h"

namespace cohort {

// Something per second: of one thread alone, and of all together.
struct Rate {
  double one = 0, all = 0;
};

struct IsaPeaks {
  Isa isa = Isa::portable;
  Rate fma;    // operations on f32
  Rate int8;   // operations on integers of 8 bits; with tiles, where they are faster, on those
  Rate tiles;  // operations on tiles of bf16; 0: it has none
};
// isa: supported.
IsaPeaks probe_peaks(Isa isa, int threads);

// Bytes that threads read from main memory, each a stretch of its own, in 2 MiB pages where the
// system gives them. bytes: of all threads together, more than all caches hold.
Rate probe_memory(Isa isa, int threads, int64_t bytes);
// More than the caches hold, and not too much of the memory.
int64_t memory_probe_bytes();
// Bytes that threads read from memory that the second-level cache of each holds.
Rate probe_cache(Isa isa, int threads);

// How two processors stand to each other.
struct Placement {
  double round_trip = 0;  // seconds until the other one has seen a flag and its answer is seen
  double scaling = 0;     // what two threads compute of what one does
  // "siblings" (two hardware threads of one core), "near" (they share a cache) or "far".
  std::string_view kind() const;
};
// Of the first two processors that this process may use; nothing where it has one alone.
std::optional<Placement> probe_placement(Isa isa);

struct MachineLimits {
  int threads = 1;
  Rate memory, cache;
  IsaPeaks peaks;
  std::optional<Placement> placement;
};
MachineLimits probe_machine(Isa isa, int threads);

}  // namespace cohort
