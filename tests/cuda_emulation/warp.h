// SPDX-License-Identifier: Apache-2.0
// What the threads of a warp or a block do together. A lane parks until every lane that its mask
// names (and that has not ended) is there; the last one computes for all. Sources of all rules:
// CUDA C++ Programming Guide, "Warp Shuffle", "Warp Vote", "Warp Match" and "Warp Reduce
// Functions", "Synchronization Functions".
#pragma once
#include <bit>
#include <cstdint>
#include <cstring>
#include <source_location>
#include <type_traits>

namespace emu {
using Site = std::source_location;

enum class Shuffle { index, up, down, exclusive_or };
// Of a lane that does not take part one reads what a GPU leaves undefined: here all bits are set.
std::uint64_t shuffle(Shuffle kind, std::uint32_t mask, std::uint64_t bits, int operand, int width,
                      Site site);
enum class Reduction { add, min, max, bit_and, bit_or, bit_xor };
std::uint32_t reduce(Reduction kind, std::uint32_t mask, std::uint32_t bits, bool is_signed,
                     Site site);
std::uint32_t ballot(std::uint32_t mask, bool predicate, Site site);
std::uint32_t match_any(std::uint32_t mask, std::uint64_t bits, Site site);
void sync_warp(std::uint32_t mask, Site site);
unsigned lane_id();

// Barrier `id` of the block. expected < 0: all threads that have not ended.
void block_barrier(Site site, int id = 0, int expected = -1);
// __syncthreads that counts the threads whose predicate holds; *present is how many met.
int block_vote(bool predicate, Site site, int* present);

template <class T>
T shuffle_value(Shuffle kind, std::uint32_t mask, T v, int operand, int width, Site site) {
  static_assert(std::is_arithmetic_v<T> && (sizeof(T) == 4 || sizeof(T) == 8));
  std::uint64_t bits = 0;
  std::memcpy(&bits, &v, sizeof v);
  bits = shuffle(kind, mask, bits, operand, width, site);
  std::memcpy(&v, &bits, sizeof v);
  return v;
}
template <class T>
T reduce_value(Reduction kind, std::uint32_t mask, T v, Site site) {
  static_assert(std::is_same_v<T, int> || std::is_same_v<T, unsigned>);
  const std::uint32_t r =
      reduce(kind, mask, static_cast<std::uint32_t>(v), std::is_signed_v<T>, site);
  return static_cast<T>(r);
}
}  // namespace emu

// The last parameter of everything that threads do together: where in the kernel it stands.
#define EMU_SITE emu::Site emu_site = emu::Site::current()

inline void __syncthreads(EMU_SITE) { emu::block_barrier(emu_site); }
inline int __syncthreads_count(int predicate, EMU_SITE) {
  int present = 0;
  return emu::block_vote(predicate != 0, emu_site, &present);
}
inline int __syncthreads_or(int predicate, EMU_SITE) {
  int present = 0;
  return emu::block_vote(predicate != 0, emu_site, &present) != 0;
}
inline int __syncthreads_and(int predicate, EMU_SITE) {
  int present = 0;
  const int count = emu::block_vote(predicate != 0, emu_site, &present);
  return count == present;
}

inline void __syncwarp(unsigned mask = 0xffffffffu, EMU_SITE) { emu::sync_warp(mask, emu_site); }
// Nothing says which lanes run together: the caller alone is the answer that assumes least.
inline unsigned __activemask() { return 1u << emu::lane_id(); }

template <class T>
T __shfl_sync(unsigned mask, T v, int source, int width = 32, EMU_SITE) {
  return emu::shuffle_value(emu::Shuffle::index, mask, v, source, width, emu_site);
}
template <class T>
T __shfl_up_sync(unsigned mask, T v, unsigned delta, int width = 32, EMU_SITE) {
  return emu::shuffle_value(emu::Shuffle::up, mask, v, static_cast<int>(delta), width, emu_site);
}
template <class T>
T __shfl_down_sync(unsigned mask, T v, unsigned delta, int width = 32, EMU_SITE) {
  return emu::shuffle_value(emu::Shuffle::down, mask, v, static_cast<int>(delta), width, emu_site);
}
template <class T>
T __shfl_xor_sync(unsigned mask, T v, int lanes, int width = 32, EMU_SITE) {
  return emu::shuffle_value(emu::Shuffle::exclusive_or, mask, v, lanes, width, emu_site);
}

inline unsigned __ballot_sync(unsigned mask, int predicate, EMU_SITE) {
  return emu::ballot(mask, predicate != 0, emu_site);
}
inline int __any_sync(unsigned mask, int predicate, EMU_SITE) {
  return emu::ballot(mask, predicate != 0, emu_site) != 0;
}
inline int __all_sync(unsigned mask, int predicate, EMU_SITE) {
  return emu::ballot(mask, predicate == 0, emu_site) == 0;
}
template <class T>
unsigned __match_any_sync(unsigned mask, T v, EMU_SITE) {
  static_assert(std::is_arithmetic_v<T> && (sizeof(T) == 4 || sizeof(T) == 8));
  std::uint64_t bits = 0;
  std::memcpy(&bits, &v, sizeof v);
  return emu::match_any(mask, bits, emu_site);
}

template <class T>
T __reduce_add_sync(unsigned mask, T v, EMU_SITE) {
  return emu::reduce_value(emu::Reduction::add, mask, v, emu_site);
}
template <class T>
T __reduce_min_sync(unsigned mask, T v, EMU_SITE) {
  return emu::reduce_value(emu::Reduction::min, mask, v, emu_site);
}
template <class T>
T __reduce_max_sync(unsigned mask, T v, EMU_SITE) {
  return emu::reduce_value(emu::Reduction::max, mask, v, emu_site);
}
inline unsigned __reduce_and_sync(unsigned mask, unsigned v, EMU_SITE) {
  return emu::reduce_value(emu::Reduction::bit_and, mask, v, emu_site);
}
inline unsigned __reduce_or_sync(unsigned mask, unsigned v, EMU_SITE) {
  return emu::reduce_value(emu::Reduction::bit_or, mask, v, emu_site);
}
inline unsigned __reduce_xor_sync(unsigned mask, unsigned v, EMU_SITE) {
  return emu::reduce_value(emu::Reduction::bit_xor, mask, v, emu_site);
}

namespace gpu {
inline void named_barrier(int id, int threads, EMU_SITE) {
  emu::block_barrier(emu_site, id, threads);
}
}  // namespace gpu
