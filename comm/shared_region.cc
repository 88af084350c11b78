// SPDX-License-Identifier: Apache-2.0
#include "comm/shared_region.h"

#include <linux/futex.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <climits>

namespace cohort {
namespace {

constexpr int64_t kPage = 4096;

int64_t round_up(int64_t bytes) { return (bytes + kPage - 1) / kPage * kPage; }

// Rings of all pairs together take about 16 MiB at most, until 4 KiB per chunk is reached.
int64_t chunk_bytes_for(int64_t ranks) {
  const int64_t share = (16 << 20) / (ranks * ranks * Ring::kChunks);
  return std::clamp<int64_t>(share / kPage * kPage, kPage, 64 << 10) - int64_t(sizeof(ChunkHeader));
}

int64_t ring_bytes(int64_t chunk_bytes) {
  return round_up(int64_t(sizeof(Ring))) +
         Ring::kChunks * (chunk_bytes + int64_t(sizeof(ChunkHeader)));
}

int64_t states_at(int64_t ranks) { return kPage + round_up(ranks * int64_t(sizeof(RankLine))); }
int64_t slots_at(int64_t ranks) {
  return states_at(ranks) + round_up(ranks * int64_t(sizeof(RankState)));
}
int64_t rings_at(int64_t ranks) { return slots_at(ranks) + ranks * 2 * SharedRegion::kSlotBytes; }

}  // namespace

void Signal::post(uint32_t next) {
  // Sequentially consistent against sleep(): either the sleeper sees the value, or we see it.
  value.store(next, std::memory_order_seq_cst);
  if (sleepers.load(std::memory_order_seq_cst) != 0)
    syscall(SYS_futex, &value, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
}

void Signal::sleep(uint32_t target, Duration most) {
  sleepers.fetch_add(1, std::memory_order_seq_cst);
  const uint32_t seen = value.load(std::memory_order_seq_cst);
  if (int32_t(seen - target) < 0) {
    const timespec time{.tv_sec = most.count() / 1'000'000'000,
                        .tv_nsec = most.count() % 1'000'000'000};
    syscall(SYS_futex, &value, FUTEX_WAIT, seen, &time, nullptr, 0);
  }
  sleepers.fetch_sub(1, std::memory_order_seq_cst);
}

int64_t SharedRegion::bytes_for(int ranks) {
  return rings_at(ranks) + int64_t(ranks) * ranks * ring_bytes(chunk_bytes_for(ranks));
}

SharedRegion::SharedRegion(std::byte* memory, int ranks)
    : memory_(memory), ranks_(ranks), chunk_bytes_(chunk_bytes_for(ranks)) {}

RoundLine& SharedRegion::line(int rank, uint32_t round) const {
  return reinterpret_cast<RankLine*>(memory_ + kPage)[rank].rounds[round & 1];
}

RankState& SharedRegion::state(int rank) const {
  return reinterpret_cast<RankState*>(memory_ + states_at(ranks_))[rank];
}

std::byte* SharedRegion::slot(int rank, uint32_t parity) const {
  return memory_ + slots_at(ranks_) + (int64_t(rank) * 2 + parity) * kSlotBytes;
}

Ring& SharedRegion::ring(int from, int to) const {
  return *reinterpret_cast<Ring*>(memory_ + rings_at(ranks_) +
                                  (int64_t(from) * ranks_ + to) * ring_bytes(chunk_bytes_));
}

ChunkHeader& SharedRegion::chunk(int from, int to, uint32_t number) const {
  std::byte* first = reinterpret_cast<std::byte*>(&ring(from, to)) + round_up(sizeof(Ring));
  return *reinterpret_cast<ChunkHeader*>(first + (number % Ring::kChunks) *
                                                     (chunk_bytes_ + int64_t(sizeof(ChunkHeader))));
}

std::byte* SharedRegion::chunk_data(int from, int to, uint32_t number) const {
  return reinterpret_cast<std::byte*>(&chunk(from, to, number)) + sizeof(ChunkHeader);
}

}  // namespace cohort
