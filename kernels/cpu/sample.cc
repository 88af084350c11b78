// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <atomic>
#include <cfloat>

#include "kernels/cpu/adjust.h"
#include "kernels/cpu/exp2.h"
#include "kernels/cpu/isa_table.h"
#include "kernels/cpu/state.h"
#include "kernels/cpu/vocabulary.h"
#include "kernels/ops.h"
#include "kernels/philox.h"

namespace cohort::ops::cpu {
namespace {

using cohort::cpu::kTokenBlock;
using cohort::cpu::Largest;
using cohort::cpu::WeightTree;

bool greedy(const SamplingParams& p) { return !(p.temperature > 0); }

// One thread's memory for one row of `vocab` logits.
struct Memory {
  uint64_t* keys;
  double* nodes;
  float *weights, *ranked, *raw, *maxima;
  int32_t* counts;

  static size_t lanes(size_t vocab) { return size_t(cohort::cpu::token_lanes(int64_t(vocab))); }
  static size_t bytes(size_t vocab) {
    return cohort::cpu::keys_for(vocab) * sizeof(uint64_t) +
           WeightTree::nodes(vocab) * sizeof(double) + (4 * vocab + lanes(vocab)) * sizeof(float);
  }
  Memory(std::byte* at, size_t vocab)
      : keys(reinterpret_cast<uint64_t*>(at)),
        nodes(reinterpret_cast<double*>(keys + cohort::cpu::keys_for(vocab))),
        weights(reinterpret_cast<float*>(nodes + WeightTree::nodes(vocab))),
        ranked(weights + vocab),
        raw(ranked + vocab),
        maxima(raw + vocab),
        counts(reinterpret_cast<int32_t*>(maxima + lanes(vocab))) {}
};

// What weights are made of: 2^((logit - top) * scale), those below min_p count as 0.
struct Weighing {
  float top, scale, min_p;
};

class RowSampler {
 public:
  // alone: the other threads have no rows, so that they can share this one.
  RowSampler(Stream& stream, const SampleRow& row, std::span<float> logits, Memory memory,
             bool alone)
      : stream_(stream),
        kernels_(cpu_kernels(stream.isa())),
        row_(row),
        params_(*row.params),
        logits_(logits),
        memory_(memory),
        alone_(alone) {}

  SampledToken run() {
    SampledToken out;
    const Largest raw = find_largest(logits_);
    out.finite = raw.ok;
    if (!raw.ok) return out;
    Largest top = raw;
    std::span<const float> raw_logits = logits_;
    const bool adjusted = cohort::cpu::adjusts(params_, row_.output.size());
    if (adjusted) {
      if (params_.logprobs) {
        std::copy(logits_.begin(), logits_.end(), memory_.raw);
        raw_logits = {memory_.raw, logits_.size()};
      }
      cohort::cpu::adjust(logits_, 0, row_, row_.output.size(), memory_.counts);
      top = find_largest(logits_);
    }
    out.finite = top.ok;
    if (!top.ok) return out;
    out.token = greedy(params_) ? top.token : draw(top.value);
    if (!params_.logprobs) return out;
    if (adjusted) find_largest(raw_logits);  // for its maxima
    report(raw_logits, raw.value, out);
    return out;
  }

 private:
  // Ranges of tokens, whole blocks. cost: as for_rows() counts, of one token.
  void each_range(double cost, FunctionRef<void(int64_t begin, int64_t end)> work) {
    const auto n = int64_t(logits_.size());
    if (!alone_) return work(0, n);
    cohort::cpu::for_rows(stream_, cohort::cpu::token_blocks(n), int64_t(double(n) * cost),
                          [&](int64_t begin, int64_t end) {
                            work(begin * kTokenBlock, std::min(end * kTokenBlock, n));
                          });
  }

  Largest find_largest(std::span<const float> logits) {
    std::atomic<bool> nan{false};
    each_range(0.25, [&](int64_t begin, int64_t end) {
      float* maxima = memory_.maxima + begin / kTokenBlock * kVocabLanes;
      if (kernels_.rows.lane_maxima(maxima, logits.data() + begin, end - begin))
        nan.store(true, std::memory_order_relaxed);
    });
    return cohort::cpu::find_largest(logits, memory_.maxima, nan.load(std::memory_order_relaxed));
  }

  // out may be logits.
  void weigh(float* out, const float* logits, const Weighing& by, int64_t n) const {
    kernels_.weigh(out, logits, by.top, by.scale, n);
    if (!(by.min_p > 0)) return;  // the heaviest weighs 1
    for (int64_t i = 0; i < n; i++)
      if (out[i] < by.min_p) out[i] = 0;
  }

  WeightTree weigh_all(std::span<const float> logits, const Weighing& by) {
    each_range(1, [&](int64_t begin, int64_t end) {
      float* weights = memory_.weights + begin;
      weigh(weights, logits.data() + begin, by, end - begin);
      kernels_.rows.block_sums(memory_.nodes + begin / kTokenBlock, weights, end - begin);
    });
    return WeightTree({memory_.weights, logits.size()}, memory_.nodes);
  }

  int32_t draw(float top) {
    const auto n = int64_t(logits_.size());
    const Weighing by{top, std::min(kLog2e / params_.temperature, FLT_MAX), params_.min_p};
    const double u = uniform_draw(params_.seed, row_.output.size());
    const bool cut_k = params_.top_k > 0 && params_.top_k < n;
    if (cut_k || params_.top_p < 1) return draw_from_top(u, by, cut_k ? params_.top_k : n, cut_k);
    const WeightTree tree = weigh_all(logits_, by);
    return tree.find(u * tree.total());
  }

  // The first `count` keys are those of the most likely tokens, and `ranked` their weights.
  void rank(int64_t count, const Weighing& by) {
    cohort::cpu::select_top(logits_, memory_.maxima, count, memory_.keys);
    for (int64_t i = 0; i < count; i++)
      memory_.ranked[i] = logits_[size_t(cohort::cpu::token_of(memory_.keys[i]))];
    weigh(memory_.ranked, memory_.ranked, by, count);
  }

  // The `limit` most likely tokens, then as few of them as reach top_p of their weight.
  int32_t draw_from_top(double u, const Weighing& by, int64_t limit, bool cut_k) {
    double total = 0;
    if (cut_k) {
      rank(limit, by);
      for (int64_t i = 0; i < limit; i++) total += memory_.ranked[i];
    } else {
      total = weigh_all(logits_, by).total();
    }
    // Without a limit, few tokens usually reach top_p: sort more of them only if they do not.
    int64_t sorted = cut_k ? limit : 0, count = 0;
    double sum = 0;
    for (const double wanted = double(params_.top_p) * total;;) {
      for (; count < sorted && (count == 0 || (params_.top_p >= 1 || sum < wanted)); count++)
        sum += memory_.ranked[count];
      if (count < sorted || sorted >= limit) break;
      sorted = std::min(limit, std::max<int64_t>(256, sorted * 8));
      rank(sorted, by);
    }
    return walk(u * sum, count);
  }

  // The token among the first `count` at which the running sum passes target.
  int32_t walk(double target, int64_t count) const {
    int64_t last = 0;
    double sum = 0;
    for (int64_t i = 0; i < count && memory_.ranked[i] > 0; i++) {
      last = i;
      sum += memory_.ranked[i];
      if (target < sum) break;
    }
    return cohort::cpu::token_of(memory_.keys[last]);
  }

  void report(std::span<const float> raw, float top, SampledToken& out) {
    const double log_sum = cohort::cpu::fixed_log(weigh_all(raw, {top, kLog2e, 0}).total());
    const auto logprob = [&](int32_t token) {
      return float(double(raw[size_t(token)] - top) - log_sum);
    };
    out.logprob = logprob(out.token);
    const auto count = std::min<int64_t>(std::max(*params_.logprobs, 0), int64_t(raw.size()));
    if (count == 0) return;
    cohort::cpu::select_top(raw, memory_.maxima, count, memory_.keys);
    out.top.reserve(size_t(count));
    for (int64_t i = 0; i < count; i++) {
      const int32_t token = cohort::cpu::token_of(memory_.keys[i]);
      out.top.push_back({token, logprob(token)});
    }
  }

  Stream& stream_;
  const CpuKernels& kernels_;
  const SampleRow& row_;
  const SamplingParams& params_;
  std::span<float> logits_;
  Memory memory_;
  const bool alone_;
};

}  // namespace

void sample(Stream& stream, std::span<SampledToken> out, Tensor logits,
            std::span<const SampleRow> rows) {
  const auto vocab = size_t(logits.dim(1));
  auto& state = cohort::cpu::State::of(stream);
  state.reserve(Memory::bytes(vocab));
  const auto one = [&](size_t i, int thread) {
    const Memory memory(state.scratch(thread), vocab);
    const std::span<float> row(logits.f32() + i * vocab, vocab);
    out[i] = RowSampler(stream, rows[i], row, memory, rows.size() == 1).run();
  };
  if (rows.size() == 1) return one(0, 0);
  // Rows differ in what they ask for.
  std::atomic<size_t> next{0};
  stream.threads().run([&](int thread) {
    for (size_t i; (i = next.fetch_add(1, std::memory_order_relaxed)) < rows.size();)
      one(i, thread);
  });
}

}  // namespace cohort::ops::cpu
