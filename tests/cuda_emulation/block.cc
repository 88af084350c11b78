// SPDX-License-Identifier: Apache-2.0
// Runs one block: resumes its fibers, completes barriers and warp collectives, reports what never
// completes.
#include "tests/cuda_emulation/block.h"

#include <algorithm>
#include <bit>
#include <map>

#include "tests/cuda_emulation/race.h"
#include "tests/cuda_emulation/runtime.h"

namespace emu {
namespace {
thread_local Block* current_block = nullptr;

bool same_place(const Site& a, const Site& b) {
  return a.line() == b.line() && a.column() == b.column() && a.file_name() == b.file_name();
}
std::string place(const Site& s) {
  return std::string(s.file_name()) + ":" + std::to_string(s.line());
}
std::string triple(uint3 v) {
  return "(" + std::to_string(v.x) + "," + std::to_string(v.y) + "," + std::to_string(v.z) + ")";
}
}  // namespace

Block& Block::current() { return *current_block; }

Block::~Block() { drop_shared(); }

void Block::fiber_entry() { current_block->body(); }

void Block::body() {
  Lane& me = *lane_;
  me.fiber.begin();
  for (;;) {
    ordered_after(&start_token_);
    ordered_after(&end_tokens_[(sequence_ + 1) & 1]);  // of the block that used this memory before
    grid_.body(grid_.args);
    if (!me.copies.empty()) fail("a thread ends with cp.async copies that it did not wait for");
    orders_before(&end_tokens_[sequence_ & 1]);
    me.state = Lane::State::done;
    me.fiber.pause();
  }
}

void Block::prepare(const Grid& g) {
  grid_ = g;
  threads_ = g.block.x * g.block.y * g.block.z;
  while (lanes_.size() < threads_) lanes_.push_back(std::make_unique<Lane>(&fiber_entry));
  order_.resize(threads_);
  const bool reverse = options().order == Order::reverse;
  for (unsigned i = 0; i < threads_; ++i) order_[i] = reverse ? threads_ - 1 - i : i;
  drop_shared();
  // The exact size lets AddressSanitizer see overruns.
  if (g.smem)
    dynamic_ = static_cast<unsigned char*>(::operator new (g.smem, std::align_val_t{128}));
}

void Block::start_lanes() {
  warps_.assign((threads_ + 31) / 32, Warp{});
  const dim3 size = grid_.block;
  for (unsigned i = 0; i < threads_; ++i) {
    Lane& l = *lanes_[i];
    l.index = i;
    l.thread = {i % size.x, i / size.x % size.y, i / (size.x * size.y)};
    l.state = Lane::State::ready;
    l.copy_groups = 0;
    warps_[i / 32].present |= 1u << (i % 32);
  }
  alive_ = threads_;
  parked_ = 0;
  stats_.cuda_threads += threads_;
  ++sequence_;
  if (dynamic_) std::fill_n(dynamic_, grid_.smem, static_cast<unsigned char>(0xff));
}

void Block::run(uint3 index) {
  current_block = this;
  blockIdx = index;
  blockDim = grid_.block;
  gridDim = grid_.grid;
  start_lanes();
  const bool shuffled = options().order == Order::random;
  if (shuffled) random_.seed(static_cast<unsigned>(options().seed * 7919 + index.x + index.y * 31));
  orders_before(&start_token_);
  while (alive_ > 0) {
    if (shuffled) std::shuffle(order_.begin(), order_.end(), random_);
    bool progress = false;
    for (unsigned first = 0; first < threads_; first += 32) progress |= run_warp(first);
    if (!progress && alive_ > 0 && !release_barriers()) report_deadlock();
  }
  if (!options().blocks_are_unordered) finish();
}

void Block::finish() {
  for (const char& token : end_tokens_) ordered_after(&token);
}

// Resumes 32 threads, as long as one of them can run: their stacks stay in the cache. In random
// order they are of any warp and run once.
bool Block::run_warp(unsigned first) {
  const unsigned end = std::min(first + 32, threads_);
  bool progress = false, again = true;
  while (again) {
    again = false;
    for (unsigned i = first; i < end; ++i) again |= resume(*lanes_[order_[i]]);
    progress |= again;
    if (options().order == Order::random) break;
  }
  return progress;
}

bool Block::resume(Lane& l) {
  if (l.state != Lane::State::ready) return false;
  lane_ = &l;
  threadIdx = l.thread;
  ++stats_.switches;
  in_fiber_ = true;
  l.fiber.resume();
  in_fiber_ = false;
  if (failure_) give_up(std::string(failure_) + describe(l));
  if (l.state == Lane::State::done) end_lane();
  lane_ = nullptr;
  return true;
}

// Threads that end are waited for by no one any more.
void Block::end_lane() {
  --alive_;
  const unsigned index = lane_->index, w = index / 32;
  warps_[w].ended |= 1u << (index % 32);
  for (unsigned i = w * 32; i < std::min(w * 32 + 32, threads_); ++i)
    if (lanes_[i]->state == Lane::State::in_warp && complete(w, lanes_[i]->warp_mask)) return;
}

std::string Block::describe(const Lane& l) const {
  return " [block " + triple(blockIdx) + " thread " + triple(l.thread) + " at " + place(l.site) +
         "]";
}

void Block::fail(const char* what) {
  if (!in_fiber_) give_up(what + (lane_ ? describe(*lane_) : std::string()));
  failure_ = what;
  for (;;) lane_->fiber.pause();
}

// The stacks of parked threads cannot go on: a new grid gets new ones.
void Block::give_up(const std::string& why) {
  failure_ = nullptr;
  lane_ = nullptr;
  lanes_.clear();
  raise(why);
}

void Block::report_deadlock() {
  std::map<std::string, unsigned> waiting;
  for (unsigned i = 0; i < threads_; ++i) {
    const Lane& l = *lanes_[i];
    if (l.state == Lane::State::done) continue;
    const char* for_what = l.state == Lane::State::at_barrier ? "a barrier" : "a warp collective";
    ++waiting[std::string(for_what) + " at " + place(l.site)];
  }
  std::string text = "threads of block " + triple(blockIdx) + " wait for ever:";
  const char* separator = " ";
  for (const auto& [what, count] : waiting) {
    text += separator + std::to_string(count) + " for " + what;
    separator = ", ";
  }
  if (alive_ < threads_) text += "; " + std::to_string(threads_ - alive_) + " have ended";
  give_up(text);
}

void Block::barrier(int id, int threads, Site site) {
  Lane& me = *lane_;
  me.site = site;
  if (id < 0 || id >= kBarriers) fail("a barrier's id is not within 0 to 15");
  if (threads >= 0 && (threads == 0 || threads % 32 != 0))
    fail("the threads of a named barrier are not a multiple of 32");
  me.state = Lane::State::at_barrier;
  me.barrier = id;
  me.barrier_threads = threads;
  ++parked_;
  const char* token = &barrier_tokens_[id][barrier_turns_[id] & 1];
  orders_before(token);
  me.fiber.pause();
  ordered_after(token);
}

// Releases the threads of every barrier that is complete.
bool Block::release_barriers() {
  if (parked_ == 0) return false;
  check_one_barrier();
  bool any = false;
  for (int id = 0; id < kBarriers; ++id) any |= release(id);
  return any;
}

void Block::check_one_barrier() {
  const Lane* first = nullptr;
  for (unsigned i = 0; i < threads_; ++i) {
    const Lane& l = *lanes_[i];
    if (l.state != Lane::State::at_barrier || l.barrier_threads >= 0) continue;
    if (first && !same_place(first->site, l.site))
      give_up("threads of one block wait at different __syncthreads" + describe(*first) +
              describe(l));
    if (!first) first = &l;
  }
}

bool Block::release(int id) {
  unsigned waiting = 0, votes = 0;
  int expected = -1;
  for (unsigned i = 0; i < threads_; ++i) {
    const Lane& l = *lanes_[i];
    if (l.state != Lane::State::at_barrier || l.barrier != id) continue;
    ++waiting;
    votes += l.predicate;
    expected = l.barrier_threads;
  }
  if (waiting == 0 || waiting != (expected < 0 ? alive_ : static_cast<unsigned>(expected)))
    return false;
  for (unsigned i = 0; i < threads_; ++i) {
    Lane& l = *lanes_[i];
    if (l.state != Lane::State::at_barrier || l.barrier != id) continue;
    l.votes = static_cast<int>(votes);
    l.voters = static_cast<int>(waiting);
    l.state = Lane::State::ready;
  }
  ++stats_.barriers;
  ++barrier_turns_[id];
  parked_ -= waiting;
  return true;
}

void Block::collective(std::uint32_t mask, void* arg, WarpFn fn, bool syncwarp, Site site) {
  Lane& me = *lane_;
  Warp& w = warps_[me.index / 32];
  const unsigned bit = me.index % 32;
  me.site = site;
  if (!(mask >> bit & 1)) fail("a lane calls a warp collective with a mask that leaves it out");
  me.warp_mask = mask;
  me.warp_fn = fn;
  me.any_site = syncwarp;
  w.args[bit] = arg;
  w.arrived |= 1u << bit;
  const int leader = std::countr_zero(mask);
  const char* token = &w.tokens[leader][w.turns[leader] & 1];
  if (syncwarp) orders_before(token);
  me.state = Lane::State::in_warp;
  if (!complete(me.index / 32, mask)) me.fiber.pause();
  if (syncwarp) ordered_after(token);
}

// Whether all lanes of the mask are there; then computes for them and lets them go on.
bool Block::complete(unsigned warp, std::uint32_t mask) {
  Warp& w = warps_[warp];
  const std::uint32_t need = mask & w.present & ~w.ended;
  if ((w.arrived & need) != need) return false;
  const Lane* first = nullptr;
  for (unsigned i = 0; i < 32; ++i) {
    if (!(need >> i & 1)) continue;
    const Lane& l = *lanes_[warp * 32 + i];
    if (!first) first = &l;
    if (l.warp_mask != mask) fail("lanes of one warp meet in a collective with different masks");
    if (l.warp_fn != first->warp_fn || !(l.any_site || same_place(l.site, first->site)))
      fail("lanes of one warp meet in different collectives");
  }
  ++stats_.warp_ops;
  first->warp_fn(w.args, need);
  w.arrived &= ~need;
  ++w.turns[std::countr_zero(mask)];
  for (unsigned i = 0; i < 32; ++i)
    if (need >> i & 1) lanes_[warp * 32 + i]->state = Lane::State::ready;
  return true;
}

void Block::take_stats(Stats& sum) {
  sum.cuda_threads += stats_.cuda_threads;
  sum.switches += stats_.switches;
  sum.barriers += stats_.barriers;
  sum.warp_ops += stats_.warp_ops;
  sum.ldmatrix_phases += stats_.ldmatrix_phases;
  sum.ldmatrix_conflicts += stats_.ldmatrix_conflicts;
  stats_ = {};
}
}  // namespace emu
