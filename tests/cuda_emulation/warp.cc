// SPDX-License-Identifier: Apache-2.0
#include "tests/cuda_emulation/warp.h"

#include <algorithm>

#include "tests/cuda_emulation/block.h"

namespace emu {
namespace {
constexpr std::uint64_t kUndefined = ~std::uint64_t{0};

// Calls fn for every lane of the mask, with what it passed.
template <class Arg, class Fn>
void for_each_lane(void** args, std::uint32_t mask, Fn fn) {
  for (unsigned l = 0; l < 32; ++l)
    if (mask >> l & 1) fn(l, *static_cast<Arg*>(args[l]));
}

template <class Arg>
void together(std::uint32_t mask, Arg& arg, WarpFn fn, Site site) {
  Block::current().collective(mask, &arg, fn, false, site);
}

struct ShuffleArg {
  std::uint64_t value, result;
  int source;
};
void shuffle_lanes(void** args, std::uint32_t mask) {
  for_each_lane<ShuffleArg>(args, mask, [&](unsigned, ShuffleArg& a) {
    const bool there = mask >> a.source & 1;
    a.result = there ? static_cast<ShuffleArg*>(args[a.source])->value : kUndefined;
  });
}

// Lane that `lane` reads in groups of `width`: its own where a step would leave the group.
int source_of(Shuffle kind, int lane, int operand, int width) {
  const int first = lane & ~(width - 1), last = lane | (width - 1);
  switch (kind) {
    case Shuffle::index:
      return first | (operand & (width - 1));
    case Shuffle::up:
      return lane - operand < first ? lane : lane - operand;
    case Shuffle::down:
      return lane + operand > last ? lane : lane + operand;
    case Shuffle::exclusive_or:
      break;
  }
  return (lane ^ operand) > last ? lane : lane ^ operand;
}

struct BallotArg {
  bool predicate;
  std::uint32_t result;
};
void ballot_lanes(void** args, std::uint32_t mask) {
  std::uint32_t all = 0;
  for_each_lane<BallotArg>(args, mask, [&](unsigned l, BallotArg& a) {
    if (a.predicate) all |= 1u << l;
  });
  for_each_lane<BallotArg>(args, mask, [&](unsigned, BallotArg& a) { a.result = all; });
}

struct MatchArg {
  std::uint64_t value;
  std::uint32_t result;
};
void match_lanes(void** args, std::uint32_t mask) {
  for_each_lane<MatchArg>(args, mask, [&](unsigned, MatchArg& mine) {
    mine.result = 0;
    for_each_lane<MatchArg>(args, mask, [&](unsigned l, MatchArg& other) {
      if (other.value == mine.value) mine.result |= 1u << l;
    });
  });
}

struct ReduceArg {
  std::uint32_t bits;
  Reduction kind;
  bool is_signed;
};
std::uint32_t combine(const ReduceArg& a, std::uint32_t x, std::uint32_t y) {
  const bool less =
      a.is_signed ? static_cast<std::int32_t>(x) < static_cast<std::int32_t>(y) : x < y;
  switch (a.kind) {
    case Reduction::add:
      return x + y;
    case Reduction::min:
      return less ? x : y;
    case Reduction::max:
      return less ? y : x;
    case Reduction::bit_and:
      return x & y;
    case Reduction::bit_or:
      return x | y;
    case Reduction::bit_xor:
      break;
  }
  return x ^ y;
}
void reduce_lanes(void** args, std::uint32_t mask) {
  const ReduceArg* first = nullptr;
  std::uint32_t sum = 0;
  for_each_lane<ReduceArg>(args, mask, [&](unsigned, ReduceArg& a) {
    sum = first ? combine(a, sum, a.bits) : a.bits;
    first = &a;
  });
  for_each_lane<ReduceArg>(args, mask, [&](unsigned, ReduceArg& a) { a.bits = sum; });
}

void nothing(void**, std::uint32_t) {}
}  // namespace

std::uint64_t shuffle(Shuffle kind, std::uint32_t mask, std::uint64_t bits, int operand, int width,
                      Site site) {
  Block& block = Block::current();
  block.lane().site = site;
  if (width < 1 || width > 32 || (width & (width - 1)) != 0)
    block.fail("the width of a shuffle is not a power of two up to 32");
  const int lane = static_cast<int>(lane_id());
  ShuffleArg a{bits, 0, source_of(kind, lane, operand, width) & 31};
  together(mask, a, &shuffle_lanes, site);
  return a.result;
}

std::uint32_t reduce(Reduction kind, std::uint32_t mask, std::uint32_t bits, bool is_signed,
                     Site site) {
  ReduceArg a{bits, kind, is_signed};
  together(mask, a, &reduce_lanes, site);
  return a.bits;
}

std::uint32_t ballot(std::uint32_t mask, bool predicate, Site site) {
  BallotArg a{predicate, 0};
  together(mask, a, &ballot_lanes, site);
  return a.result;
}

std::uint32_t match_any(std::uint32_t mask, std::uint64_t bits, Site site) {
  MatchArg a{bits, 0};
  together(mask, a, &match_lanes, site);
  return a.result;
}

void sync_warp(std::uint32_t mask, Site site) {
  Block::current().collective(mask, nullptr, &nothing, true, site);
}

unsigned lane_id() { return Block::current().lane().index % 32; }

void block_barrier(Site site, int id, int expected) {
  Block::current().lane().predicate = false;
  Block::current().barrier(id, expected, site);
}

int block_vote(bool predicate, Site site, int* present) {
  Block& block = Block::current();
  Lane& me = block.lane();
  me.predicate = predicate;
  block.barrier(0, -1, site);
  *present = me.voters;
  return me.votes;
}
}  // namespace emu
