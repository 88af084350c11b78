// SPDX-License-Identifier: Apache-2.0
// Whole steps of one rank with random weights in the shape of Llama-3-8B, one step launched ahead
// of the one that is waited for, as a leader does it. A decode step cannot be faster than reading
// all weights (of the embedding table only a few rows) and the cache once.
#include <algorithm>
#include <optional>
#include <thread>

#include "base/failure.h"
#include "tools/gpu_check/parts.h"
#include "tools/gpu_check/plans.h"
#include "tools/gpu_check/random_checkpoint.h"
#include "worker/rank.h"

namespace cohort::gpu_check {
namespace {

struct Variant {
  std::string name;
  DType matrices = DType::bf16;
  bool graphs = true, deterministic = false;
  std::vector<int> batches, prompts;
};

struct Sizes {
  int context, steps, warm;
};

void require(const Status& status) {
  if (!status.ok()) throw Failure(status);
}

ReplicaOptions options_of(const Variant& v, const ModelConfig& config, bool tiny) {
  ReplicaOptions o;
  o.threads = int(std::clamp(std::thread::hardware_concurrency(), 1u, 16u));
  o.activations = ActivationMode::native;
  o.kv_dtype = DType::bf16;
  o.gpu.device = DeviceKind::cuda;
  o.gpu.ordinal = 0;
  o.gpu.dtype = DType::bf16;
  o.gpu.graphs = v.graphs;
  o.gpu.deterministic = v.deterministic;
  o.limits.max_slots = *std::max_element(v.batches.begin(), v.batches.end());
  o.limits.max_rows =
      v.prompts.empty() ? 512 : *std::max_element(v.prompts.begin(), v.prompts.end());
  o.limits.max_rows = std::max(o.limits.max_rows, o.limits.max_slots);
  o.limits.max_context = int32_t(config.context);
  o.kv_memory = tiny ? int64_t(8) << 20 : int64_t(24) << 30;
  o.step_timeout = std::chrono::seconds(20);
  return o;
}

class Runner {
 public:
  Runner(Report& report, const Variant& variant, const ModelConfig& config)
      : report_(report),
        variant_(variant),
        config_(config),
        checkpoint_(config, variant.matrices),
        worlds_(make_local_worlds(1)) {
    const TimePoint start = std::chrono::steady_clock::now();
    auto loaded =
        Rank::load(*worlds_[0], checkpoint_, options_of(variant, config, report.tiny()), {});
    if (!loaded.ok()) throw Failure(loaded.status());
    rank_ = std::move(loaded).value();
    plans_.emplace(rank_->limits(), config.vocab);
    report.add("load", variant.name, seconds(std::chrono::steady_clock::now() - start), "s");
    report.add("weights", variant.name, double(rank_->weight_bytes()) * 1e-9, "GB");
  }

  void decode(int batch, const Sizes& sizes) {
    const std::string shape = concat(variant_.name, ", batch ", batch, ", context ", sizes.context);
    report_.guarded("decode", shape, [&] {
      const int total = sizes.warm + sizes.steps;
      std::vector<StepPlan> plans = {plans_->start_decoding(batch, sizes.context, total)};
      for (int i = 1; i < total; i++) plans.push_back(plans_->decode_on());
      TimePoint from{};
      for (int i = 0; i < total; i++) {
        launch(plans[size_t(i)]);
        if (i == sizes.warm) from = std::chrono::steady_clock::now();
      }
      drain();
      // At `from` warm + 2 - depth steps had been collected, and now all have been.
      const double step =
          seconds(std::chrono::steady_clock::now() - from) / (sizes.steps - 1 + rank_->depth() - 1);
      report_.add("decode, time per token", shape, step * 1e3, "ms",
                  floor_ms(batch, sizes.context));
      report_.add("decode, throughput", shape, batch / step, "tokens/s");
      report_errors(shape);
    });
  }

  void prefill(int length) {
    const std::string shape = concat(variant_.name, ", prompt ", length);
    report_.guarded("prefill", shape, [&] {
      std::vector<double> times;
      for (int i = 0; i < (report_.tiny() ? 2 : 4); i++) {
        const StepPlan plan = plans_->prefill(length);
        const TimePoint from = std::chrono::steady_clock::now();
        launch(plan);
        drain();
        times.push_back(seconds(std::chrono::steady_clock::now() - from));
      }
      report_.add("prefill", shape, length / *std::min_element(times.begin(), times.end()),
                  "tokens/s", prefill_ceiling(length));
      report_errors(shape);
    });
  }

 private:
  void launch(const StepPlan& plan) {
    require(rank_->launch(plan));
    if (++ahead_ == rank_->depth()) collect();
  }
  void collect() {
    auto result = rank_->collect();
    require(result.status());
    ahead_--;
    for (const SlotResult& slot : (*result)->slots)
      if (!slot.error.empty()) error_ = slot.error;
  }
  void drain() {
    while (ahead_ > 0) collect();
  }
  void report_errors(const std::string& shape) {
    if (!error_.empty()) report_.pass("steps", shape, false, std::exchange(error_, {}));
  }

  double floor_ms(int batch, int context) const {
    const double bandwidth = report_.ceiling(kRead) * 1e9;
    if (bandwidth <= 0) return 0;
    const WeightInfo& table = *checkpoint_.find("embedding");
    const double cache = 2.0 * double(batch) * context * double(config_.layers) *
                         double(config_.kv_heads * config_.head_dim) * 2;
    return (double(rank_->weight_bytes() - table.bytes()) + cache) / bandwidth * 1e3;
  }

  // Products and attention at the speed of the plain matrix product.
  double prefill_ceiling(int length) const {
    const ModelConfig& c = config_;
    const double q = double(c.heads * c.head_dim), kv = double(c.kv_heads * c.head_dim);
    const double h = double(c.hidden);
    const double weights = double(c.layers) * (h * (2 * q + 2 * kv) + 3 * h * double(c.ffn));
    const double attention = double(c.layers) * 2 * length * q;  // half of all pairs, QK and PV
    return report_.ceiling(kGemm) * 1e12 / (2 * weights + attention);
  }

  Report& report_;
  const Variant variant_;
  const ModelConfig config_;
  RandomCheckpoint checkpoint_;
  std::vector<std::unique_ptr<World>> worlds_;
  std::unique_ptr<Rank> rank_;
  std::optional<PlanMaker> plans_;
  int ahead_ = 0;
  std::string error_;
};

std::vector<Variant> variants(bool tiny) {
  const std::vector<int> batches = tiny ? std::vector<int>{1, 3} : std::vector<int>{1, 8, 64, 256};
  const std::vector<int> prompts =
      tiny ? std::vector<int>{17, 40} : std::vector<int>{512, 2048, 8192};
  const std::vector<int> few = tiny ? std::vector<int>{2} : std::vector<int>{1, 8};
  return {
      {"bf16, graphs", DType::bf16, true, false, batches, prompts},
      {"q4_0, graphs", DType::q4_0, true, false, few, {}},
      {"bf16, no graphs", DType::bf16, false, false, batches, {}},
      {"bf16, deterministic", DType::bf16, true, true, tiny ? few : std::vector<int>{1, 64}, {}}};
}

}  // namespace

void measure_engine(Report& report) {
  const Sizes sizes = report.tiny() ? Sizes{20, 4, 2} : Sizes{512, 64, 8};
  const ModelConfig config = report.tiny() ? small_llama() : llama_8b();
  for (const Variant& variant : variants(report.tiny()))
    report.guarded("engine", variant.name, [&] {
      Runner runner(report, variant, config);
      for (const int batch : variant.batches) runner.decode(batch, sizes);
      for (const int length : variant.prompts) runner.prefill(length);
    });
}

}  // namespace cohort::gpu_check
