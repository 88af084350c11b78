// SPDX-License-Identifier: Apache-2.0
// Launches: CUDA's limits, and blocks spread over OS threads.
#include "tests/cuda_emulation/device.h"

#include <algorithm>
#include <atomic>
#include <exception>
#include <list>
#include <map>
#include <mutex>
#include <span>
#include <thread>
#include <utility>
#include <vector>

#include "tests/cuda_emulation/block.h"
#include "tests/cuda_emulation/race.h"
#include "tests/cuda_emulation/runtime.h"
#include "tests/cuda_emulation/state.h"

thread_local constinit uint3 threadIdx{0, 0, 0};
thread_local constinit uint3 blockIdx{0, 0, 0};
thread_local constinit dim3 blockDim{1, 1, 1};
thread_local constinit dim3 gridDim{1, 1, 1};

namespace emu {
namespace {
// A lock that ThreadSanitizer does not see: what it guards orders no device work.
class HiddenLock {
 public:
  explicit HiddenLock(std::atomic_flag& f) : flag_(f) {
    while (flag_.test_and_set()) std::this_thread::yield();
  }
  ~HiddenLock() { flag_.clear(); }
  HiddenLock(const HiddenLock&) = delete;
  HiddenLock& operator=(const HiddenLock&) = delete;

 private:
  Bookkeeping hidden_;
  std::atomic_flag& flag_;
};

// Per device and kernel, as the attribute of CUDA.
struct SharedLimits {
  std::atomic_flag lock;
  std::map<std::pair<int, const void*>, std::size_t> bytes;
};
SharedLimits& shared_limits() {
  static auto& limits = *new SharedLimits;
  return limits;
}

bool within(dim3 v, dim3 limit) {
  return v.x - 1 < limit.x && v.y - 1 < limit.y && v.z - 1 < limit.z;
}

#if defined(EMU_TSAN)
constexpr unsigned kMostWorkers = 1;  // fibers are kept per stream, so one thread runs its blocks

// Race checks need own fibers for each stream, which is a fiber of the race checker itself, or
// kernels of two streams would seem to be ordered. Where blocks are unordered, neighbours have
// different fibers too. The checker has 8128 for all: those of streams that were not used for long
// (or are gone) make room.
struct Pool {
  static constexpr std::size_t kFibers = 5000;
  struct Entry {
    std::pair<void*, std::uint64_t> user;
    Block block;
    bool busy = false;
  };
  std::atomic_flag lock;
  std::list<Entry> entries;  // that used last comes first

  void make_room(std::size_t threads) {
    for (const Entry& e : entries) threads += e.block.lane_count();
    for (auto e = entries.end(); threads > kFibers && e != entries.begin();) {
      --e;
      if (e->busy) continue;
      threads -= e->block.lane_count();
      e = entries.erase(e);
    }
  }
  Entry& take(std::pair<void*, std::uint64_t> user, std::size_t threads) {
    const HiddenLock l(lock);
    auto e = std::ranges::find(entries, user, &Entry::user);
    if (e == entries.end()) {
      make_room(threads);
      entries.emplace_front().user = user;
    } else {
      entries.splice(entries.begin(), entries, e);
    }
    entries.front().busy = true;
    return entries.front();
  }
};

// The block to run those with this index modulo 2 in.
class BlockOfThisThread {
 public:
  BlockOfThisThread(std::uint64_t index, std::size_t threads)
      : entry_(pool().take({__tsan_get_current_fiber(), options().blocks_are_unordered ? index : 0},
                           threads)) {}
  ~BlockOfThisThread() {
    const HiddenLock l(pool().lock);
    entry_.busy = false;
  }
  Block* get() { return &entry_.block; }

 private:
  static Pool& pool() {
    static auto& p = *new Pool;
    return p;
  }
  Pool::Entry& entry_;
};
#else
constexpr unsigned kMostWorkers = 64;

class BlockOfThisThread {
 public:
  BlockOfThisThread(std::uint64_t, std::size_t) {}
  Block* get() {
    thread_local Block mine;
    return &mine;
  }
};
#endif

unsigned worker_count(std::uint64_t blocks) {
  const auto wanted = std::clamp(options().workers, 1u, kMostWorkers);
  return static_cast<unsigned>(std::min<std::uint64_t>(wanted, blocks));
}

// What the OS threads of one grid share.
struct GridRun {
  Grid grid;
  std::uint64_t blocks;
  std::atomic<std::uint64_t> next{0};
  std::mutex mutex;
  std::exception_ptr error;
};

void run_blocks(GridRun& work) {
  const dim3 size = work.grid.grid;
  const dim3 threads = work.grid.block;
  BlockOfThisThread even(0, threads.x * threads.y * threads.z);
  BlockOfThisThread odd(1, threads.x * threads.y * threads.z);
  Block* const used[] = {even.get(), odd.get()};
  const std::span distinct(used, used[0] == used[1] ? 1 : 2);
  for (Block* block : distinct) block->prepare(work.grid);
  for (std::uint64_t b; (b = work.next.fetch_add(1)) < work.blocks;)
    used[b % 2]->run({static_cast<unsigned>(b % size.x), static_cast<unsigned>(b / size.x % size.y),
                      static_cast<unsigned>(b / size.x / size.y)});
  for (Block* block : distinct) block->finish();
  static std::atomic_flag lock;
  const HiddenLock l(lock);
  for (Block* block : distinct) block->take_stats(stats());
}

void run_worker(GridRun& work) {
  try {
    run_blocks(work);
  } catch (...) {
    work.next = work.blocks;
    const std::lock_guard lock(work.mutex);
    if (!work.error) work.error = std::current_exception();
  }
}
}  // namespace

Options& options() {
  static Options o;
  return o;
}
Stats& stats() {
  static Stats s;
  return s;
}

void fence() {
  static char token = 0;
  __atomic_thread_fence(__ATOMIC_SEQ_CST);
  orders_before(&token);
  ordered_after(&token);
}

// CUDA C++ Programming Guide, "Technical Specifications per Compute Capability".
cudaError_t check_launch(const void* kernel, dim3 grid, dim3 block, std::size_t smem) {
  const auto threads = std::uint64_t{block.x} * block.y * block.z;
  if (!within(block, {1024, 1024, 64}) || threads > 1024 ||
      !within(grid, {0x7fffffff, 65535, 65535}))
    return fail(cudaErrorInvalidConfiguration);
  std::size_t limit = 48 << 10;
  SharedLimits& limits = shared_limits();
  const std::pair key(current_device(), kernel);
  const HiddenLock l(limits.lock);
  if (const auto it = limits.bytes.find(key); it != limits.bytes.end())
    limit = std::max(limit, it->second);
  return fail(smem > limit ? cudaErrorInvalidValue : cudaSuccess);
}

cudaError_t allow_shared(const void* kernel, std::size_t bytes) {
  if (bytes > Block::kSharedLimit) return cudaErrorInvalidValue;
  SharedLimits& limits = shared_limits();
  const std::pair key(current_device(), kernel);
  const HiddenLock l(limits.lock);
  limits.bytes[key] = bytes;
  return cudaSuccess;
}

void run_grid(dim3 grid, dim3 block, std::size_t smem, void (*body)(const void*),
              const void* args) {
  GridRun work;
  work.grid = {grid, block, smem, body, args};
  work.blocks = std::uint64_t{grid.x} * grid.y * grid.z;
  std::vector<std::thread> others;
  for (unsigned i = 1; i < worker_count(work.blocks); ++i)
    others.emplace_back([&work] { run_worker(work); });
  run_worker(work);
  for (std::thread& t : others) t.join();
  if (work.error) std::rethrow_exception(work.error);
}
}  // namespace emu
