// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cfloat>
#include <cstring>
#include <limits>

#include "kernels/cpu/elementwise.h"
#include "kernels/cpu/exp2.h"
#include "kernels/cpu/isa_table.h"
#include "kernels/cpu/state.h"
#include "kernels/cpu/vocabulary.h"
#include "kernels/ops.h"
#include "kernels/philox.h"

namespace cohort::ops::cpu {
namespace {

using cohort::cpu::Largest;
using cohort::cpu::WeightTree;

bool penalised(const SamplingParams& p) {
  return p.frequency_penalty != 0 || p.presence_penalty != 0 || p.repetition_penalty != 1;
}

bool below_min_tokens(const SampleRow& row) {
  return int64_t(row.output.size()) < row.params->min_tokens && !row.params->end_tokens.empty();
}

bool adjusts(const SampleRow& row) {
  return !row.params->logit_bias.empty() || penalised(*row.params) || below_min_tokens(row);
}

bool greedy(const SamplingParams& p) { return !(p.temperature > 0); }

// One thread's memory for one row of `vocab` logits.
struct Memory {
  uint64_t* keys;
  double* nodes;
  float *weights, *raw;
  int32_t* counts;

  static size_t bytes(size_t vocab) {
    return vocab * (sizeof(uint64_t) + 3 * sizeof(float)) +
           WeightTree::nodes(vocab) * sizeof(double);
  }
  Memory(std::byte* at, size_t vocab)
      : keys(reinterpret_cast<uint64_t*>(at)),
        nodes(reinterpret_cast<double*>(keys + vocab)),
        weights(reinterpret_cast<float*>(nodes + WeightTree::nodes(vocab))),
        raw(weights + vocab),
        counts(reinterpret_cast<int32_t*>(raw + vocab)) {}
};

class RowSampler {
 public:
  RowSampler(const SampleRow& row, std::span<float> logits, Memory memory, Weigh* weigh)
      : row_(row), params_(*row.params), logits_(logits), memory_(memory), weigh_(weigh) {}

  SampledToken run() {
    SampledToken out;
    const Largest raw = cohort::cpu::find_largest(logits_);
    out.finite = raw.ok;
    if (!raw.ok) return out;
    Largest top = raw;
    std::span<const float> raw_logits = logits_;
    if (adjusts(row_)) {
      if (params_.logprobs) {
        std::copy(logits_.begin(), logits_.end(), memory_.raw);
        raw_logits = {memory_.raw, logits_.size()};
      }
      adjust();
      top = cohort::cpu::find_largest(logits_);
    }
    out.finite = top.ok;
    if (!top.ok) return out;
    out.token = greedy(params_) ? top.token : draw(top.value);
    if (params_.logprobs) report(raw_logits, raw.value, out);
    return out;
  }

 private:
  bool known(int32_t token) const { return token >= 0 && size_t(token) < logits_.size(); }

  void adjust() {
    for (const auto& [token, bias] : params_.logit_bias)
      if (known(token)) logits_[size_t(token)] += bias;
    if (penalised(params_)) penalise();
    if (!below_min_tokens(row_)) return;
    for (int32_t token : params_.end_tokens)
      if (known(token)) logits_[size_t(token)] = -std::numeric_limits<float>::infinity();
  }

  // counts: twice the number of times in the output, plus one if the token occurs in the prompt.
  void penalise() {
    std::fill_n(memory_.counts, logits_.size(), 0);
    for (int32_t token : row_.prompt)
      if (known(token)) memory_.counts[token] = 1;
    for (int32_t token : row_.output)
      if (known(token)) memory_.counts[token] += 2;
    for (size_t i = 0; i < logits_.size(); i++) {
      const int32_t count = memory_.counts[i];
      if (count == 0) continue;
      float& x = logits_[i];
      x = x > 0 ? x / params_.repetition_penalty : x * params_.repetition_penalty;
      if (count < 2) continue;
      x -= params_.frequency_penalty * float(count / 2);
      x -= params_.presence_penalty;
    }
  }

  int32_t draw(float top) {
    const auto n = int64_t(logits_.size());
    const float scale = std::min(kLog2e / params_.temperature, FLT_MAX);
    weigh_(memory_.weights, logits_.data(), top, scale, n);
    if (params_.min_p > 0)  // the heaviest weighs 1
      for (int64_t i = 0; i < n; i++)
        if (memory_.weights[i] < params_.min_p) memory_.weights[i] = 0;
    const double u = uniform_draw(params_.seed, row_.output.size());
    const bool cut_k = params_.top_k > 0 && params_.top_k < n;
    if (cut_k || params_.top_p < 1) return draw_from_top(u, top, cut_k ? params_.top_k : n, cut_k);
    const WeightTree tree({memory_.weights, size_t(n)}, memory_.nodes);
    return tree.find(u * tree.total());
  }

  float weight(int64_t i) const { return memory_.weights[cohort::cpu::token_of(memory_.keys[i])]; }

  // The `limit` most likely tokens, then as few of them as reach top_p of their weight.
  int32_t draw_from_top(double u, float top, int64_t limit, bool cut_k) {
    double total = 0;
    if (cut_k) {
      cohort::cpu::select_top(logits_, top, limit, memory_.keys);
      for (int64_t i = 0; i < limit; i++) total += weight(i);
    } else {
      total = WeightTree({memory_.weights, logits_.size()}, memory_.nodes).total();
    }
    // Without a limit, few tokens usually reach top_p: sort more of them only if they do not.
    int64_t sorted = cut_k ? limit : 0, count = 0;
    double sum = 0;
    for (const double wanted = double(params_.top_p) * total;;) {
      for (; count < sorted && (count == 0 || (params_.top_p >= 1 || sum < wanted)); count++)
        sum += weight(count);
      if (count < sorted || sorted >= limit) break;
      sorted = std::min(limit, std::max<int64_t>(256, sorted * 8));
      cohort::cpu::select_top(logits_, top, sorted, memory_.keys);
    }
    return walk(u * sum, count);
  }

  // The token among the first `count` at which the running sum passes target.
  int32_t walk(double target, int64_t count) const {
    int64_t last = 0;
    double sum = 0;
    for (int64_t i = 0; i < count && weight(i) > 0; i++) {
      last = i;
      sum += weight(i);
      if (target < sum) break;
    }
    return cohort::cpu::token_of(memory_.keys[last]);
  }

  void report(std::span<const float> raw, float top, SampledToken& out) {
    weigh_(memory_.weights, raw.data(), top, kLog2e, int64_t(raw.size()));
    const double log_sum =
        cohort::cpu::fixed_log(WeightTree({memory_.weights, raw.size()}, memory_.nodes).total());
    const auto logprob = [&](int32_t token) {
      return float(double(raw[size_t(token)] - top) - log_sum);
    };
    out.logprob = logprob(out.token);
    const auto count = std::min<int64_t>(std::max(*params_.logprobs, 0), int64_t(raw.size()));
    if (count == 0) return;
    cohort::cpu::select_top(raw, top, count, memory_.keys);
    out.top.reserve(size_t(count));
    for (int64_t i = 0; i < count; i++) {
      const int32_t token = cohort::cpu::token_of(memory_.keys[i]);
      out.top.push_back({token, logprob(token)});
    }
  }

  const SampleRow& row_;
  const SamplingParams& params_;
  std::span<float> logits_;
  Memory memory_;
  Weigh* weigh_;
};

}  // namespace

void sample(Stream& stream, std::span<SampledToken> out, Tensor logits,
            std::span<const SampleRow> rows) {
  const auto vocab = size_t(logits.dim(1));
  auto& state = cohort::cpu::State::of(stream);
  state.reserve(Memory::bytes(vocab));
  Weigh* weigh = cpu_kernels(stream.isa()).weigh;
  const auto one = [&](size_t i, int thread) {
    const Memory memory(state.scratch(thread), vocab);
    const std::span<float> row(logits.f32() + i * vocab, vocab);
    out[i] = RowSampler(rows[i], row, memory, weigh).run();
  };
  if (rows.size() == 1) return one(0, 0);
  const auto threads = size_t(stream.threads().size());
  stream.threads().run([&](int thread) {
    const size_t begin = rows.size() * size_t(thread) / threads;
    const size_t end = rows.size() * (size_t(thread) + 1) / threads;
    for (size_t i = begin; i < end; i++) one(i, thread);
  });
}

}  // namespace cohort::ops::cpu
