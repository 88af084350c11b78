// SPDX-License-Identifier: Apache-2.0
#include "tools/bench/model_bench.h"

#include <algorithm>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>

#include "base/failure.h"
#include "kernels/kv_layout.h"
#include "model/checkpoint.h"
#include "tools/bench/model_plans.h"
#include "tools/bench/model_work.h"
#include "worker/rank.h"

namespace cohort::bench {
namespace {

// A rank may have so much to compute before it comes to a collective.
constexpr Duration kPatience = std::chrono::minutes(10);

// Ranks that run, so that one that fails does not leave the others waiting.
class Board {
 public:
  explicit Board(int ranks) : ranks_(size_t(ranks)) {}

  // rank: null before it ends.
  void set(int number, Rank* rank) {
    const std::lock_guard lock(mutex_);
    ranks_[size_t(number)] = rank;
    if (rank != nullptr && !failure_.ok()) rank->abort(failure_);
  }
  void fail(const Status& why) {
    const std::lock_guard lock(mutex_);
    if (!failure_.ok()) return;
    failure_ = why;
    for (Rank* rank : ranks_)
      if (rank != nullptr) rank->abort(why);
  }
  Status failure() const {
    const std::lock_guard lock(mutex_);
    return failure_;
  }

 private:
  mutable std::mutex mutex_;
  std::vector<Rank*> ranks_;  // guarded by mutex_, as all below
  Status failure_;
};

int32_t most(const std::vector<int32_t>& sizes) {
  return sizes.empty() ? 0 : *std::max_element(sizes.begin(), sizes.end());
}

ReplicaOptions replica_options(const ModelOptions& o, int32_t positions) {
  ReplicaOptions replica;
  replica.model = o.model;
  replica.weight_cache = o.weight_cache;
  replica.layout.tp = o.tp;
  replica.threads = o.threads;
  replica.isa = o.isa;
  replica.activations = o.activations;
  replica.kv_dtype = o.kv_dtype;
  replica.choose_kv_dtype = o.choose_kv_dtype;
  replica.limits.max_slots = std::max(replica.limits.max_slots, most(o.decode));
  replica.limits.max_rows = o.chunk;
  replica.limits.max_context = positions;
  return replica;
}

DecodeSize decode_size(const ModelOptions& o) { return {.context = o.context, .steps = o.tokens}; }

// Sizes that the model has no context for are left out or refused; so are those that one step
// cannot hold.
Status fit(ModelOptions& o, const ModelConfig& config) {
  const auto too_long = [&](int32_t size) { return size > config.context; };
  if (o.default_prefill) std::erase_if(o.prefill, too_long);
  for (const int32_t size : o.prefill)
    if (too_long(size))
      return invalid_argument(concat("--prefill ", size, ": the model has ", config.context,
                                     " positions; choose fewer tokens"));
  const int32_t positions = decode_size(o).positions();
  if (!o.decode.empty() && positions > config.context)
    return invalid_argument(concat("--context ", o.context, " and --tokens ", o.tokens,
                                   " make sequences of ", positions, " positions; the model has ",
                                   config.context, ": choose fewer"));
  if (most(o.decode) > o.chunk)
    return invalid_argument(concat("--decode ", most(o.decode),
                                   " is more than one step of --chunk ", o.chunk,
                                   " tokens can hold"));
  if (o.prefill.empty() && o.decode.empty())
    return invalid_argument("nothing is left to measure: give --prefill or --decode sizes");
  return {};
}

// One rank's part: all ranks execute the same plans, rank 0 measures.
class RankBench {
 public:
  RankBench(Rank& rank, const ModelOptions& options, const ModelWork& work,
            const MachineLimits& machine)
      : rank_(rank),
        options_(options),
        work_(work),
        machine_(machine),
        plans_(rank.limits(), rank.config().vocab, decode_size(options)) {}

  // told: of each measurement.
  Status run(const std::function<void(Measurement)>& told) {
    for (const int32_t size : options_.prefill) {
      COHORT_ASSIGN_OR_RETURN(Measurement prefill, measure_prefill(size));
      told(prefill);
    }
    if (options_.decode.empty()) return {};
    COHORT_RETURN_IF_ERROR(execute(plans_.fill(most(options_.decode))).status());
    for (const int32_t size : options_.decode) {
      COHORT_ASSIGN_OR_RETURN(Measurement decode, measure_decode(size));
      told(decode);
    }
    return {};
  }

 private:
  // Seconds of all of them.
  Result<double> execute(const std::vector<StepPlan>& plans) {
    const double begin = now();
    for (const StepPlan& plan : plans) {
      COHORT_ASSIGN_OR_RETURN(const auto result, rank_.execute(plan));
      if (!result) continue;
      for (const SlotResult& slot : result->slots)
        if (!slot.error.empty())
          return failed_precondition("the model does not compute numbers: " + slot.error);
    }
    return now() - begin;
  }

  // The first repetition does not count.
  template <class Repetition>
  Result<Spread> repeat(Repetition repetition) {
    std::vector<double> times;
    for (int i = 0; i <= options_.repetitions; i++) {
      COHORT_ASSIGN_OR_RETURN(const double took, repetition());
      if (i > 0) times.push_back(took);
    }
    return spread(std::move(times));
  }

  Result<Measurement> measure_prefill(int32_t size) {
    Measurement m{.kind = Measurement::Kind::prefill, .size = size, .tokens = size, .seconds = {}};
    COHORT_ASSIGN_OR_RETURN(m.seconds, repeat([&] { return execute(plans_.prefill(size)); }));
    const LeastTime least = least_compute_time(work_.prefill(size), machine_);
    m.fraction_of_bound = least.seconds / m.seconds.median;
    m.bound = least.bound;
    return m;
  }

  Result<Measurement> measure_decode(int32_t size) {
    Measurement m{.kind = Measurement::Kind::decode,
                  .size = size,
                  .context = options_.context + 1,
                  .tokens = int64_t(size) * options_.tokens,
                  .seconds = {}};
    COHORT_ASSIGN_OR_RETURN(m.seconds, repeat([&]() -> Result<double> {
                              COHORT_RETURN_IF_ERROR(execute({plans_.start(size)}).status());
                              return execute(plans_.decode());
                            }));
    const double keys = m.context + (options_.tokens + 1) / 2.0;  // of the middle step
    const double bytes = work_.decode(size, keys).memory_bytes;
    m.fraction_of_bound =
        bytes / machine_.memory.all / (m.seconds.median / double(options_.tokens));
    m.bound = Bound::bandwidth;
    return m;
  }

  Rank& rank_;
  const ModelOptions& options_;
  const ModelWork& work_;
  const MachineLimits& machine_;
  PlanMaker plans_;
};

class ModelBench {
 public:
  ModelBench(const ModelOptions& options, const std::function<void(const ModelReport&)>& progress)
      : options_(options), progress_(progress), board_(options.tp) {}

  Result<ModelReport> run() {
    COHORT_ASSIGN_OR_RETURN(const auto checkpoint, Checkpoint::open(options_.model));
    COHORT_RETURN_IF_ERROR(fit(options_, checkpoint->config()));
    report_.machine = probe_machine(options_.isa, options_.threads * options_.tp);
    report_.name = checkpoint->config().name;
    report_.fingerprint = checkpoint->fingerprint();
    const ModelWork work(*checkpoint, {options_.activations, options_.kv_dtype, options_.tp,
                                       options_.choose_kv_dtype});
    const auto worlds = make_local_worlds(options_.tp);
    std::vector<std::thread> threads;
    for (const auto& world : worlds)
      threads.emplace_back([&, &world = *world] {
        if (const Status end = run_rank(world, work); !end.ok()) board_.fail(end);
      });
    for (std::thread& thread : threads) thread.join();
    if (const Status failure = board_.failure(); !failure.ok()) return failure;
    return std::move(report_);
  }

 private:
  int32_t positions() const {
    return std::max(most(options_.prefill),
                    options_.decode.empty() ? 1 : decode_size(options_).positions());
  }

  Status run_rank(World& world, const ModelWork& work) {
    try {
      return run_loaded(world, work);
    } catch (const Failure& failure) {
      return failure.status();
    } catch (const std::bad_alloc&) {
      return resource_exhausted("there is not enough memory");
    }
  }

  Status run_loaded(World& world, const ModelWork& work) {
    const double begin = now();
    COHORT_ASSIGN_OR_RETURN(const auto rank,
                            Rank::load(world, replica_options(options_, positions()), {}));
    const double took = now() - begin;
    board_.set(world.rank(), rank.get());
    const Status end = use(*rank, took, work);
    if (!end.ok()) board_.fail(end);  // while this rank can still be told
    board_.set(world.rank(), nullptr);
    return end;
  }

  Status use(Rank& rank, double load_seconds, const ModelWork& work) {
    COHORT_RETURN_IF_ERROR(check_blocks(rank.limits()));
    rank.set_patience(kPatience);
    const bool first = rank.rank() == 0;
    {
      const std::lock_guard lock(mutex_);
      report_.weight_bytes += rank.weight_bytes();
      if (first) report_.arithmetic = rank.arithmetic();
      if (first) report_.load_seconds = load_seconds;
      if (first) progress_(report_);
    }
    return RankBench(rank, options_, work, report_.machine).run([&](Measurement measurement) {
      if (!first) return;
      const std::lock_guard lock(mutex_);
      report_.measurements.push_back(measurement);
      progress_(report_);
    });
  }

  Status check_blocks(const StepLimits& limits) const {
    const int32_t needed =
        blocks_needed(most(options_.prefill), most(options_.decode), decode_size(options_));
    if (needed <= limits.blocks) return {};
    return resource_exhausted(concat(
        "the KV cache has room for ", int64_t(limits.blocks) * kBlockTokens, " positions, but ",
        int64_t(needed) * kBlockTokens, " are needed: choose fewer or shorter sequences"));
  }

  ModelOptions options_;
  const std::function<void(const ModelReport&)>& progress_;
  Board board_;
  std::mutex mutex_;
  ModelReport report_;  // guarded by mutex_ while ranks run
};

}  // namespace

Result<ModelReport> bench_model(const ModelOptions& options,
                                const std::function<void(const ModelReport&)>& progress) {
  return ModelBench(options, progress).run();
}

}  // namespace cohort::bench
