// SPDX-License-Identifier: Apache-2.0
// What a unit of a model is: the smallest part that one rank holds whole. Units follow from the
// model alone, never from the layout, because row-parallel sums follow the tree over units
// (base/unit_tree.h): the same units, the same bits, on any number of ranks.
#pragma once
#include <cstdint>
#include <vector>

#include "base/dtype.h"
#include "base/status.h"
#include "base/unit_tree.h"
#include "parallel/mesh.h"
#include "parallel/shard.h"

namespace cohort {

// What of a model decides its units.
struct ModelShape {
  int64_t layers = 0;
  int64_t heads = 0, kv_heads = 0, head_dim = 0;
  int64_t ffn = 0;         // of dense layers; 0: the model has none
  int64_t shared_ffn = 0;  // of shared experts; 0: none
  int64_t experts = 0;     // routed, of a layer; 0: none
  // Latent attention: keys and values of a head are made where the head is, so that a unit is a
  // number of query heads. value_dim: columns of `o` of a head.
  bool latent = false;
  int64_t value_dim = 0;
  // Queries and keys are normed over all heads: a unit has a part of its KV head's columns, too,
  // over which their squares are added up.
  bool norms_rows = false;
  int64_t vocab = 0;
  // Columns that cannot be parted in the row-parallel matrices, over all layers: 32 for quantised
  // weights (an activation block), 256 for K-quants, 1 for plain types.
  int64_t o_block = 1, down_block = 1, shared_down_block = 1;
};
// The columns of one dtype that cannot be parted.
int64_t column_block(DType dtype);

struct ModelUnits {
  // Units of heads_per_unit query heads: of whole KV heads, or where those are few, an equal part
  // of the query heads of one.
  int attention = 0;
  int heads_per_unit = 0;
  int group = 1;  // query heads of a KV head; 1 where attention is latent
  int ffn = 0;    // units of ffn_columns columns of `down`
  int64_t ffn_columns = 0;
  int shared_ffn = 0;  // units of the shared expert
  int64_t shared_ffn_columns = 0;
  int experts = 0;  // a unit is an expert
  int vocab = 0;    // units of vocab_rows rows of the table; the last may be narrower
  int64_t vocab_rows = 0;
  int layers = 0;  // a stage holds whole layers
};
Result<ModelUnits> model_units(const ModelShape& shape);

// The query heads of some attention units, and the KV heads that these read. A KV head whose query
// heads lie on several ranks is on all of them, each of which makes, keeps and reads it for itself.
struct HeadRanges {
  UnitRange query, kv;
};
HeadRanges heads_of(const ModelUnits& units, UnitRange attention);

// Who has what. Index: tp rank; for layers: stage.
struct Partition {
  ModelUnits units;
  std::vector<UnitRange> attention, ffn, shared_ffn, vocab, layers;
  // Experts of a layer. expert_columns[tp]: of all ranks of a stage with this tp index together;
  // experts[tp * dp_size + dp]: of one of them. Both ascending, without gap or overlap.
  std::vector<UnitRange> expert_columns, experts;
};
// INVALID_ARGUMENT, saying what is possible, where a rank would be left without a unit.
Result<Partition> partition(const ModelShape& shape, const Layout& layout);

}  // namespace cohort
