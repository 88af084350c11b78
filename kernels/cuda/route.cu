// SPDX-License-Identifier: Apache-2.0
// From router logits to experts and weights, in the CPU's arithmetic (docs/arithmetic.md section
// 8), so that both choose alike. A warp has a token. 4 bytes per logit and some 20 instructions:
// bound by latency.
#include "kernels/cuda/elements.h"
#include "kernels/cuda/exp2_device.h"
#include "kernels/cuda/state.h"
#include "kernels/ops.h"

namespace cohort::cuda {
namespace {

constexpr int kWarps = 4;
constexpr unsigned kAll = 0xffffffffu;
constexpr int kMostExperts = 1024, kMostChosen = 32;
constexpr unsigned long long kNone = ~0ull;

struct Routes {
  int32_t* experts;
  float* weights;
  const float *logits, *bias;  // bias: null for none
  int tokens;
  Routing routing;
};

GPU_FN int lane_of_warp() { return int(threadIdx.x) % 32; }

// Lower is better: the larger value, then the lower number. -0 is 0.
GPU_FN unsigned long long order_of(float value, int expert) {
  const uint32_t bits = __float_as_uint(__fadd_rn(value, 0.0f));
  const uint32_t ascending = bits & 0x80000000u ? ~bits : bits | 0x80000000u;
  return static_cast<unsigned long long>(~ascending) << 32 | unsigned(expert);
}

// One warp's token. Lane i has experts i, i + 32, .. and groups likewise.
class Router {
 public:
  static int floats(const Routing& r) { return 2 * r.experts + r.groups + r.per_token; }
  GPU_FN Router(const Routing& r, float* shared)
      : r_(r),
        scores_(shared),
        choice_(scores_ + r.experts),
        groups_(choice_ + r.experts),
        chosen_(reinterpret_cast<int*>(groups_ + r.groups)) {}

  GPU_FN void score(const float* logits) {
    if (r_.sigmoid) {
      for (int e = lane_of_warp(); e < r_.experts; e += 32) scores_[e] = sigmoid_of(logits[e]);
      return;
    }
    float top = __uint_as_float(0xff800000u);
    for (int e = lane_of_warp(); e < r_.experts; e += 32) top = fmaxf(top, logits[e]);
#pragma unroll
    for (int apart = 16; apart > 0; apart /= 2) top = fmaxf(top, __shfl_xor_sync(kAll, top, apart));
    for (int e = lane_of_warp(); e < r_.experts; e += 32)
      scores_[e] = exp2_of(__fmul_rn(__fsub_rn(logits[e], top), kLog2e));
    __syncwarp();
    const float sum = strided_sum();
    __syncwarp();  // shuffles order no memory
    for (int e = lane_of_warp(); e < r_.experts; e += 32) scores_[e] = __fdiv_rn(scores_[e], sum);
  }

  // False where something to choose by is NaN.
  GPU_FN bool add_bias(const float* bias) {
    bool good = true;
    for (int e = lane_of_warp(); e < r_.experts; e += 32) {
      choice_[e] = bias == nullptr ? scores_[e] : __fadd_rn(scores_[e], bias[e]);
      good &= choice_[e] == choice_[e];
    }
    __syncwarp();  // other lanes' values are read next
    return __all_sync(kAll, good) != 0;
  }

  // Makes what may not be chosen NaN.
  GPU_FN void close_groups() {
    if (r_.groups_per_token >= r_.groups) return;
    const int size = r_.experts / r_.groups;
    for (int g = lane_of_warp(); g < r_.groups; g += 32)
      groups_[g] = rate(choice_ + g * size, size);
    __syncwarp();
    for (int e = lane_of_warp(); e < r_.experts; e += 32)
      if (!may_choose(e / size)) choice_[e] = __uint_as_float(0x7fc00000u);
  }

  // The chosen experts, ascending, to chosen_.
  GPU_FN void choose() {
    int mine = r_.experts;  // of lane j: the j-th best
    for (int j = 0; j < r_.per_token; j++) {
      const int e = best();
      if (e % 32 == lane_of_warp()) choice_[e] = __uint_as_float(0x7fc00000u);
      if (j == lane_of_warp()) mine = e;
    }
    int lower = 0;
    for (int j = 0; j < r_.per_token; j++) lower += __shfl_sync(kAll, mine, j) < mine;
    if (lane_of_warp() < r_.per_token) chosen_[lower] = mine;
    __syncwarp();
  }

  GPU_FN void put(int32_t* experts, float* weights) const {
    const int lane = lane_of_warp();
    const bool has = lane < r_.per_token;
    const int e = has ? chosen_[lane] : 0;
    const float score = scores_[e];
    float sum = 0;
    for (int j = 0; j < r_.per_token; j++) sum = __fadd_rn(sum, __shfl_sync(kAll, score, j));
    sum = __fadd_rn(sum, 1e-20f);  // all may be 0
    if (!has) return;
    experts[lane] = e;
    weights[lane] = __fmul_rn(r_.normalise ? __fdiv_rn(score, sum) : score, r_.scale);
  }

 private:
  // Element i goes to partial sum i % 16, then sums 8, 4, 2 and 1 apart are added.
  GPU_FN float strided_sum() const {
    float sum = 0;
    for (int e = lane_of_warp() % 16; e < r_.experts; e += 16) sum = __fadd_rn(sum, scores_[e]);
#pragma unroll
    for (int apart = 8; apart > 0; apart /= 2)
      sum = __fadd_rn(sum, __shfl_xor_sync(kAll, sum, apart));
    return sum;
  }

  GPU_FN float rate(const float* choice, int size) const {
    float best = __uint_as_float(0xff800000u), second = best;
    for (int i = 0; i < size; i++) {
      second = fmaxf(second, fminf(best, choice[i]));
      best = fmaxf(best, choice[i]);
    }
    return r_.two_best && size > 1 ? __fadd_rn(best, second) : best;
  }

  GPU_FN bool may_choose(int group) const {
    int better = 0;
    for (int g = 0; g < r_.groups; g++)
      better += groups_[g] > groups_[group] || (groups_[g] == groups_[group] && g < group);
    return better < r_.groups_per_token;
  }

  // Of all that are not NaN; the same on all lanes.
  GPU_FN int best() const {
    unsigned long long key = kNone;
    for (int e = lane_of_warp(); e < r_.experts; e += 32) {
      const unsigned long long other = order_of(choice_[e], e);
      if (choice_[e] == choice_[e] && other < key) key = other;
    }
#pragma unroll
    for (int apart = 16; apart > 0; apart /= 2) {
      const unsigned long long other = __shfl_xor_sync(kAll, key, apart);
      key = other < key ? other : key;
    }
    return int(key & 0xffffffffu);
  }

  const Routing& r_;
  float *scores_, *choice_;  // [experts]: scores, and what is chosen by
  float* groups_;            // [groups]: how good each is
  int* chosen_;              // [per_token]
};

__global__ void __launch_bounds__(32 * kWarps) route_kernel(Routes r, int floats) {
  const int warp = int(threadIdx.x) / 32, token = int(blockIdx.x) * kWarps + warp;
  if (token >= r.tokens) return;
  Router router(r.routing, gpu::dynamic_shared<float>() + warp * floats);
  int32_t* experts = r.experts + int64_t(token) * r.routing.per_token;
  float* weights = r.weights + int64_t(token) * r.routing.per_token;
  router.score(r.logits + int64_t(token) * r.routing.experts);
  if (router.add_bias(r.bias)) {
    router.close_groups();
    router.choose();
    router.put(experts, weights);
  } else if (lane_of_warp() < r.routing.per_token) {
    experts[lane_of_warp()] = lane_of_warp();
    weights[lane_of_warp()] = __uint_as_float(0x7fc00000u);
  }
}

}  // namespace
}  // namespace cohort::cuda

namespace cohort::ops::cuda {
using namespace cohort::cuda;

void route_experts(Stream& stream, Tensor experts, Tensor weights, Tensor logits, Tensor bias,
                   const Routing& routing) {
  COHORT_CHECK_LE(routing.experts, kMostExperts);
  COHORT_CHECK_LE(routing.per_token, kMostChosen);
  if (routing.per_token == 0) return;
  const Routes r{experts.i32(),      weights.f32(),
                 logits.f32(),       bias.rank() > 0 ? bias.f32() : nullptr,
                 int(logits.dim(0)), routing};
  const int floats = Router::floats(routing);
  cuda_check(gpu::launch(route_kernel, dim3(divide_up(r.tokens, kWarps)), dim3(32 * kWarps),
                         size_t(kWarps * floats) * sizeof(float), compute(stream), r, floats),
             "route_experts");
}

}  // namespace cohort::ops::cuda
