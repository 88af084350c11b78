// SPDX-License-Identifier: Apache-2.0
// A step that resembles an earlier one takes no memory.
#include <gtest/gtest.h>

#include <atomic>
#include <cstdlib>
#include <new>

#include "kernels/ops.h"
#include "tests/kernels/reference.h"
#include "tests/kernels/streams.h"

namespace {
std::atomic<int64_t> allocations{0};
}

// Not inlined: compilers would see malloc meet delete.
[[gnu::noinline]] void* operator new(size_t size) {
  allocations++;
  if (void* p = std::malloc(size)) return p;
  throw std::bad_alloc();
}
[[gnu::noinline]] void operator delete(void* p) noexcept { std::free(p); }
[[gnu::noinline]] void operator delete(void* p, size_t) noexcept { std::free(p); }

namespace cohort {
namespace {

// Every op once, as a layer and the head use them, in a model of nothing but one layer.
class Layer {
 public:
  Layer(Stream& stream, ActivationMode mode)
      : stream_(stream),
        random_(1),
        activations_(stream, kRows, kHidden, mode),
        expert_rows_(stream, kPairs, kHidden, mode) {
    const auto w = [&](DType type, int64_t rows) {
      return reference::random_weights(type, rows, kHidden, random_);
    };
    const reference::Weights q = w(DType::q4_1, 128), k = w(DType::q8_0, 64),
                             v = w(DType::q6_k, 64);
    const reference::Weights gate_up = w(DType::q4_0, 2 * kHidden), table = w(DType::bf16, kVocab);
    qkv_ = reference::pack(stream, 0, {&q, &k, &v});
    gate_up_ = reference::pack(stream, 256, {&gate_up});
    table_ = reference::pack(stream, 0, {&table});
    memory_.resize(4 * geometry_.block_bytes());
    for (int e = 0; e < 2; e++) {
      const reference::Weights expert = w(e == 0 ? DType::q4_k : DType::q8_0, kHidden);
      experts_.matrices.push_back(reference::pack(stream, 0, {&expert}));
    }
    prepare_group(stream, experts_);
    params_.top_k = 40;
    params_.top_p = 0.9f;
    params_.min_p = 0.01f;
    params_.repetition_penalty = 1.1f;
  }

  void step(const AttentionBatch& batch) {
    const Tensor x = view(x_, kRows, kHidden), out = view(out_, kRows, kHidden);
    ops::embedding(stream_, x, table_, Tensor(ids_, DType::i32, {kRows}), 0);
    const Tensor norm(norm_, DType::f32, {kHidden});
    ops::rms_norm(stream_, out, x, norm, 1e-5f);
    ops::prepare(stream_, activations_, out);
    ops::rms_norm_prepare(stream_, activations_, out, x, norm, 1e-5f);
    const UnitRange whole{0, 1};
    ops::matmul(stream_, Tensor(qkv_out_, DType::f32, {1, kRows, 256}), activations_, qkv_,
                {&whole, 1});
    const KvLayer kv{memory_.data(), geometry_};
    const Tensor q = view(q_, kRows, 128), attended = view(attended_, kRows, 128);
    ops::rope_store(stream_, q, kv, view(qkv_out_, kRows, 256), batch, rope_);
    ops::attention(stream_, attended, q, kv, batch);
    int32_t errors[kRows] = {-1, -1, -1};
    ops::add_residual(stream_, view(x_, 1, 128), view(attended_, 1, 128),
                      Tensor(errors, DType::i32, {1}), 1);
    const UnitRange units{0, kHidden / 256};
    ops::matmul(stream_, Tensor(wide_, DType::f32, {1, kRows, 2 * kHidden}), activations_, gate_up_,
                {&units, 1});
    ops::silu_mul(stream_, out, view(wide_, kRows, 2 * kHidden));
    ops::silu_mul_prepare(stream_, activations_, out, view(wide_, kRows, 2 * kHidden));
    ops::add_rms_norm_prepare(stream_, activations_, out, x, out, norm, 1e-5f,
                              Tensor(errors, DType::i32, {kRows}), 1);
    ops::find_not_finite(stream_, Tensor(errors, DType::i32, {kRows}), out, 1);
    const int32_t last[] = {kRows - 1};
    ops::gather_rows(stream_, view(x_, 1, kHidden), out, Tensor(last, DType::i32, {1}));
    ops::prepare(stream_, activations_, view(x_, 1, kHidden));
    ops::matmul(stream_, Tensor(logits_, DType::f32, {1, 1, kVocab}), activations_, table_,
                {&whole, 1});
    SampledToken token;
    const SampleRow row{&params_, {}, {}};
    ops::sample(stream_, {&token, 1}, view(logits_, 1, kVocab), {&row, 1});
  }

  // Two of four experts for each token, of which two are here.
  void feed_forward() {
    const Routing routing{.experts = 4, .per_token = 2, .normalise = true};
    int32_t numbers[kPairs], offsets[3], rows[kPairs], places[kPairs];
    float weights[kPairs];
    const int32_t local[] = {0, -1, 1, -1};
    const Tensor x = view(x_, kRows, kHidden), gate(norm_, DType::f32, {kRows, 1});
    const Tensor chosen(numbers, DType::i32, {kRows, 2}), placed(places, DType::i32, {kRows, 2});
    const Tensor begins(offsets, DType::i32, {3}), taken(rows, DType::i32, {kPairs});
    const Tensor in = view(wide_, kPairs, kHidden), y = view(expert_out_, kPairs, kHidden);
    ops::route_experts(stream_, chosen, view(weights, kRows, 2), view(logits_, kRows, 4), Tensor(),
                       routing);
    ops::group_tokens(stream_, begins, taken, placed, chosen, Tensor(local, DType::i32, {4}));
    ops::take_rows(stream_, in, x, taken);
    ops::grouped_matmul(stream_, y, in, experts_, begins, expert_rows_);
    const UnitRange all{0, 4};
    ops::combine_experts(stream_, Tensor(out_, DType::f32, {1, kRows, kHidden}), y, placed, chosen,
                         view(weights, kRows, 2), {&all, 1});
    ops::gate_rows(stream_, view(out_, kRows, kHidden), gate);
    ops::add(stream_, x, view(out_, kRows, kHidden));
    ops::add_bias(stream_, x, Tensor(norm_, DType::f32, {kHidden}));
    ops::norm_heads(stream_, x, 0, 4, Tensor(norm_, DType::f32, {128}), 1e-5f);
  }

  static constexpr int64_t kRows = 3, kPairs = 2 * kRows, kHidden = 512, kVocab = 1000;
  KvGeometry geometry_{4, 2, 32, DType::f16};
  SamplingParams params_;

 private:
  static Tensor view(float* p, int64_t rows, int64_t columns) {
    return Tensor(p, DType::f32, {rows, columns});
  }

  Stream& stream_;
  std::mt19937 random_;
  Activations activations_, expert_rows_;
  MatrixGroup experts_;
  Matrix qkv_, gate_up_, table_;
  RopeTable rope_{*make_cpu_device(), {1, 0.5, 0.25}, 64, true};
  std::vector<std::byte> memory_;
  int32_t ids_[kRows] = {1, 999, 5};
  float norm_[kHidden] = {1, 2}, x_[kRows * kHidden], out_[kRows * kHidden], q_[kRows * 128];
  float qkv_out_[kRows * 256], attended_[kRows * 128], wide_[kRows * 2 * kHidden];
  float logits_[kVocab], expert_out_[kPairs * kHidden];
};

TEST(SteadyState, AStepAllocatesNothing) {
  for (Isa isa : isas())
    for (ActivationMode mode : {ActivationMode::int8, ActivationMode::f32, ActivationMode::bf16}) {
      Stream stream(2, isa);
      const auto layer = std::make_unique<Layer>(stream, mode);
      const int32_t blocks[] = {3, 1};
      const AttentionBatch batch(layer->geometry_, {{blocks, 0, 4, 3}}, 2);
      layer->step(batch);
      layer->feed_forward();
      const int64_t before = allocations;
      EXPECT_GT(before, 0);  // they are counted
      layer->step(batch);
      layer->feed_forward();
      EXPECT_EQ(allocations, before);
    }
}

}  // namespace
}  // namespace cohort
