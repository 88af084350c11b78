// SPDX-License-Identifier: Apache-2.0
// Shared memory of a block, and cp.async into it.
#include <algorithm>
#include <cstring>
#include <new>

#include "tests/cuda_emulation/block.h"
#include "tests/cuda_emulation/race.h"

namespace emu {
namespace {
constexpr unsigned char kPoison = 0xff;
constexpr auto kAlignment = std::align_val_t{128};

bool aligned16(const void* p) { return reinterpret_cast<std::uintptr_t>(p) % 16 == 0; }
}  // namespace

void Block::drop_shared() {
  if (dynamic_) ::operator delete(dynamic_, kAlignment);
  dynamic_ = nullptr;
  for (const SharedArray& a : shared_) ::operator delete(a.data, kAlignment);
  shared_.clear();
}

void* Block::shared_array(const void* tag, std::size_t bytes) {
  const Bookkeeping hidden;  // whichever thread comes first has not written to the array
  std::size_t all = bytes;
  for (SharedArray& a : shared_) {
    all += a.bytes;
    if (a.tag != tag) continue;
    if (a.block != sequence_) std::memset(a.data, kPoison, bytes);
    a.block = sequence_;
    return a.data;
  }
  if (all > kStaticLimit) fail("a kernel's __shared__ arrays exceed 48 KiB");
  if (all + grid_.smem > kSharedLimit) fail("a block's shared memory exceeds 227 KiB");
  auto* data = static_cast<unsigned char*>(::operator new(bytes, kAlignment));
  std::memset(data, kPoison, bytes);
  shared_.push_back({tag, bytes, sequence_, data});
  return data;
}

bool Block::in_shared(const void* p, std::size_t bytes) const {
  const auto* first = static_cast<const unsigned char*>(p);
  auto within = [&](const unsigned char* data, std::size_t size) {
    return data && first >= data && first + bytes <= data + size;
  };
  return within(dynamic_, grid_.smem) ||
         std::ranges::any_of(shared_, [&](const auto& a) { return within(a.data, a.bytes); });
}

void* dynamic_shared_base() { return Block::current().dynamic_shared(); }

void* shared_array(const void* tag, std::size_t bytes) {
  return Block::current().shared_array(tag, bytes);
}

// The bytes land only when the issuing thread waits for their group: until then they are NaN, so
// that a missing wait is seen every time.
void cp_async(void* dst, const void* src, int bytes, bool pred, Site site) {
  const Frame frame(__builtin_return_address(0));
  Block& block = Block::current();
  Lane& me = block.lane();
  me.site = site;
  if (!aligned16(dst) || (pred && !aligned16(src)))
    block.fail("cp.async needs addresses that are multiples of 16");
  if (!block.in_shared(dst, static_cast<std::size_t>(bytes)))
    block.fail("cp.async writes outside of the block's shared memory");
  writes(dst, static_cast<std::size_t>(bytes));
  std::memset(dst, kPoison, static_cast<std::size_t>(bytes));
  me.copies.push_back({dst, src, bytes, pred, me.copy_groups});
}

void cp_async_commit() { ++Block::current().lane().copy_groups; }

void cp_async_wait(int keep) {
  const Frame frame(__builtin_return_address(0));
  Lane& me = Block::current().lane();
  std::size_t landed = 0;
  for (const Copy& c : me.copies) {
    if (c.group + static_cast<unsigned>(keep) >= me.copy_groups) break;
    const auto bytes = static_cast<std::size_t>(c.bytes);
    ++landed;
    writes(c.dst, bytes);
    if (!c.pred) {
      std::memset(c.dst, 0, bytes);
      continue;
    }
    reads(c.src, bytes);
    std::memcpy(c.dst, c.src, bytes);
  }
  me.copies.erase(me.copies.begin(), me.copies.begin() + static_cast<std::ptrdiff_t>(landed));
}
}  // namespace emu
