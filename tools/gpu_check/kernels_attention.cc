// SPDX-License-Identifier: Apache-2.0
// rope_store and attention against float64.
#include <cstring>

#include "kernels/ops.h"
#include "tools/gpu_check/arrays.h"
#include "tools/gpu_check/cache_step.h"
#include "tools/gpu_check/kernel_checks.h"

namespace cohort::gpu_check {
namespace {

using Floats = std::vector<float>;

std::vector<SequencePart> some_parts(bool tiny) {
  if (tiny) return {{0, 20}, {33, 1}, {15, 3}};
  return {{0, 300}, {1200, 1}, {40, 70}, {15, 3}, {2047, 1}, {0, 1}};
}

class AttentionCheck {
 public:
  AttentionCheck(const Bench& bench, const KvGeometry& g, DType activations)
      : bench_(bench),
        g_(g),
        activations_(activations),
        stream_(bench.device, activations, 1, true),
        step_(*bench.device, g, some_parts(bench.report.tiny()), 3),
        cache_(*bench.device, g.dtype, step_.cache_bytes() / bytes_of(g.dtype, 1)) {}

  void rope(bool neighbours) {
    const int64_t width = int64_t(g_.heads + 2 * g_.kv_heads) * g_.dim;
    std::vector<double> frequencies;
    for (int i = 0; i < g_.dim / 2; i++)
      frequencies.push_back(std::pow(10000.0, -2.0 * i / g_.dim));
    const RopeTable table(*bench_.device, frequencies, 4096, neighbours);
    const Floats in =
        rounded(activations_, reference::random_floats(step_.rows() * width, bench_.random));
    const Array qkv(*bench_.device, activations_, in),
        q(*bench_.device, activations_, step_.rows() * g_.heads * g_.dim);
    ops::cuda::rope_store(stream_, q.matrix(step_.rows()), {cache_.data(), g_},
                          qkv.matrix(step_.rows()), step_.batch(), table);
    const Floats got = q.floats();
    stored_ = cache_.bytes();
    double most_q = 0, most_cache = 0;
    each_row([&](size_t part, int position, int64_t row) {
      for (int h = 0; h < g_.heads + g_.kv_heads; h++) {
        const auto from = in.begin() + row * width + int64_t(h) * g_.dim;
        const std::vector<double> head(from, from + g_.dim);
        const auto expected = reference::rotate(head, frequencies, position, neighbours);
        const bool is_q = h < g_.heads;
        const Floats mine = is_q ? slice(got, (row * g_.heads + h) * g_.dim)
                                 : cached(step_.key_at(part, position, h - g_.heads));
        double& most = is_q ? most_q : most_cache;
        // Angles are rounded to f32, and both halves of a pair count.
        most = larger(most, worst(mine, expected, [&](size_t i) {
                        return allowed(is_q ? activations_ : g_.dtype, expected[i]) + 1e-5;
                      }));
      }
      for (int h = 0; h < g_.kv_heads; h++) {
        const Floats v = slice(in, row * width + int64_t(g_.heads + g_.kv_heads + h) * g_.dim);
        most_cache =
            larger(most_cache, worst(cached(step_.key_at(part, position, h) + step_.value_offset()),
                                     v, [&](size_t i) { return allowed(g_.dtype, double(v[i])); }));
      }
    });
    bench_.report.check("rope_store, queries", shape(), most_q);
    bench_.report.check("rope_store, cache", shape(), most_cache);
  }

  void attend() {
    fill_cache();
    const int64_t width = int64_t(g_.heads) * g_.dim;
    const Floats in =
        rounded(activations_, reference::random_floats(step_.rows() * width, bench_.random));
    const Array q(*bench_.device, activations_, in),
        out(*bench_.device, activations_, step_.rows() * width);
    ops::cuda::attention(stream_, out.matrix(step_.rows()), q.matrix(step_.rows()),
                         {cache_.data(), g_}, step_.batch());
    const Floats got = out.floats();
    double most = 0;
    each_row([&](size_t part, int position, int64_t row) {
      if (position % 23 != 7 && step_.parts()[part].count > 3) return;  // the oracle is slow
      for (int h = 0; h < g_.heads; h++)
        most = larger(most, error_of(part, position, h, slice(in, row * width + h * g_.dim),
                                     slice(got, row * width + h * g_.dim)));
    });
    bench_.report.check("attention", shape(), most);
    bool untouched = true;
    for (int64_t i = (step_.rows() - 3) * width; i < step_.rows() * width; i++)
      untouched = untouched && std::isnan(got[size_t(i)]);
    bench_.report.pass("attention, rows of padding", shape(), untouched, "are left alone");
  }

 private:
  template <class F>
  void each_row(F f) const {
    int64_t row = 0;
    for (size_t part = 0; part < step_.parts().size(); part++)
      for (int i = 0; i < step_.parts()[part].count; i++)
        f(part, step_.parts()[part].start + i, row++);
  }
  Floats slice(const Floats& all, int64_t at) const {
    return Floats(all.begin() + at, all.begin() + at + g_.dim);
  }
  Floats cached(int64_t at) const {
    const auto from = stored_.begin() + at;
    return decode(g_.dtype, {from, from + bytes_of(g_.dtype, g_.dim)});
  }

  // Positions that the step sees are random, the others stay NaN.
  void fill_cache() {
    stored_.assign(size_t(step_.cache_bytes()), std::byte(0xff));
    const auto random_bytes = [&] {
      if (g_.dtype != DType::f8_e4m3)
        return encode(g_.dtype, reference::random_floats(g_.dim, bench_.random));
      std::vector<std::byte> out(static_cast<size_t>(g_.dim));  // sizes 2^-7 .. 1.875
      for (std::byte& b : out) b = std::byte((bench_.random() & 0x80u) | (bench_.random() % 64));
      return out;
    };
    for (size_t part = 0; part < step_.parts().size(); part++)
      for (int j = 0; j < step_.parts()[part].start + step_.parts()[part].count; j++)
        for (int h = 0; h < g_.kv_heads; h++)
          for (const int64_t offset : {int64_t(0), step_.value_offset()}) {
            const std::vector<std::byte> x = random_bytes();
            std::memcpy(&stored_[size_t(step_.key_at(part, j, h) + offset)], x.data(), x.size());
          }
    cache_.set(stored_.data(), stored_.size());
  }

  double error_of(size_t part, int position, int head, const Floats& q, const Floats& got) const {
    std::vector<Floats> keys, values;
    for (int j = 0; j <= position; j++) {
      const int64_t at = step_.key_at(part, j, head / g_.group());
      keys.push_back(cached(at));
      values.push_back(cached(at + step_.value_offset()));
    }
    const reference::Attended expected = reference::attend(q, keys, values);
    for (Floats& row : values)
      for (float& x : row) x = std::fabs(x);
    const std::vector<double> sizes = reference::attend(q, keys, values).out;
    return worst(got, expected.out, [&](size_t i) {
      // Weights are rounded like activations, and so is their sum.
      const double weights = allowed(activations_, sizes[i] + std::fabs(expected.out[i]), 0);
      return reference::kAttention * expected.magnitude + weights +
             allowed(activations_, expected.out[i]);
    });
  }

  std::string shape() const {
    return concat(name(activations_), ", cache ", name(g_.dtype), ", ", g_.heads, "/", g_.kv_heads,
                  " heads of ", g_.dim);
  }

  const Bench& bench_;
  const KvGeometry g_;
  const DType activations_;
  Stream stream_;
  CacheStep step_;
  Array cache_;
  std::vector<std::byte> stored_;
};

}  // namespace

void check_attention(const Bench& bench) {
  struct Heads {
    int heads, kv_heads, dim;
  };
  std::vector<Heads> all = {{8, 2, 128}, {4, 4, 64}, {5, 1, 80}, {4, 1, 256}};
  if (bench.report.tiny()) all = {{4, 2, 64}};
  for (const Heads& h : all)
    for (const DType activations : {DType::bf16, DType::f16, DType::f32})
      for (const DType cache : {activations, DType::f8_e4m3}) {
        if (cache == DType::f8_e4m3 && activations == DType::f32) continue;
        const KvGeometry g{h.heads, h.kv_heads, h.dim, cache};
        bench.report.guarded("attention", concat(name(activations), ", heads of ", h.dim), [&] {
          AttentionCheck check(bench, g, activations);
          check.rope(h.heads % 2 == 0);
          check.attend();
        });
      }
}

}  // namespace cohort::gpu_check
