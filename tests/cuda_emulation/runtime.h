// SPDX-License-Identifier: Apache-2.0
// Test controls of the emulated CUDA runtime. Production code never includes this.
#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "tests/cuda_emulation/race.h"

struct CUstream_st;

namespace emu {
// Which runnable piece of work the emulated device picks next, across all streams of all devices.
//   issue_order: what a naive fake would do, hides missing dependencies
//   newest_first / random: legal but hostile orders
enum class Schedule { issue_order, newest_first, random };
void set_schedule(Schedule s, std::uint64_t seed = 1);
void set_device_count(int n);
// Host threads that drive ranks. When all of them wait and no work can run, that is a deadlock.
void set_host_threads(int n);
void host_thread_done();  // each such thread says when it ends, so that a rank waiting for it is a
                          // deadlock
// Throw instead of aborting on deadlock, collective mismatch and API misuse.
struct Error {
  std::string what;
};

// One piece of device work, built again at each graph launch.
struct Work {
  std::string what;
  std::function<void()>
      arrive;  // once, when every dependency is done (a collective posts its operands)
  std::function<bool()> ready;  // empty: always
  std::function<void()> run;
  std::function<void()> after;  // bookkeeping once run is over
};
using WorkMaker = std::function<Work()>;
// Adds work to a stream, or to the graph being captured on it. Used by the NCCL and cuBLASLt fakes.
void submit(CUstream_st* stream, WorkMaker make);
[[noreturn]] void raise(const std::string& what);
int current_device();
void wait_until(const std::function<bool()>& done);  // runs device work until done() holds
std::uint64_t steps();                               // pieces of work run so far
void reset();                                        // drops all queued work (after a caught Error)
}  // namespace emu
