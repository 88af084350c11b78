// SPDX-License-Identifier: Apache-2.0
// The tokens of a row in order of likelihood, by one block: the next kChunk of them at most are
// selected by the digits of their keys (radix selection), gathered and sorted in shared memory.
// Only integers decide, so no order of threads shows.
#pragma once
#include "kernels/cuda/sample_device.h"

namespace cohort::cuda {

constexpr int kChunk = 2048, kDigits = 2048;

struct Candidates {
  unsigned long long keys[kChunk];  // ascending
  union {
    int histogram[kDigits];
    float weights[kChunk];
  };
  unsigned long long bound, loaded_after;
  int count, taken, gathered;
  bool loaded, complete, go_on;
};

struct RowView {
  const float* logits;
  int vocab;
  Weighing weighing;
  float lowest;  // exponent: what has a lower one is passed over
};

// Keys in (after, bound) that are worth looking at, to visit(key). A row is read in 16 bytes where
// it can be.
template <class Visit>
GPU_FN void visit_keys(const RowView& row, unsigned long long after, Visit visit) {
  const int step = static_cast<int>(blockDim.x) * 4;
  const auto take = [&](const Quad& q, int i) {
#pragma unroll
    for (int j = 0; j < 4; j++) {
      if (i + j >= row.vocab) continue;
      const unsigned long long key = order_key(q.at[j], i + j);
      if (key > after && row.weighing.exponent(q.at[j]) >= row.lowest) visit(key);
    }
  };
  int i = static_cast<int>(threadIdx.x) * 4;
  if (row.vocab % 4 == 0) {
#pragma unroll 4
    for (; i < row.vocab; i += step) take(load_quad<true>(row.logits, i, row.vocab), i);
  } else {
#pragma unroll 1
    for (; i < row.vocab; i += step) take(load_quad<false>(row.logits, i, row.vocab), i);
  }
}

// The first digit whose keys, with all before it, do not fit the chunk; `taken` becomes the number
// of those before it. kDigits if all fit. By the first warp; every lane returns the digit.
GPU_FN int find_overflow(Candidates& c) {
  constexpr int kEach = kDigits / 32;
  const int lane = static_cast<int>(threadIdx.x);
  int own = 0;
  // Each lane begins elsewhere, else all would meet in one bank.
#pragma unroll 4
  for (int i = 0; i < kEach; i++) own += c.histogram[lane * kEach + (i + lane) % kEach];
  int upto = own;
  for (int lanes = 1; lanes < 32; lanes *= 2) {
    const int below = __shfl_up_sync(0xffffffffu, upto, static_cast<unsigned>(lanes));
    if (lane >= lanes) upto += below;
  }
  const int taken = c.taken;
  const unsigned over = __ballot_sync(0xffffffffu, taken + upto > kChunk);
  const int owner = over == 0 ? 31 : __ffs(static_cast<int>(over)) - 1;
  int sum = taken + upto - own, digit = lane * kEach;
#pragma unroll 1
  while (digit < (lane + 1) * kEach && sum + c.histogram[digit] <= kChunk)
    sum += c.histogram[digit++];
  sum = __shfl_sync(0xffffffffu, sum, owner);
  digit = __shfl_sync(0xffffffffu, digit, owner);
  __syncwarp();  // all have read what is overwritten
  if (lane == 0) c.taken = sum;
  return digit;
}

// Key digits, most significant first: 32 bits of the logit in three, 20 of the token in two.
GPU_FN int digit_shift(int level) {
  return level == 0 ? 53 : level == 1 ? 42 : level == 2 ? 32 : level == 3 ? 9 : 0;
}
GPU_FN unsigned digit_mask(int level) { return level == 2 ? 1023 : level == 4 ? 511 : 2047; }

// Finds c.bound such that as many as c.taken <= kChunk keys lie in (after, bound): all of them, or
// at least `need` <= kChunk.
GPU_FN void select_bound(Candidates& c, const RowView& row, unsigned long long after, int need) {
  const int thread = static_cast<int>(threadIdx.x);
  if (thread == 0) {
    c.taken = 0;
    c.bound = 0;
    c.complete = false;
  }
#pragma unroll 1
  for (int level = 0; level < 5; level++) {
    for (int i = thread; i < kDigits; i += static_cast<int>(blockDim.x)) c.histogram[i] = 0;
    __syncthreads();
    const int shift = digit_shift(level), above = level == 0 ? 63 : digit_shift(level - 1);
    const unsigned mask = digit_mask(level);
    const unsigned long long prefix = c.bound >> above;
    visit_keys(row, after, [&](unsigned long long key) {
      if (level == 0 || key >> above == prefix)
        atomicAdd(&c.histogram[static_cast<unsigned>(key >> shift) & mask], 1);
    });
    __syncthreads();
    if (thread < 32) {
      const int digit = find_overflow(c);
      if (thread == 0 && digit == kDigits) {  // at level 0 alone: later, one is known not to fit
        c.complete = true;
        c.bound = ~0ull;
      } else if (thread == 0) {
        c.bound += static_cast<unsigned long long>(digit) << shift;
      }
    }
    __syncthreads();
    if (c.complete || c.taken >= need) break;
  }
}

// Sorts the first `count` keys, a power of two.
GPU_FN void sort_keys(unsigned long long* keys, int count) {
#pragma unroll 1
  for (int size = 2; size <= count; size *= 2)
#pragma unroll 1
    for (int apart = size / 2; apart > 0; apart /= 2) {
      for (int i = static_cast<int>(threadIdx.x); i < count / 2;
           i += static_cast<int>(blockDim.x)) {
        const int low = i / apart * (2 * apart) + i % apart;
        const unsigned long long a = keys[low], b = keys[low + apart];
        if ((a > b) == ((low & size) == 0)) {
          keys[low] = b;
          keys[low + apart] = a;
        }
      }
      __syncthreads();
    }
}

// Loads the most likely tokens after key `after`: at least `need` <= kChunk, or all that there are.
GPU_FN void load_chunk(Candidates& c, const RowView& row, unsigned long long after, int need) {
  const int thread = static_cast<int>(threadIdx.x), threads = static_cast<int>(blockDim.x);
  if (c.loaded && c.loaded_after == after) return;
  __syncthreads();
  select_bound(c, row, after, need);
  int padded = 1;
  while (padded < c.taken) padded *= 2;
  for (int i = c.taken + thread; i < padded; i += threads) c.keys[i] = ~0ull;
  if (thread == 0) c.gathered = 0;
  __syncthreads();
  const unsigned long long bound = c.bound;
  visit_keys(row, after, [&](unsigned long long key) {
    if (key < bound) c.keys[atomicAdd(&c.gathered, 1)] = key;
  });
  __syncthreads();
  sort_keys(c.keys, padded);
  for (int i = thread; i < c.taken; i += threads) c.weights[i] = row.weighing(logit_of(c.keys[i]));
  if (thread == 0) {
    c.count = c.taken;
    c.loaded = true;
    c.loaded_after = after;
  }
  __syncthreads();
}

// On thread 0: visit(key, weight) for the first `limit` tokens in order of likelihood, until it
// returns false. All threads of the block call it. c.loaded is false before the first time.
template <class Visit>
GPU_FN void visit_in_order(Candidates& c, const RowView& row, int limit, Visit visit) {
  constexpr int kFirst = 256;  // few tokens usually are enough
  unsigned long long after = 0;
  for (int seen = 0; seen < limit;) {
    const int most = seen == 0 && limit > kChunk ? kFirst : kChunk;
    load_chunk(c, row, after, limit - seen < most ? limit - seen : most);
    const int count = c.count < limit - seen ? c.count : limit - seen;
    if (threadIdx.x == 0) {
      bool more = !c.complete;
#pragma unroll 2
      for (int i = 0; i < count; i++)
        if (!visit(c.keys[i], c.weights[i])) {
          more = false;
          break;
        }
      c.go_on = more;
    }
    __syncthreads();
    const bool go_on = c.go_on;
    seen += count;
    if (go_on) after = c.keys[c.count - 1];
    __syncthreads();  // the next chunk may be this one, and then nothing else waits
    if (!go_on) break;
  }
}

}  // namespace cohort::cuda
