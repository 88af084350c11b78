// SPDX-License-Identifier: Apache-2.0
// Sequences with known keys, values and queries, and steps of attention over them on an emulated
// GPU. Slots of the cache that no step has come to hold NaN.
#pragma once
#include <algorithm>
#include <iterator>
#include <numeric>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "base/check.h"
#include "kernels/cuda/attention_items.h"
#include "kernels/cuda/batch.h"
#include "kernels/ops.h"
#include "tests/cuda/kernel_fixture.h"

namespace cohort::test {

// Random values of a type; e4m3 by its bits.
inline std::vector<std::byte> random_elements(DType type, int64_t n, std::mt19937& random) {
  if (type != DType::f8_e4m3) return encode(type, reference::random_floats(n, random));
  std::vector<std::byte> out(static_cast<size_t>(n));
  // Sizes 2^-7 .. 1.875, as random_floats has them roughly.
  for (std::byte& b : out) b = std::byte((random() & 0x80u) | (random() % 64));
  return out;
}

struct AttentionSequence {
  int length;
  std::vector<int32_t> blocks;                   // in random order
  std::vector<std::byte> q;                      // A [length, heads * dim]
  std::vector<std::byte> k, v;                   // cache type [length, kv_heads * dim]
  std::vector<std::vector<std::byte>> out = {};  // of each position, A [heads * dim]
};

// What a step computes: positions [start, start + count) of a sequence.
struct AttentionPart {
  int sequence, start, count;
};

class AttentionWorld {
 public:
  AttentionWorld(const KvGeometry& g, DType activations, const std::vector<int>& lengths,
                 unsigned seed = 1)
      : g_(g),
        device_(open()),
        stream_(device_, activations, 1, true),
        random_(seed),
        element_(bytes_of(activations, 1)) {
    std::vector<int32_t> ids;
    for (int length : lengths)
      for (int i = 0; i < length; i += kBlockTokens) ids.push_back(int32_t(ids.size()));
    std::shuffle(ids.begin(), ids.end(), random_);
    cache_.assign(ids.size() * g.block_bytes(), std::byte(0xff));
    for (int length : lengths) {
      AttentionSequence s{length, {}, {}, {}, {}};
      const ptrdiff_t blocks = (length + kBlockTokens - 1) / kBlockTokens;
      s.blocks.assign(ids.end() - blocks, ids.end());
      ids.resize(ids.size() - size_t(blocks));
      s.q = random_elements(activations, int64_t(length) * g.heads * g.dim, random_);
      s.k = random_elements(g.dtype, int64_t(length) * g.kv_heads * g.dim, random_);
      s.v = random_elements(g.dtype, int64_t(length) * g.kv_heads * g.dim, random_);
      s.out.resize(size_t(length));
      sequences.push_back(std::move(s));
    }
    limits_ = {int32_t(std::accumulate(lengths.begin(), lengths.end(), 0)) + 5,
               int32_t(lengths.size()), *std::max_element(lengths.begin(), lengths.end())};
    arrays_.emplace(g, limits_);
    device_cache_ = device_->allocate(cache_.size());
    device_arrays_ = device_->allocate(arrays_->bytes());
    workspace_ = device_->allocate(arrays_->workspace_bytes());
    const size_t row_bytes = size_t(limits_.max_rows) * row_width();
    q_ = device_->allocate(row_bytes), out_ = device_->allocate(row_bytes);
    const std::vector<std::byte> nan(workspace_.size(), std::byte(0xff));
    device_->upload(workspace_.data(), nan.data(), nan.size());
  }

  // Everything that a step of these parts reads goes to the device. Rows lie in the order of the
  // parts, after each other, behind `before` rows of padding.
  void load(const std::vector<AttentionPart>& parts, int before = 0) {
    parts_ = parts, before_ = before;
    std::vector<AttentionEntry> entries;
    std::vector<std::byte> q(size_t(before) * row_width(), kMarker);
    for (const AttentionPart& p : parts) {
      AttentionSequence& s = sequences[size_t(p.sequence)];
      entries.push_back(
          {s.blocks.data(), int64_t(q.size() / row_width()), int32_t(p.start), int32_t(p.count)});
      write_cache(s, p.start + p.count);
      const auto from = s.q.begin() + ptrdiff_t(size_t(p.start) * row_width());
      q.insert(q.end(), from, from + ptrdiff_t(size_t(p.count) * row_width()));
    }
    rows_ = int64_t(q.size() / row_width()) + 2;
    q.resize(size_t(rows_) * row_width(), kMarker);
    batch_.emplace(g_, entries, rows_, view_);
    view_ = arrays_->view(device_arrays_.data(), workspace_.data());
    std::vector<std::byte> host(arrays_->bytes(), kMarker);
    const size_t used = arrays_->fill(host.data(), entries, rows_);
    if (splits_per_item > 0) cut_again(arrays_->view(host.data(), nullptr));
    device_->upload(device_arrays_.data(), host.data(), used);
    device_->upload(device_cache_.data(), cache_.data(), cache_.size());
    device_->upload(q_.data(), q.data(), q.size());
    const std::vector<std::byte> marker(out_.size(), kMarker);
    device_->upload(out_.data(), marker.data(), marker.size());
  }
  void enqueue() {
    const Tensor out(out_.data(), stream_.activations(), {rows_, g_.heads * g_.dim});
    const Tensor q(q_.data(), stream_.activations(), {rows_, g_.heads * g_.dim});
    ops::cuda::attention(stream_, out, q, {device_cache_.data(), g_}, *batch_);
  }
  // Results go to the sequences.
  void fetch() {
    std::vector<std::byte> out(out_.size());
    device_->download(out.data(), out_.data(), out.size());
    auto from = out.begin();
    const auto untouched = [&](ptrdiff_t n) {
      EXPECT_TRUE(std::all_of(from, from + n, [](std::byte b) { return b == kMarker; }));
      from += n;
    };
    untouched(ptrdiff_t(size_t(before_) * row_width()));
    for (const AttentionPart& p : parts_)
      for (int i = 0; i < p.count; i++, from += ptrdiff_t(row_width()))
        sequences[size_t(p.sequence)].out[size_t(p.start + i)].assign(
            from, from + ptrdiff_t(row_width()));
    untouched(out.end() - from);
  }
  void step(const std::vector<AttentionPart>& parts, int before = 0) {
    load(parts, before);
    enqueue();
    fetch();
  }
  // Results and the whole cache.
  void forget() {
    for (AttentionSequence& s : sequences) s.out.assign(s.out.size(), {});
    std::fill(cache_.begin(), cache_.end(), std::byte(0xff));
  }
  std::vector<std::vector<std::vector<std::byte>>> results() const {
    std::vector<std::vector<std::vector<std::byte>>> all;
    for (const AttentionSequence& s : sequences) all.push_back(s.out);
    return all;
  }

  // The largest error of a position's heads, in units of what is allowed.
  double error(int sequence, int position) const {
    const AttentionSequence& s = sequences[size_t(sequence)];
    const DType type = stream_.activations();
    const std::vector<float> q = decode(type, s.q), out = decode(type, s.out[size_t(position)]);
    const std::vector<float> k = decode(g_.dtype, s.k), v = decode(g_.dtype, s.v);
    double worst = 0;
    for (int head = 0; head < g_.heads; head++) {
      std::vector<std::vector<float>> keys, values;
      for (int j = 0; j <= position; j++) {
        const auto at = ptrdiff_t(j) * g_.kv_heads * g_.dim + g_.kv_head_of(head) * g_.dim;
        keys.emplace_back(k.begin() + at, k.begin() + at + g_.dim);
        values.emplace_back(v.begin() + at, v.begin() + at + g_.dim);
      }
      const auto at = q.begin() + (ptrdiff_t(position) * g_.heads + head) * g_.dim;
      const reference::Attended expected =
          reference::attend(std::span<const float>(at, at + g_.dim), keys, values);
      for (std::vector<float>& row : values)
        for (float& x : row) x = std::fabs(x);
      const std::vector<double> sizes = reference::attend({at, at + g_.dim}, keys, values).out;
      for (int d = 0; d < g_.dim; d++) {
        // Weights are rounded like activations, and so is their sum.
        const double weights = reference::rounding(type).relative *
                               (sizes[size_t(d)] + std::fabs(expected.out[size_t(d)]));
        const double bound = reference::kAttention * expected.magnitude + weights +
                             allowed(type, expected.out[size_t(d)]);
        const double x = double(out[size_t(head * g_.dim + d)]);
        const double e = std::fabs(x - expected.out[size_t(d)]) / bound;
        worst = e <= worst ? worst : e;  // NaN comes through
      }
    }
    return worst;
  }

  size_t row_width() const { return size_t(g_.heads * g_.dim) * size_t(element_); }
  CudaDevice& device() const { return *device_; }

  std::vector<AttentionSequence> sequences;
  // As long as this is not 0, what would be merged is cut into items of so many splits, as it is in
  // large batches; tiles of no more splits are items of their own.
  int splits_per_item = 0;

 private:
  static constexpr std::byte kMarker{0x35};  // an ordinary number in every format

  static std::shared_ptr<CudaDevice> open() {
    cohort::Result<std::shared_ptr<CudaDevice>> opened = CudaDevice::open(0);
    COHORT_CHECK_MSG(opened.ok(), opened.status().to_string());
    return *opened;
  }
  // Of a batch on the host. There are no more items afterwards than before.
  void cut_again(const cuda::DeviceBatch& batch) const {
    int32_t* const totals = const_cast<int32_t*>(batch.totals);
    const auto* old = reinterpret_cast<const cuda::AttentionWork*>(batch.items);
    const int items = totals[cuda::kThinItems] + totals[cuda::kWideItems];
    std::vector<cuda::AttentionWork> now, merges;
    std::copy_if(old, old + items, std::back_inserter(now),
                 [](const cuda::AttentionWork& w) { return w.partial_row < 0; });
    std::for_each_n(old + items, totals[cuda::kMergeItems], [&](const cuda::AttentionWork& merge) {
      const bool whole = merge.split_end <= splits_per_item;
      if (!whole) merges.push_back(merge);
      for (int s = 0; s < merge.split_end; s += splits_per_item) {
        now.push_back(merge);
        now.back().split_begin = s;
        now.back().split_end = std::min(s + splits_per_item, merge.split_end);
        now.back().partial_row = whole ? -1 : merge.partial_row + s * merge.pairs;
      }
    });
    const auto thin = std::count_if(now.begin(), now.end(), [](const cuda::AttentionWork& w) {
      return w.pairs <= cuda::kThinPairs;
    });
    totals[cuda::kThinItems] = int32_t(thin);
    totals[cuda::kWideItems] = int32_t(now.size()) - int32_t(thin);
    totals[cuda::kMergeItems] = int32_t(merges.size());
    now.insert(now.end(), merges.begin(), merges.end());
    std::memcpy(const_cast<int32_t*>(batch.items), now.data(), now.size() * sizeof(now[0]));
  }

  void write_cache(const AttentionSequence& s, int positions) {
    const size_t row = size_t(bytes_of(g_.dtype, g_.dim));
    for (int j = 0; j < positions; j++)
      for (int h = 0; h < g_.kv_heads; h++) {
        std::byte* chunk = cache_.data() +
                           size_t(s.blocks[size_t(j / kBlockTokens)]) * g_.block_bytes() +
                           size_t(h) * g_.chunk_bytes();
        const size_t from = (size_t(j) * size_t(g_.kv_heads) + size_t(h)) * row;
        const size_t to = size_t(j % kBlockTokens) * row;
        std::copy_n(s.k.begin() + ptrdiff_t(from), row, chunk + to);
        std::copy_n(s.v.begin() + ptrdiff_t(from), row, chunk + g_.plane_bytes() + to);
      }
  }

  const KvGeometry g_;
  const std::shared_ptr<CudaDevice> device_;
  cohort::Stream stream_;
  std::mt19937 random_;
  const int64_t element_;
  std::vector<std::byte> cache_;
  cuda::BatchLimits limits_;
  std::optional<cuda::BatchArrays> arrays_;
  Buffer device_cache_, device_arrays_, workspace_, q_, out_;
  cuda::DeviceBatch view_{};
  std::optional<AttentionBatch> batch_;
  std::vector<AttentionPart> parts_;
  int before_ = 0;
  int64_t rows_ = 0;
};

}  // namespace cohort::test
