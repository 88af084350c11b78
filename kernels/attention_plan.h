// SPDX-License-Identifier: Apache-2.0
// How a step's attention is cut into items for the threads.
#pragma once
#include <atomic>
#include <memory>
#include <vector>

#include "kernels/attention_batch.h"
#include "kernels/cpu/attention_job.h"

namespace cohort {

struct AttentionBatch::Plan {
  // Row i of all entries' rows, for ops that work row by row.
  struct Row {
    int32_t entry, index;
  };

  AttentionShape shape;
  std::vector<Row> rows;
  std::vector<AttentionItem> items;  // largest first
  std::vector<AttentionSharer> sharers;
  std::vector<AttentionMerge> merges;
  std::unique_ptr<std::atomic<int>[]> missing;  // pieces of each merge that are not done
  std::unique_ptr<float[]> partials;            // [row][stride], rows of all pieces
  std::atomic<size_t> next{0};

  void reset();  // before every use
};

// Fills in items, sharers, merges, missing and partials, for a shape that is known.
void cut_items(AttentionBatch::Plan& plan, const KvGeometry& geometry,
               const std::vector<AttentionEntry>& entries, int threads);

}  // namespace cohort
