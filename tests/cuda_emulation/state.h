// SPDX-License-Identifier: Apache-2.0
// What the files of the emulated runtime share. One lock guards all of it.
#pragma once
#include <cuda_runtime_api.h>

#include <array>
#include <chrono>
#include <deque>
#include <map>
#include <mutex>
#include <optional>
#include <random>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "tests/cuda_emulation/lock.h"
#include "tests/cuda_emulation/planting.h"
#include "tests/cuda_emulation/runtime.h"

namespace emu {
using Clock = std::chrono::steady_clock;
using Tokens =
    std::shared_ptr<std::vector<char>>;  // only the addresses matter, to the race checker

// Captured operations and the edges between them. An operation runs as the stream that it was
// captured on, null for the stream that the capture began on: that becomes the launch's stream.
struct Template {
  std::vector<WorkMaker> make;
  std::vector<std::vector<int>> deps;
  std::vector<std::shared_ptr<StreamFiber>> on;
};

struct Capture {
  Template graph;
  CUstream_st* origin;
  cudaStreamCaptureMode mode;
  std::thread::id thread;
  std::map<CUstream_st*, std::vector<int>> tails;  // what the next operation of each depends on
  bool invalid = false, ended = false;
};

// A launch and its end, for what must come after it.
struct Launch {
  bool done = false;
  Tokens tokens;
};

struct Run {  // a graph launch; a plain operation is a graph of one node
  std::vector<Work> work;
  std::vector<std::vector<int>> deps;
  std::vector<std::shared_ptr<StreamFiber>> on;
  std::vector<char> arrived, done;
  std::size_t left;
  std::uint64_t seq;
  std::shared_ptr<Launch> self, stream_before, exec_before;
  // self->tokens[i]: node i is done; [n]: launched; [n + 1]: all done
};

struct EventState {  // of one cudaEventRecord
  int device = 0;
  bool done = false;
  Clock::time_point at{};
};
}  // namespace emu

struct CUstream_st {
  int device;
  std::deque<emu::Run> queue{};
  std::shared_ptr<emu::Capture> capture{};
  std::shared_ptr<emu::Launch> last{};
  std::shared_ptr<emu::StreamFiber> fiber = std::make_shared<emu::StreamFiber>();
  bool destroyed = false;
  int number = 0;  // how many its device had before it
};
struct CUevent_st {
  int device;
  bool timing;
  int stream = 0;                           // number of the one that it was recorded on last
  std::shared_ptr<emu::EventState> last{};  // null: never recorded outside a capture
  std::shared_ptr<emu::Capture> capture{};  // of the last record
  std::vector<int> nodes{};
};
struct CUgraphNode_st {};
struct CUgraph_st {
  emu::Template t;
  std::vector<CUgraphNode_st> nodes;
};
struct CUgraphExec_st {
  emu::Template t;
  std::shared_ptr<emu::Launch> last{};
};

namespace emu {
struct Allocation {
  std::size_t size;
  int device;             // kHost: page-locked host memory
  bool allocated = true;  // false until the stream of a cudaMallocAsync gets there
  bool freed = false;     // cudaFreeAsync was called
};
constexpr int kHost = -1;

struct Quarantined {  // freed memory, held for a while so that late uses of it are seen
  char* base;
  std::size_t size;
};

struct Settings {
  Settings();  // of the environment
  Schedule schedule = Schedule::issue_order;
  std::uint64_t seed = 1;
  int devices = 1;
  std::size_t memory = 256 << 20;
  Model model;
  int host_threads = 0;
  int held_device = -1, held_stream = -1;
  std::chrono::milliseconds stall_limit{60000};
};

struct Fault {
  std::string api;
  int error, skip;
};

struct Plant {
  std::string api;
  int device, skip;
  bool swap, due;
};

struct State {
  Lock lock;
  Settings settings;
  std::mt19937_64 rng{settings.seed};
  std::vector<CUstream_st*> streams;  // also destroyed ones that still have work
  std::set<CUevent_st*> events;
  std::set<CUgraph_st*> graphs;
  std::set<CUgraphExec_st*> execs;
  std::map<char*, Allocation> memory;
  std::map<int, std::size_t> used;  // bytes of each device, and of kHost
  std::deque<Quarantined> quarantine;
  std::size_t quarantined_bytes = 0;
  std::map<std::pair<int, const void*>, std::size_t>
      dynamic_shared;  // by device: of kernels that asked for more
  std::vector<Fault> faults;
  std::vector<Plant> plants;
  std::string latest_mistake;
  std::map<int, std::function<int()>> postponed;  // by device: a call of NCCL that is swapped
  std::map<std::pair<std::string, int>, std::uint64_t> calls;  // by name and device
  std::map<int, cudaError_t> lost;
  std::vector<std::string> reports;
  bool broken = false;
  std::uint64_t sequence = 0, steps = 0;
  int idle = 0;                      // host threads that found nothing to do
  std::uint32_t idle_version = ~0u;  // at this version
  bool external_waits = false;       // the last look met work that waits for another process
  Clock::time_point progress = Clock::now();
};
State& state();

// Held by every entry point. ThreadSanitizer sees neither the lock nor what is done under it.
class Guard {
 public:
  Guard() { state().lock.lock(); }
  ~Guard() { state().lock.unlock(); }
  Guard(const Guard&) = delete;

 private:
  Bookkeeping bookkeeping_;
};

// First statement of an entry point, under a Guard: an injected fault, a call out of a host
// function, a lost device.
cudaError_t enter(const char* api);
cudaError_t fail(cudaError_t error);  // what cudaGetLastError gives; NotReady included, as in CUDA
cudaError_t misuse(cudaError_t error, const std::string& what);  // fail and report
cudaError_t take_last_error(bool clear);

cudaError_t need(cudaStream_t stream);  // an error unless it is a stream that can be used
cudaError_t need(cudaEvent_t event);
// An error, and the end of captures, when one of them forbids calls that capturing cannot see.
cudaError_t unsafe(const char* api);

void push(CUstream_st* stream, const Template& t, const std::shared_ptr<Launch>& exec_before);
bool run_one();  // one runnable piece of work; false when none can run
// For a host thread that polls: runs a few pieces of work, unless done() holds before. Called
// without other locks held.
void poll(const std::function<bool()>& done);
bool drained(int device);
void order_after_device(int device);
// Waits for all work of a device. False when that cannot end; used where nothing may be thrown.
bool drain(int device) noexcept;
void release_drained_streams();
bool running_work();  // in this thread, below a host function or kernel
cudaError_t lost(int device);
}  // namespace emu
