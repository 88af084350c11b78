// SPDX-License-Identifier: Apache-2.0
// Test controls of the emulated CUDA runtime. Production code never includes this.
#pragma once
#include <driver_types.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "tests/cuda_emulation/race.h"

namespace emu {
// Which runnable piece of work the emulated device picks next, across all streams of all devices.
//   issue_order: what a naive fake would do, hides missing dependencies
//   newest_first / random: legal but hostile orders
enum class Schedule { issue_order, newest_first, random };

// Settings. Processes that cannot call these (workers under mpirun) are set up by
// COHORT_EMULATED_DEVICES, COHORT_EMULATED_MEMORY (bytes of each device) and
// COHORT_EMULATED_SCHEDULE (issue, newest, random:SEED).
void set_schedule(Schedule s, std::uint64_t seed = 1);
// From now on work of this stream (the nth that the device had, from 0) is picked only when no
// other can run: what does not wait for it by an event comes before it. Until reset() or device -1.
void hold_back(int device, int stream);
void set_device_count(int n);               // 1 unless set
void set_device_memory(std::size_t bytes);  // 256 MiB unless set
struct Model {                              // the limits of an A100, few multiprocessors
  int major = 8, minor = 0;
  int multiprocessors = 8;
  std::size_t shared_per_block = 163 << 10;  // after cudaFuncSetAttribute
  std::size_t shared_per_multiprocessor = 164 << 10;
};
void set_model(const Model& model);
// Host threads that drive ranks. When all of them wait and no work can run, that is a deadlock and
// reported at once. 0 (as it is unless set): unknown, so a deadlock shows by the stall limit.
void set_host_threads(int n);
void host_thread_done();  // each such thread says when it ends, so that a rank waiting for it is a
                          // deadlock
// How long host threads may wait or poll without any work being run or enqueued. 60 s unless set.
void set_stall_limit(std::chrono::milliseconds limit);

// Fault injection. The call of `api` (a function, or "kernel launch") after `skip` more of them
// fails with `error` (a cudaError_t, or what the fake that owns the function returns), in whichever
// thread.
void fail_next(const std::string& api, int error, int skip = 0);
int take_fault(const char* api);  // 0: this call shall work
// From now on every call for the device returns `error`; its work never runs.
void lose_device(int device, cudaError_t error = cudaErrorDevicesUnavailable);
// Same, with the reason on stderr and in reports(): for work that finds its operands unusable.
void device_fault(int device, cudaError_t error, const std::string& why);

// What was done wrong so far: each misuse of the API, also where the caller was told by an error.
std::vector<std::string> reports();
void report(const std::string& what);  // adds to them, and says it on stderr
// What exists now, for tests of leaks.
struct Live {
  std::size_t streams, events, graphs, execs, device_bytes, pinned_bytes;
};
Live live();

// Thrown instead of aborting on deadlock and collective mismatch, out of the CUDA call that waited
// (never out of one that releases something).
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
  // `ready` waits for another process: it is polled, and not running is no deadlock. It raises by
  // itself once it has waited too long.
  bool external = false;
};
using WorkMaker = std::function<Work()>;
// Adds work to a stream, or to the graph being captured on it. Used by the NCCL and cuBLASLt fakes.
// Fails, also for cudaGetLastError, when the stream cannot take work.
cudaError_t submit(cudaStream_t stream, WorkMaker make);
// The same for a kernel: the stream must be of the calling thread's current device.
cudaError_t enqueue(cudaStream_t stream, const char* what, std::function<void()> work);

[[noreturn]] void raise(const std::string& what);
int current_device();
// Runs device work until done() holds. `external`: done() waits for another process.
void wait_until(const std::function<bool()>& done, bool external = false);
void notify();          // host state that some done() or ready() looks at has changed
std::uint64_t steps();  // pieces of work run so far
// Drops all queued work, captures, faults and reports, revives devices, and goes back to the
// settings a process starts with. Streams, events, graphs and memory live on.
void reset();
}  // namespace emu
