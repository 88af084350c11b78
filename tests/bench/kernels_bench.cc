// SPDX-License-Identifier: Apache-2.0
// Speed of the kernels on shapes of real models. All layers' weights are distinct memory, as in a
// model: going round one matrix would measure a cache.
//   kernels_bench --benchmark_filter=Products
#include <benchmark/benchmark.h>

#include <cstring>
#include <memory>
#include <random>

#include "base/half.h"
#include "kernels/ops.h"

namespace cohort {
namespace {

// Blocks of any bytes with small scales; the speed does not depend on values.
Matrix random_matrix(Stream& stream, DType type, int64_t rows, int64_t columns) {
  Matrix m(columns, 0);
  std::mt19937 random(1);
  const Status status =
      m.add_part(stream, type, rows, [&](int64_t begin, int64_t end, std::byte* out) {
        const int64_t bytes = bytes_of(type, (end - begin) * columns);
        for (int64_t i = 0; i < bytes; i++) out[i] = std::byte(random() & 15);
        return Status();
      });
  COHORT_CHECK_MSG(status.ok(), status.to_string());
  return m;
}

struct Shape {
  int64_t hidden, qkv, ffn, vocab, layers;
};
constexpr Shape kSmall{576, 960, 1536, 49152, 30};        // SmolLM2-135M
constexpr Shape kWholeBlocks{512, 960, 1536, 49152, 30};  // about it, in blocks of 256

// All matrix products of a step: q4_1 layers with a q8_0 head, and what type it is asked for.
struct Products {
  Products(Stream& s, const Shape& shape, DType layer_type, DType head_type, int64_t rows)
      : stream(s),
        shape(shape),
        head(random_matrix(s, head_type, shape.vocab, shape.hidden)),
        narrow(s, rows, shape.hidden, ActivationMode::int8),
        wide(s, rows, shape.ffn, ActivationMode::int8),
        x(size_t(rows * shape.ffn), 0.5f),
        y(size_t(rows * std::max(2 * shape.ffn, shape.vocab))),
        rows(rows) {
    for (int64_t i = 0; i < shape.layers; i++) {
      matrices.push_back(random_matrix(s, layer_type, shape.qkv, shape.hidden));
      matrices.push_back(random_matrix(s, layer_type, shape.hidden, shape.hidden));
      matrices.push_back(random_matrix(s, layer_type, 2 * shape.ffn, shape.hidden));
      matrices.push_back(random_matrix(s, layer_type, shape.hidden, shape.ffn));
    }
  }
  void multiply(const Matrix& w, int64_t count) {
    Activations& a = w.columns() == shape.ffn ? wide : narrow;
    ops::prepare(stream, a, Tensor(x.data(), DType::f32, {count, w.columns()}));
    const UnitRange whole{0, 1};
    ops::matmul(stream, Tensor(y.data(), DType::f32, {1, count, w.rows()}), a, w, {&whole, 1});
  }
  void step() {
    for (const Matrix& w : matrices) multiply(w, rows);
    multiply(head, 1);
  }
  int64_t bytes() const {
    int64_t n = head.packed_bytes();
    for (const Matrix& w : matrices) n += w.packed_bytes();
    return n;
  }

  Stream& stream;
  Shape shape;
  std::vector<Matrix> matrices;
  Matrix head;
  Activations narrow, wide;
  std::vector<float> x, y;
  int64_t rows;
};

void products(benchmark::State& state, const Shape& shape, DType type, DType head) {
  Stream stream(int(state.range(1)), detect_isa());
  Products p(stream, shape, type, head, state.range(0));
  for (auto _ : state) p.step();
  state.SetItemsProcessed(state.iterations() * state.range(0));  // items a second: tokens
  state.SetBytesProcessed(state.iterations() * p.bytes());
}
BENCHMARK_CAPTURE(products, Products_q4_1, kSmall, DType::q4_1, DType::q8_0)
    ->ArgsProduct({{1, 2, 4, 8, 32, 128}, {1, 2}})
    ->UseRealTime();
BENCHMARK_CAPTURE(products, Products_q8_0, kSmall, DType::q8_0, DType::q8_0)
    ->ArgsProduct({{1, 8, 128}, {2}})
    ->UseRealTime();
BENCHMARK_CAPTURE(products, Products_q4_k, kWholeBlocks, DType::q4_k, DType::q6_k)
    ->ArgsProduct({{1, 8, 128}, {2}})
    ->UseRealTime();
BENCHMARK_CAPTURE(products, Products_bf16, kSmall, DType::bf16, DType::bf16)
    ->ArgsProduct({{1, 8, 128}, {2}})
    ->UseRealTime();

// Gate and up of one layer of experts of 2048 x 768, 8 for each token, spread evenly. Every
// iteration takes the next experts in turn, as layers do: no weights wait in a cache.
void experts(benchmark::State& state, DType type) {
  constexpr int64_t kHidden = 2048, kFfn = 768;
  constexpr int kExperts = 32, kPerToken = 8;
  Stream stream(int(state.range(1)), detect_isa());
  MatrixGroup group;
  for (int e = 0; e < kExperts; e++)
    group.matrices.push_back(random_matrix(stream, type, 2 * kFfn, kHidden));
  prepare_group(stream, group);
  const int64_t rows = state.range(0) * kPerToken;
  const int used = int(std::min<int64_t>(rows, kExperts));
  Activations scratch(stream, rows, kHidden, ActivationMode::int8);
  std::vector<float> x(size_t(rows * kHidden), 0.5f), y(size_t(rows * 2 * kFfn));
  const Tensor in(x.data(), DType::f32, {rows, kHidden}),
      out(y.data(), DType::f32, {rows, 2 * kFfn});
  std::vector<int32_t> offsets(kExperts + 1);
  int first = 0;
  for (auto _ : state) {
    for (int e = 0; e < kExperts; e++) {
      const int64_t i = (e - first + kExperts) % kExperts;  // of those in use
      const int64_t share = i < used ? rows * (i + 1) / used - rows * i / used : 0;
      offsets[size_t(e) + 1] = offsets[size_t(e)] + int32_t(share);
    }
    first = (first + used) % kExperts;
    ops::grouped_matmul(stream, out, in, group, Tensor(offsets.data(), DType::i32, {kExperts + 1}),
                        scratch);
  }
  state.SetItemsProcessed(state.iterations() * state.range(0));
  state.SetBytesProcessed(state.iterations() * group.packed_bytes() / kExperts * used);
}
BENCHMARK_CAPTURE(experts, Experts_q4_k, DType::q4_k)
    ->ArgsProduct({{1, 8, 128}, {1, 2}})
    ->UseRealTime();
BENCHMARK_CAPTURE(experts, Experts_bf16, DType::bf16)->ArgsProduct({{1, 8}, {2}})->UseRealTime();

// One matrix over and over: what the kernel does when memory is no limit.
void cached(benchmark::State& state, DType type) {
  Stream stream(1, detect_isa());
  const Matrix w = random_matrix(stream, type, 576, 512);
  const int64_t rows = state.range(0);
  Activations a(stream, rows, 512, ActivationMode::int8);
  std::vector<float> x(size_t(rows * 512), 0.5f), y(size_t(rows * 576));
  ops::prepare(stream, a, Tensor(x.data(), DType::f32, {rows, 512}));
  const UnitRange whole{0, 1};
  for (auto _ : state)
    ops::matmul(stream, Tensor(y.data(), DType::f32, {1, rows, 576}), a, w, {&whole, 1});
  state.SetBytesProcessed(state.iterations() * w.packed_bytes());
  state.SetItemsProcessed(state.iterations() * rows * 576 * 512 * 2);  // operations
}
BENCHMARK_CAPTURE(cached, q4_0, DType::q4_0)->Arg(1)->Arg(4)->Arg(16);
BENCHMARK_CAPTURE(cached, q4_1, DType::q4_1)->Arg(1)->Arg(4)->Arg(16);
BENCHMARK_CAPTURE(cached, q8_0, DType::q8_0)->Arg(1)->Arg(4)->Arg(16);
BENCHMARK_CAPTURE(cached, q5_0, DType::q5_0)->Arg(1)->Arg(4)->Arg(16);
BENCHMARK_CAPTURE(cached, q4_k, DType::q4_k)->Arg(1)->Arg(4)->Arg(16);
BENCHMARK_CAPTURE(cached, q6_k, DType::q6_k)->Arg(1)->Arg(4)->Arg(16);
BENCHMARK_CAPTURE(cached, bf16, DType::bf16)->Arg(1)->Arg(4)->Arg(16);
BENCHMARK_CAPTURE(cached, f32, DType::f32)->Arg(1)->Arg(4)->Arg(16);

// One layer of decode over `context` keys for `sequences` sequences.
void attention(benchmark::State& state, DType type, int heads, int kv_heads) {
  const KvGeometry g{heads, kv_heads, 64, type};
  const int context = int(state.range(0)), sequences = int(state.range(1));
  const int threads = int(state.range(2));
  Stream stream(threads, detect_isa());
  const int per_sequence = context / kBlockTokens + 1;
  Buffer memory(size_t(sequences * per_sequence) * g.block_bytes());
  std::vector<int32_t> blocks(size_t(sequences * per_sequence));
  for (size_t i = 0; i < blocks.size(); i++) blocks[i] = int32_t(blocks.size() - 1 - i);
  std::vector<AttentionEntry> entries;
  for (int s = 0; s < sequences; s++)
    entries.push_back({blocks.data() + s * per_sequence, s, context, 1});
  const AttentionBatch batch(g, entries, threads);
  const int64_t width = int64_t(heads) * g.dim;
  std::vector<float> q(size_t(sequences * width), 0.1f), out(q.size());
  const Tensor q_tensor(q.data(), DType::f32, {sequences, width});
  const Tensor out_tensor(out.data(), DType::f32, {sequences, width});
  for (auto _ : state) ops::attention(stream, out_tensor, q_tensor, {memory.data(), g}, batch);
  state.SetBytesProcessed(state.iterations() * sequences * int64_t(per_sequence) *
                          int64_t(g.block_bytes()));
}
BENCHMARK_CAPTURE(attention, Attention_135M_f16, DType::f16, 9, 3)
    ->ArgsProduct({{128, 1024, 4096}, {1, 8}, {1, 2}})
    ->UseRealTime();
BENCHMARK_CAPTURE(attention, Attention_135M_int8, DType::i8, 9, 3)
    ->ArgsProduct({{128, 1024, 4096}, {1, 8}, {1, 2}})
    ->UseRealTime();
BENCHMARK_CAPTURE(attention, Attention_1B_f16, DType::f16, 32, 8)
    ->ArgsProduct({{128, 1024, 4096}, {1, 8}, {1, 2}})
    ->UseRealTime();
BENCHMARK_CAPTURE(attention, Attention_1B_int8, DType::i8, 32, 8)
    ->ArgsProduct({{128, 1024, 4096}, {1, 8}, {1, 2}})
    ->UseRealTime();

void sampling(benchmark::State& state, SamplingParams params) {
  Stream stream(2, detect_isa());
  std::mt19937 random(1);
  std::normal_distribution<float> normal(0, 3);
  std::vector<float> logits(size_t(kSmall.vocab));
  for (float& x : logits) x = normal(random);
  const SampleRow row{&params, {}, {}};
  SampledToken out;
  for (auto _ : state)
    ops::sample(stream, {&out, 1}, Tensor(logits.data(), DType::f32, {1, kSmall.vocab}), {&row, 1});
}
SamplingParams with(float temperature, int top_k, float top_p) {
  SamplingParams p;
  p.temperature = temperature;
  p.top_k = top_k;
  p.top_p = top_p;
  return p;
}
BENCHMARK_CAPTURE(sampling, greedy, with(0, 0, 1));
BENCHMARK_CAPTURE(sampling, temperature, with(0.8f, 0, 1));
BENCHMARK_CAPTURE(sampling, top_k, with(0.8f, 40, 1));
BENCHMARK_CAPTURE(sampling, top_p, with(0.8f, 0, 0.95f));

void norm_and_silu(benchmark::State& state) {
  Stream stream(2, detect_isa());
  std::vector<float> x(3072, 0.5f), out(1536), weight(576, 1.0f);
  for (auto _ : state) {
    ops::rms_norm(stream, Tensor(out.data(), DType::f32, {1, 576}),
                  Tensor(x.data(), DType::f32, {1, 576}), Tensor(weight.data(), DType::f32, {576}),
                  1e-5f);
    ops::silu_mul(stream, Tensor(out.data(), DType::f32, {1, 1536}),
                  Tensor(x.data(), DType::f32, {1, 3072}));
  }
}
BENCHMARK(norm_and_silu);

}  // namespace
}  // namespace cohort

BENCHMARK_MAIN();
