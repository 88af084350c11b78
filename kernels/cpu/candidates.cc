// SPDX-License-Identifier: Apache-2.0
#include "kernels/candidates.h"

#include <algorithm>
#include <cfloat>
#include <cstring>
#include <limits>
#include <type_traits>

#include "base/check.h"
#include "kernels/cpu/adjust.h"
#include "kernels/cpu/exp2.h"
#include "kernels/cpu/isa_table.h"
#include "kernels/cpu/vocabulary.h"
#include "kernels/philox.h"

namespace cohort {
namespace {

using cpu::BlockTree;
using cpu::kTokenBlock;

constexpr float kInfinity = std::numeric_limits<float>::infinity();
// Usually so many tokens reach top_p; where they do not, the row is whole.
constexpr int64_t kListedForTopP = 256;

// In front of a part's lists.
struct Summary {
  Candidate best;
  float raw_largest;
  uint32_t bad, raw_bad;  // NaN or +infinity is among the logits
};
static_assert(std::is_trivially_copyable_v<Summary> && sizeof(Summary) % sizeof(float) == 0);

bool any_bad(std::span<const float> logits) {
  return std::any_of(logits.begin(), logits.end(), [](float x) { return !(x < kInfinity); });
}

int64_t told(int64_t wanted, int64_t tokens) { return std::min(wanted, tokens); }

uint64_t key_of(const Candidate& c, bool raw) {
  return cpu::order_key(raw ? c.raw : c.logit, c.token);
}

// The first `wanted` of all parts' lists; the list about part p begins at `at` (p).
template <class At>
void merge(std::span<const PartedSample::Told> parts, int64_t wanted, bool raw, At at,
           std::vector<Candidate>& out) {
  struct Rest {
    const std::byte* next;
    int64_t left;
    Candidate first;
  };
  std::vector<Rest> rests;
  const auto advance = [](Rest& rest) {
    if (rest.left > 0) std::memcpy(&rest.first, rest.next, sizeof(Candidate));
    rest.next += sizeof(Candidate);
    rest.left--;
  };
  for (const PartedSample::Told& part : parts) {
    Rest rest{at(part), told(wanted, part.tokens), {}};
    advance(rest);
    rests.push_back(rest);
  }
  out.clear();
  while (int64_t(out.size()) < wanted) {
    Rest* least = nullptr;
    for (Rest& rest : rests)
      if (rest.left >= 0 && (!least || key_of(rest.first, raw) < key_of(least->first, raw)))
        least = &rest;
    if (!least) return;
    out.push_back(least->first);
    advance(*least);
  }
}

}  // namespace

void PartedSample::start(const PartedRow& row, int64_t vocab, bool whole_blocks) {
  const SamplingParams& p = *row.row.params;
  row_ = row;
  vocab_ = vocab;
  needs_ = {};
  block_ = -1;
  result_ = {};
  const bool drawn = p.temperature > 0, cut_k = drawn && p.top_k > 0 && p.top_k < vocab;
  const bool cut_p = drawn && !cut_k && p.top_p < 1;
  needs_.adjusted = cpu::adjusts(p, row.outputs);
  needs_.sums = drawn && !cut_k;
  needs_.best = cut_k ? p.top_k : cut_p ? std::min(vocab, kListedForTopP) : 0;
  needs_.raw_sums = p.logprobs.has_value();
  needs_.likely = std::clamp<int64_t>(p.logprobs.value_or(0), 0, vocab);
  if (((needs_.sums || needs_.raw_sums) && !whole_blocks) ||
      needs_.best + needs_.likely > kMostListed || (cpu::penalised(p) && !row.tokens_known))
    needs_ = {.whole = true};
}

size_t PartedSample::scratch_bytes(int64_t tokens) {
  const auto n = size_t(tokens), lanes = size_t(cpu::token_lanes(tokens));
  const size_t list = cpu::keys_for(n) * sizeof(uint64_t) + 2 * lanes * sizeof(float);
  return std::max(list, n * sizeof(float) + (n / kTokenBlock + 1) * sizeof(double));
}

int64_t PartedSample::list_bytes(int64_t tokens) const {
  if (needs_.whole) return 0;
  const int64_t listed = told(needs_.best, tokens) + told(needs_.likely, tokens);
  return int64_t(sizeof(Summary)) + listed * int64_t(sizeof(Candidate));
}

int64_t PartedSample::sum_bytes(int64_t tokens) const {
  if (needs_.whole) return 0;
  const int64_t blocks = cpu::token_blocks(tokens);
  return (int64_t(needs_.sums) + int64_t(needs_.raw_sums)) * blocks * int64_t(sizeof(float));
}

void PartedSample::list(const LogitPart& part, Isa isa, std::byte* scratch,
                        std::byte* message) const {
  const std::span<const float> raw = part.raw;
  const RowKernels& kernels = cpu_kernels(isa).rows;
  auto* const keys = reinterpret_cast<uint64_t*>(scratch);
  auto* const raw_maxima = reinterpret_cast<float*>(keys + cpu::keys_for(raw.size()));
  const float* maxima = raw_maxima;
  const cpu::Largest raw_top = cpu::find_largest(raw, kernels, raw_maxima);
  cpu::Largest top = raw_top;
  std::span<const float> logits = raw;
  if (needs_.adjusted) {
    std::copy(raw.begin(), raw.end(), part.adjusted);
    const std::span<float> adjusted(part.adjusted, raw.size());
    cpu::adjust(adjusted, part.first, row_.row, row_.outputs, reinterpret_cast<int32_t*>(scratch));
    logits = adjusted;
    float* const more = raw_maxima + cpu::token_lanes(int64_t(raw.size()));
    top = cpu::find_largest(logits, kernels, more);
    maxima = more;
  }
  const auto candidate = [&](int32_t at) {
    return Candidate{part.first + at, logits[size_t(at)], raw[size_t(at)]};
  };
  Summary summary{candidate(top.token), raw_top.value, 0, 0};
  summary.best.logit = top.value;
  // A part may hold -infinity alone.
  summary.raw_bad = !raw_top.ok && any_bad(raw);
  summary.bad = !top.ok && any_bad(logits);
  std::memcpy(message, &summary, sizeof summary);
  message += sizeof summary;
  const auto write = [&](std::span<const float> by, const float* by_maxima, int64_t wanted) {
    const int64_t n = told(wanted, int64_t(raw.size()));
    if (n == 0) return;
    if (summary.bad || summary.raw_bad)  // nobody will look: the row has failed
      std::memset(message, 0, size_t(n) * sizeof(Candidate));
    else
      cpu::select_top(by, by_maxima, n, keys);
    for (int64_t i = 0; i < n && !summary.bad && !summary.raw_bad; i++) {
      const Candidate listed = candidate(cpu::token_of(keys[i]));
      std::memcpy(message + i * int64_t(sizeof listed), &listed, sizeof listed);
    }
    message += n * int64_t(sizeof(Candidate));
  };
  write(logits, maxima, needs_.best);
  write(raw, raw_maxima, needs_.likely);
}

void PartedSample::take_lists(std::span<const Told> parts) {
  if (needs_.whole) return;
  bool bad = false;
  best_ = {0, -kInfinity, -kInfinity};
  raw_largest_ = -kInfinity;
  for (const Told& part : parts) {
    Summary summary;
    std::memcpy(&summary, part.message, sizeof summary);
    bad = bad || summary.bad || summary.raw_bad;
    raw_largest_ = summary.raw_largest > raw_largest_ ? summary.raw_largest : raw_largest_;
    if (summary.best.logit > best_.logit) best_ = summary.best;
  }
  finite_ = !bad && raw_largest_ > -kInfinity && best_.logit > -kInfinity;
  if (!finite_) return;
  const auto best = [&](const Told& part) { return part.message + sizeof(Summary); };
  const auto likely = [&](const Told& part) {
    return best(part) + size_t(told(needs_.best, part.tokens)) * sizeof(Candidate);
  };
  merge(parts, needs_.best, false, best, list_);
  merge(parts, needs_.likely, true, likely, likely_);
}

// The weights that are drawn from.
void PartedSample::weigh(std::span<const float> logits, Isa isa, float* weights) const {
  const SamplingParams& p = *row_.row.params;
  const float scale = std::min(kLog2e / p.temperature, FLT_MAX);
  cpu_kernels(isa).weigh(weights, logits.data(), best_.logit, scale, int64_t(logits.size()));
  if (!(p.min_p > 0)) return;
  for (size_t i = 0; i < logits.size(); i++)
    if (weights[i] < p.min_p) weights[i] = 0;
}

void PartedSample::sum(const LogitPart& part, Isa isa, std::byte* scratch,
                       std::byte* message) const {
  const int64_t n = int64_t(part.raw.size()), blocks = cpu::token_blocks(n);
  if (!finite_) {
    std::memset(message, 0, size_t(sum_bytes(n)));
    return;
  }
  auto* const sums = reinterpret_cast<double*>(scratch);
  auto* const weights = reinterpret_cast<float*>(sums + blocks);
  const auto write = [&] {
    cpu_kernels(isa).rows.block_sums(sums, weights, n);
    for (int64_t b = 0; b < blocks; b++) {
      const auto rounded = float(sums[b]);  // a sum of f32 is one
      std::memcpy(message, &rounded, sizeof rounded);
      message += sizeof rounded;
    }
  };
  if (needs_.sums) {
    weigh(needs_.adjusted ? std::span<const float>(part.adjusted, size_t(n)) : part.raw, isa,
          weights);
    write();
  }
  if (needs_.raw_sums) {
    cpu_kernels(isa).weigh(weights, part.raw.data(), raw_largest_, kLog2e, n);
    write();
  }
}

void PartedSample::take_sums(std::span<const Told> parts) {
  if (needs_.whole || !finite_) return;
  nodes_.clear();
  raw_nodes_.clear();
  for (const Told& part : parts) {
    const std::byte* at = part.message;
    const auto read = [&](std::vector<double>& sums) {
      for (int64_t b = 0; b < cpu::token_blocks(part.tokens); b++, at += sizeof(float)) {
        float sum;
        std::memcpy(&sum, at, sizeof sum);
        sums.push_back(sum);
      }
    };
    if (needs_.sums) read(nodes_);
    if (needs_.raw_sums) read(raw_nodes_);
  }
}

void PartedSample::conclude(Isa isa) {
  if (needs_.whole) return;
  if (!finite_) {
    result_.finite = false;
    return;
  }
  const int64_t blocks = cpu::token_blocks(vocab_);
  const auto tree = [&](std::vector<double>& nodes) {
    nodes.resize(BlockTree::nodes(blocks));
    return BlockTree(nodes.data(), blocks);
  };
  if (needs_.raw_sums) log_sum_ = cpu::fixed_log(tree(raw_nodes_).total());
  const SamplingParams& p = *row_.row.params;
  if (!(p.temperature > 0)) return finish(best_);
  const double u = uniform_draw(p.seed, row_.outputs);
  if (needs_.best == 0) {
    const BlockTree weights = tree(nodes_);
    const BlockTree::Place place = weights.find(u * weights.total());
    block_ = place.block;
    target_ = place.target;
    return;
  }
  logits_.clear();
  for (const Candidate& c : list_) logits_.push_back(c.logit);
  weights_.resize(logits_.size());
  weigh(logits_, isa, weights_.data());
  double total = 0;
  if (needs_.sums)
    total = tree(nodes_).total();
  else
    for (float weight : weights_) total += weight;
  if (!draw_from_list(u, total)) needs_ = {.whole = true};
}

// As few of the listed as reach top_p of `total`. False: those that are not listed may count.
bool PartedSample::draw_from_list(double u, double total) {
  const float top_p = row_.row.params->top_p;
  const double wanted = double(top_p) * total;
  size_t count = 0;
  double sum = 0;
  for (; count < list_.size() && (count == 0 || top_p >= 1 || sum < wanted); count++)
    sum += weights_[count];
  // With top_k all that count are listed.
  if (needs_.sums && count == list_.size() && int64_t(count) < vocab_) return false;
  const double target = u * sum;
  size_t last = 0;
  sum = 0;
  for (size_t i = 0; i < count && weights_[i] > 0; i++) {
    last = i;
    sum += weights_[i];
    if (target < sum) break;
  }
  finish(list_[last]);
  return true;
}

Candidate PartedSample::draw(const LogitPart& part, Isa isa) const {
  const int64_t begin = block_ * kTokenBlock - part.first, width = int64_t(part.raw.size());
  COHORT_CHECK(begin >= 0 && begin < width);
  const int64_t n = std::min(kTokenBlock, width - begin);
  const float* logits = (needs_.adjusted ? part.adjusted : part.raw.data()) + begin;
  float weights[kTokenBlock];
  weigh({logits, size_t(n)}, isa, weights);
  const int64_t at = cpu::find_in_block({weights, size_t(n)}, target_);
  return {int32_t(part.first + begin + at), logits[at], part.raw[size_t(begin + at)]};
}

void PartedSample::finish(const Candidate& chosen) {
  block_ = -1;
  result_.token = chosen.token;
  if (!needs_.raw_sums) return;
  const auto logprob = [&](float raw) { return float(double(raw - raw_largest_) - log_sum_); };
  result_.logprob = logprob(chosen.raw);
  result_.top.reserve(likely_.size());
  for (const Candidate& c : likely_) result_.top.push_back({c.token, logprob(c.raw)});
}

}  // namespace cohort
