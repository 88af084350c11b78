// SPDX-License-Identifier: Apache-2.0
// The running block of one OS thread: its fibers, its shared memory, its barriers. Inside of the
// emulated device; kernels see device.h.
#pragma once
#include <cuda_runtime.h>

#include <cstdint>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "tests/cuda_emulation/device.h"
#include "tests/cuda_emulation/fiber.h"

#if defined(EMU_TSAN)
extern "C" void __tsan_func_entry(void* pc);
extern "C" void __tsan_func_exit();
#endif

namespace emu {
// Shows the line of the kernel, at `pc`, in race reports about what the emulation does for it.
class Frame {
 public:
#if defined(EMU_TSAN)
  explicit Frame(void* pc) { __tsan_func_entry(pc); }
  ~Frame() { __tsan_func_exit(); }
#else
  explicit Frame(void*) {}
  ~Frame() {}
#endif
  Frame(const Frame&) = delete;
};

// Computes the results of all lanes in `mask` from what they passed to warp_collective.
using WarpFn = void (*)(void** args, std::uint32_t mask);

// A cp.async that has not landed.
struct Copy {
  void* dst;
  const void* src;
  int bytes;
  bool pred;
  unsigned group;
};

// One CUDA thread. `waiting_*`: for what, since `site`.
struct Lane {
  enum class State : std::uint8_t { ready, at_barrier, in_warp, done };
  explicit Lane(void (*entry)()) : fiber(entry) {}

  ThreadFiber fiber;
  uint3 thread{};
  unsigned index = 0;  // in the block
  State state = State::done;
  Site site;
  int barrier = 0, barrier_threads = -1;
  bool predicate = false;
  int votes = 0, voters = 0;  // the barrier's result
  std::uint32_t warp_mask = 0;
  WarpFn warp_fn = nullptr;
  bool any_site = false;
  std::vector<Copy> copies;
  unsigned copy_groups = 0;  // committed so far
};

struct Warp {
  void* args[32] = {};
  std::uint32_t arrived = 0, present = 0, ended = 0;
  // What __syncwarp orders: tokens per lowest lane of the mask, two by turns.
  char tokens[32][2] = {};
  unsigned turns[32] = {};
};

struct SharedArray {
  const void* tag;
  std::size_t bytes;
  std::uint64_t block;  // that last used it
  unsigned char* data;
};

struct Grid {
  dim3 grid, block;
  std::size_t smem;
  void (*body)(const void*);
  const void* args;
};

class Block {
 public:
  static constexpr std::size_t kStaticLimit = 48 << 10, kSharedLimit = 227 << 10;
  static constexpr int kBarriers = 16;

  Block() = default;
  ~Block();
  Block(const Block&) = delete;
  Block& operator=(const Block&) = delete;
  // The one that this OS thread runs.
  static Block& current();
  // Lays out threads and memory.
  void prepare(const Grid& g);
  // Throws Error for a mistake of the kernel.
  void run(uint3 index);
  // After the last run: what the caller does now comes after all that the kernel did.
  void finish();
  void take_stats(Stats& sum);

  std::size_t lane_count() const { return lanes_.size(); }
  Lane& lane() { return *lane_; }
  Stats& stats() { return stats_; }
  void* dynamic_shared() { return dynamic_; }
  void* shared_array(const void* tag, std::size_t bytes);
  bool in_shared(const void* p, std::size_t bytes) const;

  // By a fiber.
  void barrier(int id, int threads, Site site);
  // Only __syncwarp orders memory, and only there may lanes meet in different lines.
  void collective(std::uint32_t mask, void* arg, WarpFn fn, bool syncwarp, Site site);
  // A mistake of the kernel, which ends it. `what` has static storage.
  [[noreturn]] void fail(const char* what);

 private:
  static void fiber_entry();
  void body();
  void start_lanes();
  bool run_warp(unsigned first);
  bool resume(Lane& l);
  void end_lane();
  bool complete(unsigned warp, std::uint32_t mask);
  bool release_barriers();
  bool release(int id);
  void check_one_barrier();
  std::string describe(const Lane& l) const;
  [[noreturn]] void give_up(const std::string& why);
  [[noreturn]] void report_deadlock();
  void drop_shared();

  Grid grid_{};
  std::vector<std::unique_ptr<Lane>> lanes_;
  std::vector<Warp> warps_;
  std::vector<unsigned> order_;
  Lane* lane_ = nullptr;  // the running one; null in the scheduler
  bool in_fiber_ = false;
  const char* failure_ = nullptr;
  unsigned threads_ = 0, alive_ = 0, parked_ = 0;
  std::uint64_t sequence_ = 0;
  unsigned char* dynamic_ = nullptr;
  std::vector<SharedArray> shared_;
  std::minstd_rand random_{1};
  // Two each, by turns: a thread may come to the next turn before another has left this one.
  char start_token_ = 0, end_tokens_[2] = {}, barrier_tokens_[kBarriers][2] = {};
  unsigned barrier_turns_[kBarriers] = {};
  Stats stats_;
};

}  // namespace emu
