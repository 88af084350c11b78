// SPDX-License-Identifier: Apache-2.0
#include "worker/layers/experts.h"

#include <algorithm>
#include <utility>

namespace cohort {
namespace {

// Where sums are in any order a rank sends one piece, and it is added up in place.
std::vector<UnitRange> pieces_of(const Group& tp, const TreePlan& plan) {
  if (tp.ordered()) return plan.pieces(tp.rank());
  return {{0, plan.units()}};
}

}  // namespace

Routing routing_of(const ExpertsConfig& c) {
  return {.experts = int32_t(c.count),
          .per_token = int32_t(c.per_token),
          .sigmoid = c.score == ExpertsConfig::Score::sigmoid,
          .groups = int32_t(c.groups),
          .groups_per_token = int32_t(c.groups_per_token),
          .two_best = c.group_score == ExpertsConfig::GroupScore::two_largest,
          .normalise = c.normalise,
          .scale = float(c.scale)};
}

ExpertLayer::ExpertLayer(ExpertWeights& weights, int64_t layer, ExpertPlacement placement,
                         const ExpertParts& parts)
    : weights_(weights),
      layer_(layer),
      routing_(routing_of(parts.config)),
      router_(weights.router),
      placement_(std::move(placement)),
      tp_(parts.tp),
      plan_(parts.plan),
      ranges_(pieces_of(parts.tp, parts.plan)),
      dp_(parts.dp),
      shared_(parts.config.shared_ffn > 0 ? std::make_unique<FeedForward>(
                                                weights.shared, layer, parts.tp, parts.shared_plan)
                                          : nullptr),
      shared_gate_(parts.config.shared_gate ? std::make_unique<ColumnParallel>(weights.shared_gate)
                                            : nullptr),
      load_(size_t(parts.config.count), 0) {}

Tensor ExpertLayer::output(Step& step) { return step.work.experts->sum.rows(step.rows); }

Task ExpertLayer::forward(Step& step, Tensor out, Tensor h) {
  ExpertWorkspace& work = *step.work.experts;
  const Tensor chosen = work.chosen.rows(step.rows), weights = work.weights.rows(step.rows);
  choose(step);
  Route route;
  step.where.set(Operation::dispatch, layer_);
  const auto meanwhile = [&] {
    if (shared_ != nullptr) shared_->widen(step);
  };
  co_await work.exchange->dispatch(route, placement_, h, chosen, step.group_rows, meanwhile);
  step.where.set(Operation::experts, layer_);
  const Tensor outputs = compute(step, route);
  step.where.set(Operation::combine, layer_);
  co_await work.exchange->combine(route, outputs);
  step.where.set(Operation::experts_output, layer_);
  const Tensor pieces(work.pieces.data(), DType::f32,
                      {int64_t(ranges_.size()), step.rows, h.dim(1)});
  if (tp_.ordered()) {
    ops::combine_experts(step.stream, pieces, route.outputs, route.places, chosen, weights,
                         ranges_);
    co_await tp_.all_reduce(plan_, pieces, out);
  } else {
    const Tensor one(out.data(), DType::f32, {1, step.rows, h.dim(1)});
    ops::combine_experts(step.stream, one, route.outputs, route.places, chosen, weights, ranges_);
    co_await tp_.add_up(out);
  }
  if (shared_ != nullptr) co_await add_shared(step, out, h);
}

void ExpertLayer::choose(Step& step) {
  ExpertWorkspace& work = *step.work.experts;
  step.where.set(Operation::router, layer_);
  const Tensor logits = work.logits.rows(step.rows), chosen = work.chosen.rows(step.rows);
  router_.multiply(step.stream, step.work.linear.activations, logits);
  ops::route_experts(step.stream, chosen, work.weights.rows(step.rows), logits,
                     weights_.router_bias.tensor(), routing_);
  if (step.stream.kind() == DeviceKind::cpu) count(chosen);
}

void ExpertLayer::count(const Tensor& chosen) {
  for (int64_t i = 0; i < chosen.elements(); i++) load_[size_t(chosen.i32()[i])]++;
}

// The outputs A [n, hidden] of this rank's experts for the rows that came.
Tensor ExpertLayer::compute(Step& step, const Route& route) {
  ExpertWorkspace& work = *step.work.experts;
  const int64_t n = route.x.dim(0);
  const Tensor gate_up = work.gate_up.rows(n), ffn = work.ffn.rows(n);
  const Tensor outputs = work.outputs.rows(n);
  ops::grouped_matmul(step.stream, gate_up, route.x, weights_.gate_up, route.offsets,
                      work.activations);
  ops::silu_mul(step.stream, ffn, gate_up);
  ops::grouped_matmul(step.stream, outputs, ffn, weights_.down, route.offsets, work.activations);
  return outputs;
}

Task ExpertLayer::add_shared(Step& step, Tensor out, Tensor h) {
  ExpertWorkspace& work = *step.work.experts;
  const Tensor shared = work.shared.rows(step.rows);
  co_await shared_->narrow(step, shared);
  if (shared_gate_ != nullptr) {
    const Tensor gate = work.gate.rows(step.rows);
    shared_gate_->forward(step.stream, step.work.linear, gate, h);
    ops::gate_rows(step.stream, shared, gate);
  }
  ops::add(step.stream, out, shared);
}

std::vector<int64_t> ExpertLayer::take_load() {
  std::vector<int64_t> load(load_.size(), 0);
  return std::exchange(load_, std::move(load));
}

void ExpertLayer::change(const ExpertCopy& copy, ExpertMatrices* matrices) {
  const std::vector<int> before = placement_.held(dp_);
  const bool changed =
      copy.add ? placement_.add(copy.expert, copy.dp) : placement_.drop(copy.expert, copy.dp);
  if (!changed || copy.dp != dp_) return;
  const auto at = std::lower_bound(before.begin(), before.end(), copy.expert) - before.begin();
  auto &gate_up = weights_.gate_up.matrices, &down = weights_.down.matrices;
  if (copy.add) {
    gate_up.insert(gate_up.begin() + at, std::move(matrices->gate_up));
    down.insert(down.begin() + at, std::move(matrices->down));
  } else {
    gate_up.erase(gate_up.begin() + at);
    down.erase(down.begin() + at);
  }
}

}  // namespace cohort
