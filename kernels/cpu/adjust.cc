// SPDX-License-Identifier: Apache-2.0
#include "kernels/cpu/adjust.h"

#include <algorithm>
#include <limits>
#include <utility>

namespace cohort::cpu {
namespace {

// counts: twice the number of times in the output, plus one if the token occurs in the prompt.
// Only those of tokens that do are looked at: they are far fewer than the vocabulary has.
void penalise(std::span<float> logits, int32_t first, const SampleRow& row, int32_t* counts) {
  const SamplingParams& p = *row.params;
  const auto each = [&](std::span<const int32_t> tokens, auto visit) {
    for (const int32_t token : tokens)
      if (token >= first && size_t(token - first) < logits.size()) visit(size_t(token - first));
  };
  const auto both = [&](auto visit) {
    each(row.prompt, visit);
    each(row.output, visit);
  };
  both([&](size_t i) { counts[i] = 0; });
  each(row.prompt, [&](size_t i) { counts[i] = 1; });
  each(row.output, [&](size_t i) { counts[i] += 2; });
  both([&](size_t i) {
    const int32_t count = std::exchange(counts[i], 0);
    if (count == 0) return;  // it has been here
    float& x = logits[i];
    x = x > 0 ? x / p.repetition_penalty : x * p.repetition_penalty;
    if (count < 2) return;
    x -= p.frequency_penalty * float(count / 2);
    x -= p.presence_penalty;
  });
}

}  // namespace

bool penalised(const SamplingParams& p) {
  return p.frequency_penalty != 0 || p.presence_penalty != 0 || p.repetition_penalty != 1;
}

bool below_min_tokens(const SamplingParams& p, uint64_t outputs) {
  return int64_t(outputs) < p.min_tokens && !p.end_tokens.empty();
}

bool adjusts(const SamplingParams& p, uint64_t outputs) {
  return !p.logit_bias.empty() || penalised(p) || below_min_tokens(p, outputs);
}

void adjust(std::span<float> logits, int32_t first, const SampleRow& row, uint64_t outputs,
            int32_t* counts) {
  const SamplingParams& p = *row.params;
  const auto known = [&](int32_t token) {
    return token >= first && size_t(token - first) < logits.size();
  };
  for (const auto& [token, bias] : p.logit_bias)
    if (known(token)) logits[size_t(token - first)] += bias;
  if (penalised(p)) penalise(logits, first, row, counts);
  if (!below_min_tokens(p, outputs)) return;
  for (int32_t token : p.end_tokens)
    if (known(token)) logits[size_t(token - first)] = -std::numeric_limits<float>::infinity();
}

}  // namespace cohort::cpu
