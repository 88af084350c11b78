// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <bit>
#include <utility>

#include "kernels/attention_plan.h"
#include "kernels/cpu/attention_job.h"
#include "kernels/cpu/isa_table.h"
#include "kernels/cpu/state.h"
#include "kernels/ops.h"

namespace cohort::ops::cpu {
namespace {

// Floats of each member of AttentionScratch.
struct ScratchSizes {
  size_t query, scores, fresh, levels, widened, weights;
  explicit ScratchSizes(const AttentionShape& s, int deepest) {
    const size_t rows = size_t(std::max(kItemRows, s.most_heads)), stride = size_t(s.stride);
    query = rows * size_t(s.dim);
    scores = std::max(kPassRows, kTilePassRows) * (kSplit + 16);
    fresh = 2 * kPassRows * stride;
    levels = size_t(deepest) * rows * stride;
    widened = size_t(kSplit) * size_t(s.dim);
    weights = kTilePassRows * kWeightStride / 2;
  }
  size_t bytes() const {
    return (query + scores + fresh + levels + 2 * widened + weights) * sizeof(float);
  }
  AttentionScratch lay_out(std::byte* memory) const {
    float* at = reinterpret_cast<float*>(memory);
    const auto take = [&](size_t n) { return std::exchange(at, at + n); };
    AttentionScratch s;
    s.query = take(query);
    s.scores = take(scores);
    s.fresh = take(fresh);
    s.levels = take(levels);
    s.keys = take(widened);
    s.values = take(widened);
    s.weights = reinterpret_cast<uint16_t*>(take(weights));
    return s;
  }
};

// One thread of an attention op: takes items until none are left.
class Taker {
 public:
  Taker(const AttentionBatch& batch, const Tensor& out, const Tensor& q, const KvLayer& kv,
        const CpuKernels& kernels, size_t threads, AttentionScratch scratch, bool bf16_tiles)
      : batch_(batch),
        out_(out),
        q_(q),
        kv_(kv),
        kernels_(kernels),
        threads_(threads),
        scratch_(scratch),
        bf16_tiles_(bf16_tiles) {}

  void run() {
    AttentionBatch::Plan& plan = batch_.plan();
    const size_t count = plan.items.size();
    const auto take = [&] { return plan.next.fetch_add(1, std::memory_order_relaxed); };
    for (size_t i = take(); i < count;) {
      // Known beforehand, the next item's keys can be on their way. But the last ones are for
      // whoever is free.
      const bool plenty = plan.next.load(std::memory_order_relaxed) + threads_ < count;
      const size_t after = plenty ? take() : count;
      one(plan, plan.items[i], after < count ? &plan.items[after] : nullptr);
      i = plenty ? after : take();
    }
  }

 private:
  void one(AttentionBatch::Plan& plan, const AttentionItem& item, const AttentionItem* next) {
    const AttentionQueries now = queries(item.entry), later = queries((next ? *next : item).entry);
    const auto partials = [&](int64_t row) {
      return plan.partials.get() + row * plan.shape.stride;
    };
    AttentionWork work{
        &plan.shape, kv_.data, &now,       &item, &later, next, partials(item.partial_row),
        &scratch_,   nullptr,  bf16_tiles_};
    if (item.sharers > 0) work.sharers = &plan.sharers[size_t(item.first_sharer)];
    kernels_.attend(work);
    if (item.sharers == 0 && item.merge >= 0) finish(plan, work, now, item.merge);
    const AttentionSharer* sharers = std::exchange(work.sharers, nullptr);
    for (int i = 0; i < item.sharers; i++)
      finish(plan, work, queries(sharers[i].entry), sharers[i].merge);
  }

  // The thread that finishes the last piece of a merge sees what the others wrote.
  void finish(AttentionBatch::Plan& plan, AttentionWork& work, const AttentionQueries& of,
              int number) {
    if (plan.missing[size_t(number)].fetch_sub(1, std::memory_order_acq_rel) != 1) return;
    const AttentionMerge& merge = plan.merges[size_t(number)];
    work.queries = &of;
    work.partials = plan.partials.get() + merge.first_row * plan.shape.stride;
    kernels_.merge(work, merge);
  }

  AttentionQueries queries(int entry) const {
    const AttentionEntry& e = batch_.entries()[size_t(entry)];
    const int64_t at = e.first_row * out_.dim(1);
    return {e.blocks, e.start, e.count, q_.f32() + at, out_.f32() + at};
  }

  const AttentionBatch& batch_;
  const Tensor &out_, &q_;
  const KvLayer& kv_;
  const CpuKernels& kernels_;
  const size_t threads_;
  AttentionScratch scratch_;
  const bool bf16_tiles_;
};

}  // namespace

void attention(Stream& stream, Tensor out, Tensor q, const KvLayer& kv,
               const AttentionBatch& batch) {
  AttentionBatch::Plan& plan = batch.plan();
  plan.reset();
  int splits = 1;
  for (const AttentionItem& item : plan.items) splits = std::max(splits, item.split1 - item.split0);
  for (const AttentionMerge& merge : plan.merges) splits = std::max(splits, merge.units);
  const ScratchSizes sizes(plan.shape, std::bit_width(unsigned(splits)) + 1);
  auto& state = cohort::cpu::State::of(stream);
  state.reserve(sizes.bytes());
  const bool bf16_tiles = plan.shape.bf16 && state.bf16_tiles(stream.isa());
  stream.threads().run([&](int thread) {
    Taker(batch, out, q, kv, cpu_kernels(stream.isa()), size_t(stream.threads().size()),
          sizes.lay_out(state.scratch(thread)), bf16_tiles)
        .run();
  });
}

}  // namespace cohort::ops::cpu
