// SPDX-License-Identifier: Apache-2.0
// The memory that members of a group share: between threads it is plain memory of the process,
// between processes a mapping. Nothing in it is a pointer; it starts as zeros.
//
//   Header | RankLine[n] | RankState[n] | slots[n][2][chunk] | rings[n (from)][n (to)]
//
// Rounds: in round s rank r fills its slot s % 2 and posts s in its line. A rank that has seen all
// posts of round s may fill slot (s + 1) % 2: its last readers have finished, for they have posted
// s, which came after.
#pragma once
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

#include "base/clock.h"
#include "base/status.h"
#include "comm/round_tag.h"

namespace cohort {

// A counter that one side raises and others wait for. Works across processes.
struct Signal {
  std::atomic<uint32_t> value;
  std::atomic<uint32_t> sleepers;

  // Compared around the wrap of 32 bits.
  bool reached(uint32_t target) const {
    return int32_t(value.load(std::memory_order_acquire) - target) >= 0;
  }
  void post(uint32_t next);
  // Sleeps in the kernel until the value has reached target or the time is over.
  void sleep(uint32_t target, Duration most);
};
static_assert(std::atomic<uint32_t>::is_always_lock_free);

// What a peer needs of a round, in one cache line.
struct alignas(64) RoundLine {
  Signal ready;
  RoundTag tag;
};
struct alignas(128) RankLine {
  RoundLine rounds[2];  // by parity of the round
};

enum class Presence : uint32_t { joining = 0, present, left, failed };

struct alignas(128) RankState {
  std::atomic<uint32_t> presence;  // a Presence
  std::atomic<uint32_t> reason_taken;
  std::array<char, 512> reason;  // zero-terminated, set before presence becomes `failed`
};

// One direction of a pair: a ring of bounded chunks.
struct alignas(128) Ring {
  static constexpr uint32_t kChunks = 4;
  alignas(128) Signal sent;
  alignas(128) Signal received;
};
struct alignas(64) ChunkHeader {
  MessageHeader header;
};
static_assert(sizeof(RoundLine) == 64 && sizeof(RankLine) == 128 && sizeof(ChunkHeader) == 64);

struct RegionHeader {
  uint64_t cookie;
  int64_t ranks;
  int64_t bytes;
};

// A view: whoever makes one keeps the memory alive.
class SharedRegion {
 public:
  static constexpr int64_t kSlotBytes = 128 << 10;

  static int64_t bytes_for(int ranks);
  // memory: bytes_for(ranks), aligned to a page.
  SharedRegion(std::byte* memory, int ranks);

  RegionHeader& header() const { return *reinterpret_cast<RegionHeader*>(memory_); }
  RoundLine& line(int rank, uint32_t round) const;
  RankState& state(int rank) const;
  std::byte* slot(int rank, uint32_t parity) const;
  Ring& ring(int from, int to) const;
  ChunkHeader& chunk(int from, int to, uint32_t number) const;
  std::byte* chunk_data(int from, int to, uint32_t number) const;
  int64_t chunk_bytes() const { return chunk_bytes_; }  // of data
  int ranks() const { return ranks_; }

 private:
  std::byte* memory_;
  int ranks_;
  int64_t chunk_bytes_;
};

}  // namespace cohort
