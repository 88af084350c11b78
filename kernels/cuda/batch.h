// SPDX-License-Identifier: Apache-2.0
// One step's rows and their KV blocks as the GPU sees them: arrays of int32 at fixed addresses of
// device memory, filled on the host as one block of bytes and copied in one piece. Kernels of a
// captured step read everything that changes from these arrays: a graph replays with another batch
// without knowing it.
//
// Attention work is cut into items on the host (kernels/cuda/attention_items.h): a range of splits
// of kSplitKeys keys, counted from position 0, for some rows and one KV head. A split's arithmetic
// and the order in which splits are merged follow from the position alone, never from the batch.
#pragma once
#include <cstddef>
#include <cstdint>
#include <span>

#include "kernels/attention_batch.h"
#include "kernels/kv_layout.h"

namespace cohort::cuda {

inline constexpr int kSplitKeys = 128;

// Device addresses; passed to kernels by value.
struct DeviceBatch {
  const int32_t* position;     // [max_rows] of each row; -1: padding, to be left alone
  const int32_t* row_entry;    // [max_rows] which entry a row belongs to
  const int32_t* first_row;    // [max_entries]
  const int32_t* start;        // [max_entries] position of an entry's first row
  const int32_t* count;        // [max_entries] rows of an entry
  const int32_t* first_block;  // [max_entries] of its block ids in `blocks`
  const int32_t* blocks;       // ids of KV blocks, entry after entry, from first_block on
  const int32_t* totals;       // entries, then counts of items; the attention kernels count in it
  const int32_t* items;        // attention work, as kernels/cuda/attention_items.h has it
  int32_t max_items;
  float* partials;  // workspace of the attention kernels: unmerged results
};

struct BatchLimits {
  int32_t max_rows = 0;       // tokens of one step
  int32_t max_entries = 0;    // sequences of one step
  int32_t max_positions = 0;  // of one sequence
};

// Where the arrays lie. Immutable.
class BatchArrays {
 public:
  BatchArrays(const KvGeometry& geometry, const BatchLimits& limits);

  // Of the block of bytes at most.
  size_t bytes() const;
  // Of the workspace that partials points to.
  size_t workspace_bytes() const;
  // Writes the arrays of these entries for a launch of `rows` rows, those beyond the entries' being
  // padding. Returns how many bytes from the beginning are used: only they need be copied.
  size_t fill(std::byte* host, std::span<const AttentionEntry> entries, int64_t rows) const;
  DeviceBatch view(const std::byte* device, void* workspace) const;

 private:
  KvGeometry geometry_;
  BatchLimits limits_;
};

}  // namespace cohort::cuda
