// SPDX-License-Identifier: Apache-2.0
// Sequences with a KV cache, whose attention is computed in steps of any parts.
#pragma once
#include <algorithm>
#include <optional>
#include <random>
#include <span>
#include <string>
#include <vector>

#include "base/half.h"
#include "base/status.h"
#include "kernels/ops.h"
#include "tests/kernels/reference.h"

namespace cohort {

inline float rounded(DType type, float x) {
  if (type == DType::f16) return half_to_float(float_to_half(x));
  return type == DType::bf16 ? bf16_to_float(float_to_bf16(x)) : x;
}

// A cache with sequences in it. Slots that no sequence wrote hold NaN.
class Cache {
 public:
  Cache(KvGeometry geometry, int blocks)
      : geometry_(geometry), memory_(size_t(blocks) * geometry.block_bytes(), std::byte(0xff)) {}
  KvLayer layer() { return {memory_.data(), geometry_}; }
  std::span<std::byte> bytes() { return memory_; }
  const std::byte* chunk(int32_t block, int kv_head) const {
    return memory_.data() + size_t(block) * geometry_.block_bytes() +
           size_t(kv_head) * geometry_.chunk_bytes();
  }
  // An int8 key or value as it is stored, times its scale.
  std::vector<float> scaled_key(int32_t block, int kv_head, int slot) const {
    return scaled(chunk(block, kv_head), geometry_.key_scales(), slot, kBlockTokens, slot);
  }
  std::vector<float> scaled_value(int32_t block, int kv_head, int slot) const {
    const std::byte* plane = chunk(block, kv_head) + geometry_.plane_bytes();
    const size_t scales = geometry_.value_scales() - geometry_.plane_bytes();
    return scaled(plane, scales, slot * geometry_.dim, 1, slot);
  }

 private:
  std::vector<float> scaled(const std::byte* plane, size_t scales, int first, int step,
                            int slot) const {
    const float scale = reinterpret_cast<const float*>(plane + scales)[slot];
    std::vector<float> out;
    for (int d = 0; d < geometry_.dim; d++)
      out.push_back(scale * float(reinterpret_cast<const int8_t*>(plane)[first + d * step]));
    return out;
  }

  KvGeometry geometry_;
  std::vector<std::byte> memory_;
};

struct Sequence {
  int length;                   // positions in all
  std::vector<int32_t> blocks;  // in random order
  std::vector<float> qkv;       // [length, (heads + 2 kv_heads) * dim]
  std::vector<float> out = {};  // [length, heads * dim]
};

// What a step computes: positions [start, start + count) of a sequence.
struct Part {
  Sequence* sequence;
  int start, count;
};

class World {
 public:
  World(KvGeometry g, std::vector<int> lengths, unsigned seed, float scale = 1)
      : g_(g), rope_(*make_cpu_device(), {}, 4096, false), random_(seed) {
    int blocks = 0;
    for (int length : lengths) blocks += (length + kBlockTokens - 1) / kBlockTokens;
    std::vector<int32_t> ids(static_cast<size_t>(blocks));
    for (size_t i = 0; i < ids.size(); i++) ids[i] = int32_t(i);
    std::shuffle(ids.begin(), ids.end(), random_);
    cache_.emplace(g, blocks);
    for (int length : lengths) {
      Sequence s;
      s.length = length;
      const int count = (length + kBlockTokens - 1) / kBlockTokens;
      s.blocks.assign(ids.end() - count, ids.end());
      ids.resize(ids.size() - size_t(count));
      s.qkv = reference::random_floats(int64_t(length) * width(), random_, scale);
      s.out.assign(size_t(length * g.heads * g.dim), -3);
      sequences.push_back(std::move(s));
    }
  }

  // Sequence `to` begins as `from` does, in the same blocks.
  void share(size_t from, size_t to, int tokens) {
    const Sequence& a = sequences[from];
    Sequence& b = sequences[to];
    std::copy_n(a.blocks.begin(), tokens / kBlockTokens, b.blocks.begin());
    std::copy_n(a.qkv.begin(), tokens * width(), b.qkv.begin());
  }

  std::vector<AttentionEntry> entries(const std::vector<Part>& parts) const {
    std::vector<AttentionEntry> all;
    int64_t row = 0;
    for (const Part& p : parts) {
      all.push_back({p.sequence->blocks.data(), row, p.start, p.count});
      row += p.count;
    }
    return all;
  }

  // One step with these parts; rows in the order of the parts. Results go to the sequences.
  void step(Stream& stream, const std::vector<Part>& parts) {
    std::vector<float> qkv;
    for (const Part& p : parts) {
      const auto from = p.sequence->qkv.begin() + p.start * width();
      qkv.insert(qkv.end(), from, from + p.count * width());
    }
    const int64_t rows = int64_t(qkv.size()) / width(), out_width = g_.heads * g_.dim;
    const AttentionBatch batch(g_, entries(parts), stream.threads().size());
    std::vector<float> q(size_t(rows * out_width)), out(q.size());
    const Tensor q_tensor(q.data(), DType::f32, {rows, out_width});
    ops::rope_store(stream, q_tensor, cache_->layer(),
                    Tensor(qkv.data(), DType::f32, {rows, width()}), batch, rope_);
    ops::attention(stream, Tensor(out.data(), DType::f32, {rows, out_width}), q_tensor,
                   cache_->layer(), batch);
    auto from = out.begin();
    for (const Part& p : parts) {
      std::copy(from, from + p.count * out_width, p.sequence->out.begin() + p.start * out_width);
      from += p.count * out_width;
    }
  }
  // Everything at once.
  void prefill(Stream& stream) {
    std::vector<Part> parts;
    for (Sequence& s : sequences) parts.push_back({&s, 0, s.length});
    step(stream, parts);
  }

  int64_t width() const { return int64_t(g_.heads + 2 * g_.kv_heads) * g_.dim; }
  std::vector<float> vector_of(const Sequence& s, int position, int head) const {
    const auto at = s.qkv.begin() + position * width() + head * g_.dim;
    return {at, at + g_.dim};
  }
  std::vector<float> stored(const Sequence& s, int position, int head) const {
    if (g_.dtype == DType::i8) {
      const int32_t block = s.blocks[size_t(position / kBlockTokens)];
      const int kv_head = head - g_.heads, slot = position % kBlockTokens;
      return kv_head < g_.kv_heads ? cache_->scaled_key(block, kv_head, slot)
                                   : cache_->scaled_value(block, kv_head - g_.kv_heads, slot);
    }
    std::vector<float> out = vector_of(s, position, head);
    for (float& x : out) x = rounded(g_.dtype, x);
    return out;
  }
  std::vector<std::vector<float>> outputs() const {
    std::vector<std::vector<float>> all;
    for (const Sequence& s : sequences) all.push_back(s.out);
    return all;
  }

  std::vector<Sequence> sequences;

 private:
  KvGeometry g_;
  RopeTable rope_;  // rotates nothing
  std::mt19937 random_;
  std::optional<Cache> cache_;
};

inline std::string describe(const KvGeometry& g) {
  return concat(g.heads, "/", g.kv_heads, " dim ", g.dim, " ", name(g.dtype),
                g.bf16_arithmetic ? " arithmetic" : "",
                g.group_heads > 0 ? concat(" of groups of ", g.group_heads) : "");
}

}  // namespace cohort
