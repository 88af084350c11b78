// SPDX-License-Identifier: Apache-2.0
#include "parallel/units.h"

#include <algorithm>
#include <numeric>

#include "base/check.h"

namespace cohort {
namespace {

// An activation block: int8 activations have one scale for so many columns.
constexpr int64_t kActivationBlock = 32;

// Units should be many enough to be shared out evenly and few enough that partial sums (one vector
// for every subtree that a rank owns) stay small; a power of two gives whole subtrees to 2, 4, 8
// ranks.
constexpr int64_t kFewUnits = 8;

// Whether so many heads have whole blocks of o's columns.
bool whole_blocks(const ModelShape& shape, int64_t heads) {
  return heads * (shape.latent ? shape.value_dim : shape.head_dim) % shape.o_block == 0;
}

// Into how many units the query heads of each KV head are cut, where whole KV heads are units.
int64_t parts_of_group(const ModelShape& shape) {
  const int64_t group = shape.heads / shape.kv_heads;
  int64_t best = 1;
  for (int64_t n = 2; n <= group && shape.kv_heads * best < kFewUnits; n++)
    if (group % n == 0 && whole_blocks(shape, group / n) &&
        (!shape.norms_rows || shape.head_dim % n == 0))
      best = n;
  return best;
}

// Query heads of a unit; 0 if not even all make whole blocks.
int64_t heads_per_unit(const ModelShape& shape) {
  const int64_t group = shape.heads / shape.kv_heads;
  if (whole_blocks(shape, group)) return group / parts_of_group(shape);
  for (int64_t n = 2; n <= shape.kv_heads; n++)
    if (shape.kv_heads % n == 0 && whole_blocks(shape, n * group)) return n * group;
  return 0;
}

int64_t ffn_units(int64_t blocks) {
  const int64_t power = std::min<int64_t>(blocks & -blocks, 32);
  if (power >= kFewUnits) return power;
  for (int64_t n = std::min<int64_t>(blocks, 64); n > 1; n--)
    if (blocks % n == 0) return n;
  return 1;
}

// A feed-forward's width, cut. None where there is none.
struct FfnUnits {
  int units = 0;
  int64_t columns = 0;
};
Result<FfnUnits> cut_ffn(int64_t width, int64_t block) {
  if (width == 0) return FfnUnits{};
  // Whole activation blocks, where that leaves enough of them to share out.
  if (width % kActivationBlock == 0 && width / kActivationBlock >= kFewUnits)
    block = std::max(block, kActivationBlock);
  if (width % block != 0)
    return invalid_argument(
        concat("the feed-forward width ", width, " is not a whole number of blocks of ", block));
  const int64_t units = ffn_units(width / block);
  return FfnUnits{int(units), width / units};
}

// Panels have 16 rows. Large tables are cut where blocks of tokens begin, over which sampling adds
// weights up, so that no block lies on two ranks.
int64_t vocab_rows(int64_t vocab) {
  constexpr int64_t kPanel = 16, kTokenBlock = 256;
  return vocab >= 16 * kTokenBlock ? kTokenBlock : kPanel;
}

Status check_tp(const ModelUnits& units, const Layout& layout) {
  int most = std::min(units.attention, units.vocab);
  for (const int ffn : {units.ffn, units.shared_ffn})
    if (ffn > 0) most = std::min(most, ffn);
  if (layout.tp >= 1 && layout.tp <= most) return {};
  return invalid_argument(concat(
      "tensor parallelism of ", layout.tp, " is not possible for this model: it has ",
      units.attention, " attention units (", units.heads_per_unit,
      units.heads_per_unit == 1 ? " query head each), " : " query heads each), ", units.ffn,
      " feed-forward units",
      units.shared_ffn > 0 ? concat(", ", units.shared_ffn, " of shared experts") : "", " and ",
      units.vocab, " vocabulary units, and every rank needs one of each. Possible sizes: 1 to ",
      most, "; more ranks can be used as pipeline stages or as further replicas",
      units.experts > 0 ? ", or for data-parallel attention" : ""));
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

Status check_experts(const ModelUnits& units, const Layout& layout) {
  const auto& shares = layout.expert_shares;
  if (layout.dp < 1) return invalid_argument("data parallelism must be at least 1");
  if (units.experts == 0 && (layout.dp > 1 || !shares.empty()))
    return invalid_argument(
        "this model has no experts: data-parallel attention and expert shares are for models that "
        "have; use further replicas instead");
  if (shares.empty()) return {};
  const bool usable = std::all_of(shares.begin(), shares.end(), [](int n) { return n >= 0; }) &&
                      std::any_of(shares.begin(), shares.end(), [](int n) { return n > 0; });
  if (int(shares.size()) == layout.ep() && usable) return {};
  return invalid_argument(concat("expert shares must be ", layout.ep(),
                                 " numbers, not all zero, one for each rank of a stage; there are ",
                                 shares.size()));
}

// Experts in proportion to the shares, in the order of ranks (tp, dp): a rank may have none.
std::vector<UnitRange> expert_ranges(int experts, const Layout& layout) {
  const size_t ranks = size_t(layout.ep());
  std::vector<int64_t> weight(ranks, 1);  // in the order of rank numbers (dp, tp)
  if (!layout.expert_shares.empty())
    weight.assign(layout.expert_shares.begin(), layout.expert_shares.end());
  const int64_t total = std::accumulate(weight.begin(), weight.end(), int64_t(0));
  std::vector<UnitRange> ranges;
  int64_t before = 0;
  for (int tp = 0; tp < layout.tp; tp++)
    for (int dp = 0; dp < layout.dp; dp++) {
      const int begin = ranges.empty() ? 0 : ranges.back().end;
      before += weight[size_t(dp * layout.tp + tp)];
      ranges.push_back({begin, int((experts * before + total / 2) / total)});
    }
  return ranges;
}

std::vector<UnitRange> stage_ranges(int layers, const Layout& layout) {
  // Of two stages the earlier has the odd layer: the last one has the head.
  if (layout.stage_layers.empty())
    return shard(layers, std::vector<int>(size_t(layout.pp), 1), Halves::up);
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
      shape.vocab < 1 || shape.heads % shape.kv_heads != 0 || shape.ffn < 0 ||
      shape.shared_ffn < 0 || shape.experts < 0 || (shape.ffn == 0 && shape.experts == 0))
    return invalid_argument(
        "the model's shape is not usable: every count must be positive and the "
        "KV heads must divide the heads");
  const int64_t per_unit = heads_per_unit(shape);
  if (per_unit == 0)
    return invalid_argument(concat("the columns of the attention output (", shape.heads,
                                   " heads of ", shape.head_dim, ") are not whole blocks of ",
                                   shape.o_block));
  COHORT_ASSIGN_OR_RETURN(const FfnUnits ffn, cut_ffn(shape.ffn, shape.down_block));
  COHORT_ASSIGN_OR_RETURN(const FfnUnits shared,
                          cut_ffn(shape.shared_ffn, shape.shared_down_block));
  const int64_t rows = vocab_rows(shape.vocab);
  return ModelUnits{.attention = int(shape.heads / per_unit),
                    .heads_per_unit = int(per_unit),
                    .group = int(shape.heads / shape.kv_heads),
                    .ffn = ffn.units,
                    .ffn_columns = ffn.columns,
                    .shared_ffn = shared.units,
                    .shared_ffn_columns = shared.columns,
                    .experts = int(shape.experts),
                    .vocab = int((shape.vocab + rows - 1) / rows),
                    .vocab_rows = rows,
                    .layers = int(shape.layers)};
}

HeadRanges heads_of(const ModelUnits& units, UnitRange attention) {
  const UnitRange query{attention.begin * units.heads_per_unit,
                        attention.end * units.heads_per_unit};
  return {query, {query.begin / units.group, (query.end + units.group - 1) / units.group}};
}

Result<Partition> partition(const ModelShape& shape, const Layout& layout) {
  COHORT_ASSIGN_OR_RETURN(const ModelUnits units, model_units(shape));
  COHORT_RETURN_IF_ERROR(check_tp(units, layout));
  COHORT_RETURN_IF_ERROR(check_shares(layout));
  COHORT_RETURN_IF_ERROR(check_stages(units, layout));
  COHORT_RETURN_IF_ERROR(check_experts(units, layout));
  const std::vector<int> weights =
      layout.shares.empty() ? std::vector<int>(size_t(layout.tp), 1) : layout.shares;
  Partition p{.units = units,
              .attention = shard(units.attention, weights),
              .ffn = shard(units.ffn, weights),
              .shared_ffn = shard(units.shared_ffn, weights),
              .vocab = shard(units.vocab, weights),
              .layers = stage_ranges(units.layers, layout),
              .expert_columns = {},
              .experts = expert_ranges(units.experts, layout)};
  for (int tp = 0; tp < layout.tp; tp++)
    p.expert_columns.push_back(
        {p.experts[size_t(tp * layout.dp)].begin, p.experts[size_t((tp + 1) * layout.dp - 1)].end});
  return p;
}

}  // namespace cohort
