// SPDX-License-Identifier: Apache-2.0
#include "worker/leader/expert_board.h"

#include <algorithm>
#include <utility>

namespace cohort {
namespace {

TimePoint now() { return std::chrono::steady_clock::now(); }

}  // namespace

ExpertBoard::ExpertBoard(ExpertOwners owners, BalancerOptions options, bool copies)
    : copies_(copies && owners.dp > 1), balancer_(std::move(owners), options) {}

Status ExpertBoard::add(const ExpertLoad& load) {
  const std::lock_guard lock(mutex_);
  COHORT_RETURN_IF_ERROR(balancer_.add(load, now()));
  for (const LayerExpertLoad& layer : load.layers) {
    auto at =
        std::ranges::lower_bound(report_.layers, layer.layer, {}, &ExpertReport::Layer::layer);
    if (at == report_.layers.end() || at->layer != layer.layer)
      at = report_.layers.insert(at, {layer.layer, std::vector<uint64_t>(layer.chosen.size(), 0)});
    for (size_t e = 0; e < layer.chosen.size(); e++) at->tokens[e] += layer.chosen[e];
  }
  return {};
}

std::vector<ExpertCopy> ExpertBoard::next_copies() {
  if (!copies_) return {};
  const std::lock_guard lock(mutex_);
  return balancer_.next(now());
}

ExpertReport ExpertBoard::report() {
  const std::lock_guard lock(mutex_);
  if (report_.layers.empty()) return {};
  ExpertReport report = report_;
  report.imbalance = balancer_.imbalance(now());
  report.copies = balancer_.copies();
  return report;
}

}  // namespace cohort
