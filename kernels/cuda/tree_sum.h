// SPDX-License-Identifier: Apache-2.0
// Additions in the order of the tree over units (base/unit_tree.h, docs/arithmetic.md section 3):
// the same bits as TreePlan::add_up. Both functions only enqueue.
#pragma once
#include <cuda_runtime_api.h>

#include <cstdint>
#include <span>

#include "base/stream.h"
#include "base/unit_tree.h"

namespace cohort::cuda {

// out [count] = the sum of pieces [plan.total_pieces()][count]; zeros where there are none. They
// may not overlap. At most kMostPieces pieces.
inline constexpr int kMostPieces = 1024;
void add_pieces(cudaStream_t stream, const TreePlan& plan, const float* pieces, float* out,
                int64_t count);

// out [piece][count] = the sum of the piece's units, from units [unit][count], of which the first
// is unit pieces[0].begin. Each piece is a tree of its own, over its units counted from its first.
// units and out may not overlap. On the stream's compute stream.
void add_units(Stream& stream, const float* units, float* out, int64_t count,
               std::span<const UnitRange> pieces);

}  // namespace cohort::cuda
