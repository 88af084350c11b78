// SPDX-License-Identifier: Apache-2.0
#include "parallel/units.h"

#include <algorithm>
#include <numeric>

#include "base/check.h"

namespace cohort {
namespace {

// An activation block: int8 activations have one scale for so many columns.
constexpr int64_t kActivationBlock = 32;

// The fewest KV heads, dividing all, whose o columns are whole blocks; 0 if not even all are.
int64_t kv_heads_per_unit(const ModelShape& shape) {
  const int64_t columns_per_kv_head = shape.heads / shape.kv_heads * shape.head_dim;
  for (int64_t n = 1; n <= shape.kv_heads; n++)
    if (shape.kv_heads % n == 0 && n * columns_per_kv_head % shape.o_block == 0) return n;
  return 0;
}

// Units should be many enough to be shared out evenly and few enough that partial sums (one vector
// for every subtree that a rank owns) stay small; a power of two gives whole subtrees to 2, 4, 8
// ranks.
int64_t ffn_units(int64_t blocks) {
  const int64_t power = std::min<int64_t>(blocks & -blocks, 32);
  if (power >= 8) return power;
  for (int64_t n = std::min<int64_t>(blocks, 64); n > 1; n--)
    if (blocks % n == 0) return n;
  return 1;
}

// Panels have 16 rows; large tables are cut more coarsely, for whole cache lines of logits.
int64_t vocab_rows(int64_t vocab) { return vocab >= 64 * 64 ? 64 : 16; }

Status check_tp(const ModelUnits& units, const Layout& layout) {
  const int most = std::min({units.attention, units.ffn, units.vocab});
  if (layout.tp >= 1 && layout.tp <= most) return {};
  return invalid_argument(
      concat("tensor parallelism of ", layout.tp, " is not possible for this model: it has ",
             units.attention, " attention units (", units.kv_heads_per_unit, " KV heads each), ",
             units.ffn, " feed-forward units and ", units.vocab,
             " vocabulary units, and every rank needs one of each. Possible sizes: 1 to ", most,
             "; more ranks can be used as pipeline stages or as further replicas"));
}

Status check_stages(const ModelUnits& units, const Layout& layout) {
  if (layout.pp < 1 || layout.pp > units.layers)
    return invalid_argument(concat("the ", units.layers,
                                   " layers of this model cannot be cut into ", layout.pp,
                                   " pipeline stages. Possible: 1 to ", units.layers));
  if (layout.stage_layers.empty()) return {};
  const auto& counts = layout.stage_layers;
  const bool positive = std::all_of(counts.begin(), counts.end(), [](int n) { return n > 0; });
  const int64_t sum = std::accumulate(counts.begin(), counts.end(), int64_t(0));
  if (int(counts.size()) == layout.pp && positive && sum == units.layers) return {};
  return invalid_argument(concat("layers per stage must be ", layout.pp,
                                 " positive numbers that add up to ", units.layers));
}

Status check_shares(const Layout& layout) {
  const auto& shares = layout.shares;
  if (shares.empty()) return {};
  const bool positive = std::all_of(shares.begin(), shares.end(), [](int n) { return n > 0; });
  if (int(shares.size()) == layout.tp && positive) return {};
  return invalid_argument(concat("shares must be ", layout.tp,
                                 " positive numbers, one for each tensor-parallel rank; there are ",
                                 shares.size()));
}

std::vector<UnitRange> stage_ranges(int layers, const Layout& layout) {
  if (layout.stage_layers.empty()) return shard(layers, std::vector<int>(size_t(layout.pp), 1));
  std::vector<UnitRange> ranges;
  for (int count : layout.stage_layers) {
    const int begin = ranges.empty() ? 0 : ranges.back().end;
    ranges.push_back({begin, begin + count});
  }
  return ranges;
}

}  // namespace

int64_t column_block(DType dtype) {
  return is_quantized(dtype) ? std::max<int64_t>(kActivationBlock, info(dtype).block_elements) : 1;
}

Result<ModelUnits> model_units(const ModelShape& shape) {
  if (shape.layers < 1 || shape.kv_heads < 1 || shape.heads < 1 || shape.head_dim < 1 ||
      shape.ffn < 1 || shape.vocab < 1 || shape.heads % shape.kv_heads != 0)
    return invalid_argument(
        "the model's shape is not usable: every count must be positive and the "
        "KV heads must divide the heads");
  const int64_t per_unit = kv_heads_per_unit(shape);
  if (per_unit == 0)
    return invalid_argument(concat("the columns of the attention output (", shape.heads,
                                   " heads of ", shape.head_dim, ") are not whole blocks of ",
                                   shape.o_block));
  const int64_t down_block = shape.ffn % kActivationBlock == 0
                                 ? std::max(shape.down_block, kActivationBlock)
                                 : shape.down_block;
  if (shape.ffn % down_block != 0)
    return invalid_argument(concat("the feed-forward width ", shape.ffn,
                                   " is not a whole number of blocks of ", down_block));
  const int64_t ffn = ffn_units(shape.ffn / down_block);
  const int64_t rows = vocab_rows(shape.vocab);
  return ModelUnits{.attention = int(shape.kv_heads / per_unit),
                    .kv_heads_per_unit = int(per_unit),
                    .ffn = int(ffn),
                    .ffn_columns = shape.ffn / ffn,
                    .vocab = int((shape.vocab + rows - 1) / rows),
                    .vocab_rows = rows,
                    .layers = int(shape.layers)};
}

Result<Partition> partition(const ModelShape& shape, const Layout& layout) {
  COHORT_ASSIGN_OR_RETURN(const ModelUnits units, model_units(shape));
  COHORT_RETURN_IF_ERROR(check_tp(units, layout));
  COHORT_RETURN_IF_ERROR(check_shares(layout));
  COHORT_RETURN_IF_ERROR(check_stages(units, layout));
  const std::vector<int> weights =
      layout.shares.empty() ? std::vector<int>(size_t(layout.tp), 1) : layout.shares;
  return Partition{.units = units,
                   .attention = shard(units.attention, weights),
                   .ffn = shard(units.ffn, weights),
                   .vocab = shard(units.vocab, weights),
                   .layers = stage_ranges(units.layers, layout)};
}

}  // namespace cohort
