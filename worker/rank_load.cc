// SPDX-License-Identifier: Apache-2.0
// How a rank comes to be: check, agree, then read.
#include <algorithm>
#include <charconv>
#include <cstdio>
#include <limits>
#include <new>
#include <utility>

#include "base/failure.h"
#include "base/log.h"
#include "base/open_device.h"
#include "worker/check_options.h"
#include "worker/device_groups.h"
#include "worker/rank.h"
#include "worker/weight_cache.h"
#include "worker/where.h"

namespace cohort {
namespace {

// Partial sums of all ranks that one ordered sum of a stage gathers at most: of its row-parallel
// products, of its experts, and of the embedding, one per rank.
int64_t most_pieces(const Partition& partition) {
  const TreePlan attention(partition.units.attention, partition.attention);
  const TreePlan ffn(partition.units.ffn, partition.ffn);
  const TreePlan shared(partition.units.shared_ffn, partition.shared_ffn);
  const TreePlan experts(partition.units.experts, partition.expert_columns);
  return std::max({attention.total_pieces(), ffn.total_pieces(), shared.total_pieces(),
                   experts.total_pieces(), attention.ranks()});
}

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

}  // namespace

class RankLoader {
 public:
  RankLoader(World& world, Checkpoint& checkpoint, const ReplicaOptions& options)
      : world_(world), checkpoint_(checkpoint), options_(options), rank_(new Rank) {}

  Result<std::unique_ptr<Rank>> load(const LoadProgress& progress) {
    COHORT_RETURN_IF_ERROR(meet());
    COHORT_RETURN_IF_ERROR(all(open_device()));
    // What a GPU has room for is known when it has its weights; a host's memory is told in advance.
    if (!gpu()) COHORT_RETURN_IF_ERROR(size_pool());
    COHORT_RETURN_IF_ERROR(make_groups());
    COHORT_RETURN_IF_ERROR(all(with_memory([&] { return read_weights(progress); })));
    if (gpu()) COHORT_RETURN_IF_ERROR(size_pool());
    COHORT_RETURN_IF_ERROR(all(with_memory([&] { return build(); })));
    rank_->set_patience(options_.step_timeout);
    return std::move(rank_);
  }

 private:
  bool gpu() const { return options_.gpu.device == DeviceKind::cuda; }

  // A step that this rank took, for all ranks: fails for all if it failed for one.
  Status all(const Status& mine) {
    if (!mine.ok()) rank_->abort(mine);  // nobody need wait for anything from here
    const Result<std::string> text = mine.ok() ? Result<std::string>(std::string()) : mine;
    return agree(world_, text, options_.load_timeout).status();
  }

  // Everything that can be wrong before a device is touched.
  Status prepare() {
    choose_types();
    COHORT_RETURN_IF_ERROR(check_options(options_, world_.size()));
    COHORT_RETURN_IF_ERROR(check_device(options_, checkpoint_.config()));
    const Layout& layout = options_.layout;
    COHORT_ASSIGN_OR_RETURN(rank_->partition_, partition(shape_of(checkpoint_), layout));
    rank_->config_ = checkpoint_.config();
    rank_->fingerprint_ = checkpoint_.fingerprint();
    rank_->arithmetic_ = arithmetic();
    rank_->host_ = world_.host();
    rank_->mesh_ = Mesh(layout.tp, layout.pp, layout.dp);
    rank_->rank_ = world_.rank();
    rank_->step_timeout_ = options_.step_timeout;
    rank_->limits_ = options_.limits;
    rank_->limits_.dp = layout.dp;
    rank_->limits_.max_context =
        int32_t(std::min<int64_t>(options_.limits.max_context, checkpoint_.config().context));
    rank_->limits_.in_flight = layout.pp + 1;
    return {};
  }

  // What was left to us.
  void choose_types() {
    GpuOptions& g = options_.gpu;
    if (!gpu()) return check_bf16();
    if (g.choose_dtype) {
      const WeightInfo* table = checkpoint_.find("embedding");
      g.dtype = table != nullptr && table->dtype == DType::bf16 ? DType::bf16 : DType::f16;
    }
    if (options_.choose_kv_dtype) options_.kv_dtype = g.dtype;
    if (options_.activations == ActivationMode::native && g.dtype == DType::f32)
      options_.activations = ActivationMode::f32;
  }

  // What changes nothing shall not keep replicas apart, nor be silent.
  void check_bf16() {
    if (options_.activations != ActivationMode::bf16) return;
    for (const WeightInfo& weight : checkpoint_.weights())
      if (weight.dtype == DType::bf16 && weight.rows > 1) {
        if (options_.choose_kv_dtype) options_.kv_dtype = DType::bf16;
        return;
      }
    if (options_.kv_dtype == DType::bf16) return;  // attention is enough
    if (world_.rank() == 0)
      log_warning(
          "--activations bf16 changes nothing: this checkpoint has no bf16 weights, and without "
          "--kv-dtype bf16 attention is that of f32");
    options_.activations = ActivationMode::int8;
  }

  std::string arithmetic() const {
    const GpuOptions& g = options_.gpu;
    const char* mode = options_.activations == ActivationMode::f32    ? "f32 activations"
                       : options_.activations == ActivationMode::int8 ? "int8 activations"
                       : options_.activations == ActivationMode::bf16 ? "int8 and bf16 activations"
                                                                      : "weights widened";
    const std::string on =
        gpu() ? concat("on GPUs in ", name(g.dtype), g.deterministic ? ", deterministic" : "", ", ")
              : "";
    // One stage alone has nothing to send.
    const bool compressed = options_.compress_activations && options_.layout.pp > 1;
    return concat(on, mode, ", KV ", kv_dtype() == DType::i8 ? "int8" : name(kv_dtype()),
                  compressed ? concat(", int8 between ", options_.layout.pp, " stages") : "");
  }

  // The text that must be the same on all ranks.
  std::string identity() const {
    const StepLimits& l = rank_->limits_;
    std::string stages;
    for (const UnitRange& range : rank_->partition_.layers) stages += concat(" ", range.end);
    return concat("model ", rank_->fingerprint_, ", ", to_string(options_.layout), " stages",
                  stages, ", ", rank_->arithmetic_, options_.gpu.graphs ? "" : ", no graphs",
                  options_.overlap == Overlap::off ? ", no overlap" : "", ", slots ", l.max_slots,
                  ", rows ", l.max_rows, ", context ", l.max_context);
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
      const bool same_host = all[r].substr(cut + 1) == world_.host();
      ranks_on_host_ += same_host;
      index_on_host_ += same_host && int(r) < world_.rank();
    }
    return {};
  }

  Status open_device() {
    if (!gpu()) {
      if (options_.pin) rank_->pinning_ = Pinning::claim(options_.threads, ranks_on_host_);
      rank_->stream_ = std::make_unique<Stream>(options_.threads, options_.isa);
      rank_->pinning_.pin_pool(rank_->stream_->threads());
      return {};
    }
    const GpuOptions& g = options_.gpu;
    COHORT_ASSIGN_OR_RETURN(device_, open_cuda_device(g.ordinal >= 0 ? g.ordinal : index_on_host_));
    rank_->stream_ = std::make_unique<Stream>(device_, g.dtype, options_.threads, g.deterministic);
    log_info(concat("computes in ", name(g.dtype), " on ", device_->name()));
    return {};
  }

  DType kv_dtype() const {
    return !gpu() && options_.activations == ActivationMode::f32 ? DType::f32 : options_.kv_dtype;
  }

  KvGeometry geometry() const {
    const ModelConfig& config = rank_->config_;
    const bool bf16 = options_.activations == ActivationMode::bf16 && kv_dtype() == DType::bf16;
    const int tp = rank_->mesh_.coordinates(world_.rank()).tp;
    const ModelUnits& units = rank_->partition_.units;
    const auto [query, kv] = heads_of(units, rank_->partition_.attention[size_t(tp)]);
    if (config.latent.kv_rank > 0)
      return {.heads = query.size(),
              .kv_heads = 1,
              .dim = int(config.latent.rope_dim + config.latent.kv_rank),
              .dtype = kv_dtype(),
              .bf16_arithmetic = bf16};
    return {.heads = query.size(),
            .kv_heads = kv.size(),
            .dim = int(config.head_dim),
            .dtype = kv_dtype(),
            .bf16_arithmetic = bf16,
            .group_heads = units.group,
            .skipped_heads = query.begin - kv.begin * units.group};
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

  // What the KV cache of this rank may take unless somebody said.
  int64_t memory_share() const {
    const DeviceMemory memory = rank_->stream_->device().memory();
    if (!gpu()) return memory.total / 4 / std::max(ranks_on_host_, 1);
    // The rest is for the workspace of the largest step and for what captured steps need.
    const ModelConfig& c = rank_->config_;
    const int64_t widest = 4 * (c.hidden + c.ffn) + 4 * c.heads * c.head_dim;
    const int64_t workspace = rank_->limits_.max_rows * widest * int64_t(sizeof(float)) +
                              4 * rank_->limits_.max_slots * c.vocab * int64_t(sizeof(float));
    return memory.free / 10 * 9 - workspace - expert_workspace();
  }

  // Every token goes to all of its experts, and those may all be here.
  int64_t expert_workspace() const {
    const ExpertsConfig& c = rank_->config_.experts;
    const int64_t hidden = rank_->config_.hidden;
    const int64_t per_row = c.per_token * 3 * (c.ffn + hidden) + c.count + 4 * hidden;
    return c.count == 0 ? 0 : rank_->limits_.max_rows * per_row * int64_t(sizeof(float));
  }

  // As many blocks as the rank with the least room can hold.
  Status size_pool() {
    const StepLimits& limits = rank_->limits_;
    const int64_t per_sequence = (limits.max_context + kBlockTokens - 1) / kBlockTokens;
    const int64_t block_bytes = int64_t(geometry().block_bytes()) * layers().size();
    const int64_t blocks = affordable_blocks({.block_bytes = block_bytes,
                                              .kv_memory = options_.kv_memory,
                                              .most_blocks = per_sequence * limits.max_slots,
                                              .share = memory_share()});
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
    COHORT_ASSIGN_OR_RETURN(rank_->tp_, world_.group(mesh.tp_group(at), "tp"));
    COHORT_ASSIGN_OR_RETURN(rank_->dp_, world_.group(mesh.dp_group(at), "dp"));
    COHORT_ASSIGN_OR_RETURN(rank_->pp_, world_.group(mesh.pp_group(at), "pp"));
    COHORT_ASSIGN_OR_RETURN(rank_->world_, world_.group(everyone, "world"));
    rank_->set_patience(options_.load_timeout);
    return gpu() ? all(make_gpu_groups()) : Status();
  }

  Status make_gpu_groups() {
    const int64_t pieces = options_.gpu.deterministic ? most_pieces(rank_->partition_) : 0;
    COHORT_ASSIGN_OR_RETURN(
        DeviceGroups groups,
        make_device_groups(
            device_, *rank_->tp_, *rank_->pp_,
            {.ordered = options_.gpu.deterministic,
             .max_gather_floats = pieces * rank_->limits_.max_rows * rank_->config_.hidden,
             .timeout = options_.start_timeout}));
    rank_->device_tp_ = std::move(groups.tp);
    rank_->device_pp_ = std::move(groups.pp);
    rank_->device_tokens_ = std::move(groups.tokens);
    return {};
  }

  // Whatever takes memory.
  template <class Call>
  Status with_memory(Call call) {
    try {
      return call();
    } catch (const OutOfMemory& full) {
      return full.status();
    } catch (const Failure& failure) {
      return failure.status();
    } catch (const std::bad_alloc&) {
      return resource_exhausted(
          "there is no memory left for weights and KV cache; use more ranks or a smaller cache");
    }
  }

  void log_loaded(double seconds) const {
    const Weights& weights = *rank_->weights_;
    const int64_t bytes = weights.packed_bytes();
    const int64_t cached = weights.store != nullptr ? weights.store->cached_bytes() : 0;
    char text[64];
    std::snprintf(text, sizeof text, "%.1f MB of weights packed in %.3f s", double(bytes) * 1e-6,
                  seconds);
    log_info(text + (cached == 0       ? std::string()
                     : cached == bytes ? ", all from the cache"
                                       : concat(", ", cached, " bytes of them from the cache")));
  }

  Status read_weights(const LoadProgress& progress) {
    const Coordinates at = rank_->mesh_.coordinates(world_.rank());
    const Partition& partition = rank_->partition_;
    const WeightShard shard{.units = partition.units,
                            .attention = partition.attention[size_t(at.tp)],
                            .ffn = partition.ffn[size_t(at.tp)],
                            .shared_ffn = partition.shared_ffn[size_t(at.tp)],
                            .vocab = partition.vocab[size_t(at.tp)],
                            .experts = partition.experts[size_t(at.tp * rank_->mesh_.dp() + at.dp)],
                            .layers = layers(),
                            .first_stage = at.pp == 0,
                            .last_stage = at.pp + 1 == rank_->mesh_.pp()};
    const TimePoint started = std::chrono::steady_clock::now();
    COHORT_ASSIGN_OR_RETURN(
        rank_->weights_,
        load_weights(checkpoint_, shard, *rank_->stream_, *rank_->pp_, progress,
                     weight_cache_folder(options_.weight_cache, checkpoint_.path())));
    log_loaded(seconds(std::chrono::steady_clock::now() - started));
    return {};
  }

  // Opens the checkpoint again where a copy of an expert is wanted, and keeps it open then.
  std::function<Result<ExpertMatrices>(int64_t, int64_t)> expert_loader() const {
    auto open = std::make_shared<std::unique_ptr<Checkpoint>>();
    return [open, model = options_.model, &stream = *rank_->stream_](
               int64_t layer, int64_t expert) -> Result<ExpertMatrices> {
      if (*open == nullptr) {
        COHORT_ASSIGN_OR_RETURN(*open, Checkpoint::open(model));
      }
      return load_expert(**open, stream, layer, expert);
    };
  }

  // With nobody to talk to there is nothing to overlap.
  int lanes() const {
    return options_.overlap == Overlap::off || world_.size() == 1 || gpu() ? 1 : 2;
  }

  TraceOptions trace() const {
    TraceOptions trace = options_.trace;
    trace.process = concat(trace.process, " rank ", world_.rank(), " on ", world_.host());
    return trace;
  }

  Status build() {
    const Pinning::Confined confined(rank_->pinning_);  // the line's thread is started here
    Stream& stream = *rank_->stream_;
    rank_->pool_ = std::make_unique<KvPool>(stream.device(), geometry(), layers().size(),
                                            rank_->limits_.blocks);
    const StageParts parts{.config = rank_->config_,
                           .partition = rank_->partition_,
                           .mesh = rank_->mesh_,
                           .rank = rank_->rank_,
                           .limits = rank_->limits_,
                           .activations = options_.activations,
                           .graphs = options_.gpu.graphs,
                           .weights = *rank_->weights_,
                           .pool = *rank_->pool_,
                           .stream = stream,
                           .tp = gpu() ? *rank_->device_tp_ : *rank_->tp_,
                           .dp = *rank_->dp_,
                           .pp = gpu() ? *rank_->device_pp_ : *rank_->pp_,
                           .tokens = gpu() ? *rank_->device_tokens_ : *rank_->world_,
                           .load_expert = expert_loader(),
                           .compress_activations = options_.compress_activations,
                           .lanes = lanes(),
                           .trace = trace()};
    for (Communicator* c : rank_->communicators()) c->set_place_text(Where::text_of_place);
    rank_->runner_ = gpu() ? make_cuda_step_runner(parts) : make_cpu_step_runner(parts);
    return {};
  }

  World& world_;
  Checkpoint& checkpoint_;
  ReplicaOptions options_;
  std::unique_ptr<Rank> rank_;
  int ranks_on_host_ = 0, index_on_host_ = 0;
  std::shared_ptr<Device> device_;  // of a GPU
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
