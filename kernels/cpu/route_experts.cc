// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>
#include <limits>

#include "kernels/cpu/elementwise.h"
#include "kernels/cpu/exp2.h"
#include "kernels/cpu/isa_table.h"
#include "kernels/cpu/sigmoid.h"
#include "kernels/cpu/state.h"
#include "kernels/cpu/strided_sum.h"
#include "kernels/ops.h"

namespace cohort::ops::cpu {
namespace {

// One token's logits to its experts and weights. One thread has one at a time.
class Router {
 public:
  static size_t scratch_bytes(const Routing& r) {
    return sizeof(float) * size_t(2 * r.experts + r.groups);
  }
  // bias: null for none.
  Router(const Routing& routing, const float* bias, Weigh* weigh, std::byte* scratch)
      : routing_(routing),
        bias_(bias),
        weigh_(weigh),
        scores_(reinterpret_cast<float*>(scratch)),
        choice_(scores_ + routing.experts),
        groups_(choice_ + routing.experts) {}

  void route(const float* logits, int32_t* experts, float* weights) {
    score(logits);
    if (!add_bias()) {
      for (int32_t j = 0; j < routing_.per_token; j++) {
        experts[j] = j;
        weights[j] = std::numeric_limits<float>::quiet_NaN();
      }
      return;
    }
    rate_groups();
    choose(experts);
    std::sort(experts, experts + routing_.per_token);
    weigh_chosen(experts, weights);
  }

 private:
  void score(const float* logits) {
    const int64_t n = routing_.experts;
    if (routing_.sigmoid) {
      for (int64_t e = 0; e < n; e++) scores_[e] = sigmoid(logits[e]);
      return;
    }
    float top = logits[0];
    for (int64_t e = 1; e < n; e++) top = logits[e] > top ? logits[e] : top;
    weigh_(scores_, logits, top, kLog2e, n);
    const float sum = cohort::cpu::strided_sum(n, [this](int64_t i) { return scores_[i]; });
    for (int64_t e = 0; e < n; e++) scores_[e] /= sum;
  }

  // False where something to choose by is NaN.
  bool add_bias() {
    bool numbers = true;
    for (int64_t e = 0; e < routing_.experts; e++) {
      choice_[e] = bias_ == nullptr ? scores_[e] : scores_[e] + bias_[e];
      numbers &= choice_[e] == choice_[e];
    }
    return numbers;
  }

  void rate_groups() {
    const int32_t size = routing_.experts / routing_.groups;
    for (int32_t g = 0; g < routing_.groups && routing_.groups > 1; g++) {
      constexpr float kLowest = -std::numeric_limits<float>::infinity();
      float best = kLowest, second = kLowest;
      for (const float* c = choice_ + g * size; c < choice_ + (g + 1) * size; c++) {
        second = std::max(second, std::min(best, *c));
        best = std::max(best, *c);
      }
      groups_[g] = routing_.two_best && size > 1 ? best + second : best;
    }
  }

  bool may_choose(int32_t group) const {
    int32_t better = 0;
    for (int32_t g = 0; g < routing_.groups; g++)
      better += groups_[g] > groups_[group] || (groups_[g] == groups_[group] && g < group);
    return better < routing_.groups_per_token;
  }

  // The best experts of the groups that may be chosen from, best first: each new one, in the order
  // of numbers, moves past those that are worse.
  void choose(int32_t* experts) const {
    const int32_t size = routing_.experts / routing_.groups, k = routing_.per_token;
    int32_t chosen = 0;
    for (int32_t g = 0; g < routing_.groups && k > 0; g++) {
      if (routing_.groups_per_token < routing_.groups && !may_choose(g)) continue;
      for (int32_t e = g * size; e < (g + 1) * size; e++) {
        if (chosen == k && !(choice_[e] > choice_[experts[k - 1]])) continue;
        int32_t at = chosen < k ? chosen++ : k - 1;
        for (; at > 0 && choice_[e] > choice_[experts[at - 1]]; at--) experts[at] = experts[at - 1];
        experts[at] = e;
      }
    }
  }

  void weigh_chosen(const int32_t* experts, float* weights) const {
    float sum = 0;
    for (int32_t j = 0; j < routing_.per_token; j++) sum += weights[j] = scores_[experts[j]];
    sum += 1e-20f;  // all may be 0
    for (int32_t j = 0; j < routing_.per_token; j++)
      weights[j] = (routing_.normalise ? weights[j] / sum : weights[j]) * routing_.scale;
  }

  const Routing& routing_;
  const float* bias_;
  Weigh* weigh_;
  float *scores_, *choice_;  // [experts]: scores, and what is chosen by
  float* groups_;            // [groups]: how good each is
};

}  // namespace

void route_experts(Stream& stream, Tensor experts, Tensor weights, Tensor logits, Tensor bias,
                   const Routing& routing) {
  auto& state = cohort::cpu::State::of(stream);
  state.reserve(Router::scratch_bytes(routing));
  Weigh* weigh = cpu_kernels(stream.isa()).weigh;
  const int64_t tokens = logits.dim(0), n = routing.experts, k = routing.per_token;
  const auto route = [&](int thread, int64_t begin, int64_t end) {
    Router router(routing, bias.rank() > 0 ? bias.f32() : nullptr, weigh, state.scratch(thread));
    for (int64_t t = begin; t < end; t++)
      router.route(logits.f32() + t * n, experts.i32() + t * k, weights.f32() + t * k);
  };
  // A region costs what a thread needs for some thousand logits.
  if (logits.elements() < 2048) return route(0, 0, tokens);
  const int64_t threads = stream.threads().size();
  stream.threads().run([&](int thread) {
    route(thread, tokens * thread / threads, tokens * (thread + 1) / threads);
  });
}

}  // namespace cohort::ops::cpu
