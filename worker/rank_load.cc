// SPDX-License-Identifier: Apache-2.0
// How a rank comes to be: check, agree, then read.
#include <algorithm>
#include <charconv>
#include <limits>
#include <new>
#include <utility>

#include "base/log.h"
#include "worker/rank.h"
#include "worker/token_route.h"

namespace cohort {
namespace {

// Everybody's answer to the same question, or the first failure of any rank, for all alike: a rank
// that cannot go on must not leave the others waiting for it.
Result<std::vector<std::string>> agree(World& world, const Result<std::string>& mine,
                                       Duration timeout) {
  const std::string text = mine.ok() ? "+" + mine.value() : "-" + mine.status().message();
  COHORT_ASSIGN_OR_RETURN(auto all, world.exchange(text, timeout));
  if (!mine.ok()) return mine.status();
  for (size_t r = 0; r < all.size(); r++) {
    if (all[r].empty() || all[r].front() != '+')
      return failed_precondition(
          concat("rank ", r, " cannot start: ", all[r].empty() ? all[r] : all[r].substr(1)));
    all[r].erase(0, 1);
  }
  return all;
}

Status check_options(const ReplicaOptions& options, int world_size) {
  const StepLimits& limits = options.limits;
  if (options.layout.ranks() != world_size)
    return invalid_argument(concat("the layout ", to_string(options.layout), " needs ",
                                   options.layout.ranks(), " ranks; ", world_size,
                                   " were started"));
  if (options.threads < 1) return invalid_argument("a rank needs at least 1 thread");
  if (!supported(options.isa))
    return invalid_argument(concat("this processor has no ", name(options.isa)));
  if (limits.max_slots < 1 || limits.max_rows < 1 || limits.max_context < 1)
    return invalid_argument("the limits on slots, rows and context must be at least 1");
  if (options.layout.ranks() > 1 && limits.max_slots > TokenRoute::kMostTokens)
    return invalid_argument(concat("a replica of several ranks runs at most ",
                                   TokenRoute::kMostTokens, " sequences at once, not ",
                                   limits.max_slots, ": lower --max-batch"));
  const DType kv = options.kv_dtype;
  if (kv != DType::f32 && kv != DType::f16 && kv != DType::bf16)
    return invalid_argument(concat("the KV cache holds f32, f16 or bf16, not ", name(kv)));
  return {};
}

}  // namespace

class RankLoader {
 public:
  RankLoader(World& world, Checkpoint& checkpoint, const ReplicaOptions& options)
      : world_(world), checkpoint_(checkpoint), options_(options), rank_(new Rank) {}

  Result<std::unique_ptr<Rank>> load(const LoadProgress& progress) {
    COHORT_RETURN_IF_ERROR(meet());
    COHORT_RETURN_IF_ERROR(size_pool());
    COHORT_RETURN_IF_ERROR(make_groups());
    const Status filled = fill(progress);
    if (!filled.ok()) rank_->abort(filled);  // nobody need wait for a table from here
    const Result<std::string> mine = filled.ok() ? Result<std::string>(std::string()) : filled;
    COHORT_RETURN_IF_ERROR(agree(world_, mine, options_.load_timeout).status());
    rank_->set_patience(options_.step_timeout);
    return std::move(rank_);
  }

 private:
  // Everything that can be wrong before a weight is read.
  Status prepare() {
    COHORT_RETURN_IF_ERROR(check_options(options_, world_.size()));
    const Layout& layout = options_.layout;
    COHORT_ASSIGN_OR_RETURN(rank_->partition_, partition(shape_of(checkpoint_), layout));
    rank_->config_ = checkpoint_.config();
    rank_->fingerprint_ = checkpoint_.fingerprint();
    rank_->host_ = world_.host();
    rank_->mesh_ = Mesh(layout.tp, layout.pp);
    rank_->rank_ = world_.rank();
    rank_->step_timeout_ = options_.step_timeout;
    rank_->limits_ = options_.limits;
    rank_->limits_.max_context =
        int32_t(std::min<int64_t>(options_.limits.max_context, checkpoint_.config().context));
    rank_->limits_.in_flight = layout.pp + 1;
    return {};
  }

  // The text that must be the same on all ranks.
  std::string identity() const {
    const StepLimits& l = rank_->limits_;
    std::string stages;
    for (const UnitRange& range : rank_->partition_.layers) stages += concat(" ", range.end);
    return concat("model ", rank_->fingerprint_, ", ", to_string(options_.layout), " stages",
                  stages, ", activations ", int(options_.activations), ", KV ", name(kv_dtype()),
                  ", slots ", l.max_slots, ", rows ", l.max_rows, ", context ", l.max_context);
  }

  Status meet() {
    const Status prepared = prepare();
    const Result<std::string> mine =
        prepared.ok() ? Result<std::string>(identity() + "\n" + world_.host()) : prepared;
    COHORT_ASSIGN_OR_RETURN(const auto all, agree(world_, mine, options_.start_timeout));
    for (size_t r = 0; r < all.size(); r++) {
      const size_t cut = all[r].find('\n');
      if (all[r].substr(0, cut) != identity())
        return failed_precondition(concat("rank ", r, " was started differently: it has ",
                                          all[r].substr(0, cut), "; rank ", world_.rank(), " has ",
                                          identity()));
      ranks_on_host_ += all[r].substr(cut + 1) == world_.host();
    }
    return {};
  }

  DType kv_dtype() const {
    return options_.activations == ActivationMode::f32 ? DType::f32 : options_.kv_dtype;
  }

  KvGeometry geometry() const {
    const ModelConfig& config = rank_->config_;
    const int tp = rank_->mesh_.coordinates(world_.rank()).tp;
    const int kv_heads =
        rank_->partition_.attention[size_t(tp)].size() * rank_->partition_.units.kv_heads_per_unit;
    return {.heads = int(kv_heads * (config.heads / config.kv_heads)),
            .kv_heads = kv_heads,
            .dim = int(config.head_dim),
            .dtype = kv_dtype()};
  }

  UnitRange layers() const {
    return rank_->partition_.layers[size_t(rank_->mesh_.coordinates(world_.rank()).pp)];
  }

  void lower_context(int32_t positions) {
    if (world_.rank() == 0)
      log_warning(concat("the KV cache has room for ", positions,
                         " positions: the context is lowered to that from ",
                         rank_->limits_.max_context, "; --kv-memory gives it more room"));
    rank_->limits_.max_context = positions;
  }

  // As many blocks as the rank with the least room can hold.
  Status size_pool() {
    const StepLimits& limits = rank_->limits_;
    const int64_t per_sequence = (limits.max_context + kBlockTokens - 1) / kBlockTokens;
    const int64_t block_bytes = int64_t(geometry().block_bytes()) * layers().size();
    const int64_t blocks = affordable_blocks({.block_bytes = block_bytes,
                                              .kv_memory = options_.kv_memory,
                                              .most_blocks = per_sequence * limits.max_slots,
                                              .host_memory = host_memory_bytes(),
                                              .ranks_on_host = ranks_on_host_});
    Result<std::string> mine = concat(blocks);
    if (blocks < (options_.fit_context ? 1 : per_sequence))
      mine = resource_exhausted(concat("the KV cache has room for ", blocks * kBlockTokens,
                                       " positions, less than one ", "sequence of ",
                                       limits.max_context, " (", per_sequence * block_bytes,
                                       " bytes); give it more memory or lower the context"));
    COHORT_ASSIGN_OR_RETURN(const auto all, agree(world_, mine, options_.start_timeout));
    int32_t least = std::numeric_limits<int32_t>::max();
    for (const std::string& text : all) {
      int32_t n = 0;
      std::from_chars(text.data(), text.data() + text.size(), n);
      least = std::min(least, n);
    }
    rank_->limits_.blocks = least;
    if (least < per_sequence) lower_context(least * kBlockTokens);
    return {};
  }

  Status make_groups() {
    const Mesh& mesh = rank_->mesh_;
    const Coordinates at = mesh.coordinates(world_.rank());
    std::vector<int> everyone;
    for (int r = 0; r < mesh.ranks(); r++) everyone.push_back(r);
    COHORT_ASSIGN_OR_RETURN(rank_->tp_, world_.group(mesh.stage(at.pp), "tp"));
    COHORT_ASSIGN_OR_RETURN(rank_->pp_, world_.group(mesh.column(at.tp), "pp"));
    COHORT_ASSIGN_OR_RETURN(rank_->world_, world_.group(everyone, "world"));
    rank_->set_patience(options_.load_timeout);
    return {};
  }

  // All that takes memory.
  Status fill(const LoadProgress& progress) {
    try {
      COHORT_RETURN_IF_ERROR(read_weights(progress));
      build();
      return {};
    } catch (const std::bad_alloc&) {
      return resource_exhausted(
          "there is no memory left for weights and KV cache; use more ranks or a smaller cache");
    }
  }

  Status read_weights(const LoadProgress& progress) {
    const Coordinates at = rank_->mesh_.coordinates(world_.rank());
    const Partition& partition = rank_->partition_;
    rank_->stream_ = std::make_unique<Stream>(options_.threads, options_.isa);
    const WeightShard shard{.units = partition.units,
                            .attention = partition.attention[size_t(at.tp)],
                            .ffn = partition.ffn[size_t(at.tp)],
                            .vocab = partition.vocab[size_t(at.tp)],
                            .layers = layers(),
                            .first_stage = at.pp == 0,
                            .last_stage = at.pp + 1 == rank_->mesh_.pp()};
    COHORT_ASSIGN_OR_RETURN(
        rank_->weights_, load_weights(checkpoint_, shard, *rank_->stream_, *rank_->pp_, progress));
    return {};
  }

  void build() {
    rank_->pool_ = std::make_unique<KvPool>(geometry(), layers().size(), rank_->limits_.blocks);
    rank_->runner_ = std::make_unique<StepRunner>(StageParts{.config = rank_->config_,
                                                             .partition = rank_->partition_,
                                                             .mesh = rank_->mesh_,
                                                             .rank = rank_->rank_,
                                                             .limits = rank_->limits_,
                                                             .activations = options_.activations,
                                                             .weights = *rank_->weights_,
                                                             .pool = *rank_->pool_,
                                                             .stream = *rank_->stream_,
                                                             .tp = *rank_->tp_,
                                                             .pp = *rank_->pp_,
                                                             .world = *rank_->world_});
  }

  World& world_;
  Checkpoint& checkpoint_;
  const ReplicaOptions& options_;
  std::unique_ptr<Rank> rank_;
  int ranks_on_host_ = 0;
};

Result<std::unique_ptr<Rank>> Rank::load(World& world, Checkpoint& checkpoint,
                                         const ReplicaOptions& options,
                                         const LoadProgress& progress) {
  return RankLoader(world, checkpoint, options).load(progress);
}

Result<std::unique_ptr<Rank>> Rank::load(World& world, const ReplicaOptions& options,
                                         const LoadProgress& progress) {
  auto checkpoint = Checkpoint::open(options.model);
  if (checkpoint.ok()) return load(world, **checkpoint, options, progress);
  const auto all = agree(world, checkpoint.status(), options.start_timeout);
  return all.ok() ? checkpoint.status() : all.status();
}

}  // namespace cohort
