// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/sampler.h"

#include <algorithm>
#include <cfloat>
#include <cmath>
#include <cstring>

#include "base/check.h"
#include "base/device_cuda.h"
#include "kernels/cpu/exp2.h"
#include "kernels/cuda/sample_args.h"
#include "kernels/cuda/state.h"
#include "kernels/philox.h"

namespace cohort::cuda {
namespace {

static_assert(Sampler::kMostExtras == kMostExtrasOfRow);

bool penalised(const SamplingParams& p) {
  return p.frequency_penalty != 0 || p.presence_penalty != 0 || p.repetition_penalty != 1;
}

int32_t output_tokens(const SamplerRow& row) { return row.known - row.prompt_tokens; }

bool below_min_tokens(const SamplerRow& row) {
  return output_tokens(row) < row.params->min_tokens && !row.params->end_tokens.empty();
}

// Where the arrays of the workspace lie, for at most max_rows rows.
struct Layout {
  size_t raw, adjusted, block_sums, log_sums, bias_raw, marks, bytes;
  int32_t tiles, blocks;

  Layout(int64_t max_rows, int64_t vocab)
      : tiles(int32_t((vocab + kTile - 1) / kTile)),
        blocks(int32_t((vocab + kWeightBlock - 1) / kWeightBlock)) {
    size_t at = 0;
    const auto take = [&](size_t each) {
      const size_t begin = at;
      at = (at + size_t(max_rows) * each + 255) / 256 * 256;
      return begin;
    };
    raw = take(size_t(tiles) * sizeof(TileSummary));
    adjusted = take(size_t(tiles) * sizeof(TileSummary));
    block_sums = take(size_t(blocks) * sizeof(float));
    log_sums = take(sizeof(double));
    bias_raw = take(kMostExtrasOfRow * sizeof(float));
    marks = take(size_t(vocab) * sizeof(uint32_t));
    bytes = at;
  }
};

RowInput input_of(const SamplerRow& row, int64_t vocab) {
  const SamplingParams& p = *row.params;
  RowInput in{};
  in.slot = row.slot;
  in.prompt_tokens = row.prompt_tokens;
  in.known = row.known;
  in.u = uniform_draw(p.seed, uint64_t(output_tokens(row)));
  in.scale = p.temperature > 0 ? std::min(kLog2e / p.temperature, FLT_MAX) : -1;
  in.top_k = p.top_k;
  in.top_p = p.top_p;
  in.min_p = p.min_p > 0 ? p.min_p : 0;
  // Exponents grow with logits, while weights may step back by their last bit.
  in.lowest = in.min_p > 0 ? std::max(kExpLowest, std::log2(in.min_p) - 0.01f) : kExpLowest;
  in.frequency = p.frequency_penalty;
  in.presence = p.presence_penalty;
  in.repetition = p.repetition_penalty;
  in.logprobs = p.logprobs ? int32_t(std::clamp<int64_t>(*p.logprobs, 0, vocab)) : -1;
  COHORT_CHECK_LE(in.logprobs, kMostLogprobs);
  return in;
}

SampleArgs args_of(const Layout& layout, std::byte* workspace, const TokenTable& table,
                   const Tensor& logits, const std::byte* inputs, SampledRow* out) {
  SampleArgs args{};
  args.inputs = reinterpret_cast<const RowInput*>(inputs);
  args.extras = reinterpret_cast<const Extra*>(inputs + size_t(logits.dim(0)) * sizeof(RowInput));
  args.logits = logits.f32();
  args.table = table.data();
  args.positions = table.positions();
  args.vocab = int32_t(logits.dim(1));
  args.tiles = layout.tiles;
  args.blocks = layout.blocks;
  args.raw = reinterpret_cast<TileSummary*>(workspace + layout.raw);
  args.adjusted = reinterpret_cast<TileSummary*>(workspace + layout.adjusted);
  args.block_sums = reinterpret_cast<float*>(workspace + layout.block_sums);
  args.log_sums = reinterpret_cast<double*>(workspace + layout.log_sums);
  args.bias_raw = reinterpret_cast<float*>(workspace + layout.bias_raw);
  args.marks = reinterpret_cast<uint32_t*>(workspace + layout.marks);
  args.out = out;
  return args;
}

}  // namespace

SampledToken to_sampled_token(const SampledRow& row) {
  SampledToken out{row.token, row.logprob, {}, row.finite != 0};
  out.top.reserve(size_t(row.top_count));
  for (int i = 0; i < row.top_count; i++)
    out.top.push_back({row.top_tokens[i], row.top_logprobs[i]});
  return out;
}

SamplerFeatures features_of(std::span<const SamplerRow> rows) {
  SamplerFeatures out;
  for (const SamplerRow& row : rows) {
    const SamplingParams& p = *row.params;
    const bool draws = p.temperature > 0;
    out.adjust |= !p.logit_bias.empty() || penalised(p) || below_min_tokens(row);
    out.draw |= draws;
    out.truncate |= draws && (p.top_k > 0 || p.top_p < 1);
    out.logprobs |= p.logprobs.has_value();
  }
  return out;
}

Sampler::Sampler(Stream& stream, const TokenTable& table, int32_t max_rows, int64_t vocab)
    : table_(table), max_rows_(max_rows), vocab_(vocab) {
  COHORT_CHECK_GT(vocab, 0);
  COHORT_CHECK_LE(vocab, kMostVocab);
  COHORT_CHECK_LT(table.positions(), 1 << 22);  // counts are below the bits of other numbers
  workspace_ = stream.device().allocate(Layout(max_rows, vocab).bytes);
}

size_t Sampler::input_bytes() const {
  return size_t(max_rows_) * (sizeof(RowInput) + kMostExtras * sizeof(Extra));
}

size_t Sampler::fill(std::byte* host, std::span<const SamplerRow> rows, int64_t launched) const {
  COHORT_CHECK_LE(int64_t(rows.size()), launched);
  COHORT_CHECK_LE(launched, max_rows_);
  std::byte* const extras = host + size_t(launched) * sizeof(RowInput);
  int32_t count = 0;
  const auto add = [&](int32_t token, float bias) {
    if (token < 0 || token >= vocab_) return;
    const Extra extra{token, bias};
    std::memcpy(extras + size_t(count++) * sizeof(Extra), &extra, sizeof(Extra));
  };
  for (size_t i = 0; i < size_t(launched); i++) {
    RowInput in{};
    in.slot = -1;
    if (i < rows.size()) {
      const SamplerRow& row = rows[i];
      COHORT_CHECK_LE(row.params->logit_bias.size() + row.params->end_tokens.size(),
                      size_t(kMostExtras));
      COHORT_CHECK(row.slot >= -1 && row.slot < table_.slots());
      COHORT_CHECK(row.prompt_tokens <= row.known && row.known < table_.positions());
      in = input_of(row, vocab_);
      in.first_extra = count;
      for (const auto& [token, bias] : row.params->logit_bias) add(token, bias);
      in.biases = count - in.first_extra;
      if (below_min_tokens(row))
        for (int32_t token : row.params->end_tokens) add(token, 0);
      in.masked = count - in.first_extra - in.biases;
    }
    std::memcpy(host + i * sizeof(RowInput), &in, sizeof(RowInput));
  }
  return size_t(launched) * sizeof(RowInput) + size_t(count) * sizeof(Extra);
}

void Sampler::enqueue(Stream& stream, const SamplerFeatures& features, Tensor logits,
                      const std::byte* inputs, SampledRow* out) {
  const int64_t rows = logits.dim(0);
  if (rows == 0) return;
  COHORT_CHECK_LE(rows, max_rows_);
  COHORT_CHECK_EQ(logits.dim(1), vocab_);
  COHORT_CHECK(logits.dtype() == DType::f32);
  COHORT_CHECK_EQ(reinterpret_cast<uintptr_t>(logits.data()) % 16, 0u);
  const SampleArgs args =
      args_of(Layout(max_rows_, vocab_), workspace_.data(), table_, logits, inputs, out);
  const auto run = [&](auto* launch, const char* name) {
    cuda_check(launch(compute(stream), args, int(rows)), name);
  };
  run(launch_survey, "sample: survey");
  if (features.logprobs) {
    run(launch_raw_weights, "sample: raw weights");
    run(launch_top_logprobs, "sample: top_logprobs");
  }
  if (features.adjust) {
    run(launch_count, "sample: count");
    run(launch_penalise, "sample: penalise");
    run(launch_adjusted_survey, "sample: adjusted survey");
  }
  if (features.draw) run(launch_weights, "sample: weights");
  const Pick pick = !features.draw ? Pick::greedy : features.truncate ? Pick::truncate : Pick::draw;
  cuda_check(launch_pick(compute(stream), args, int(rows), pick), "sample: pick");
  if (features.adjust) run(launch_unmark, "sample: unmark");
}

}  // namespace cohort::cuda
