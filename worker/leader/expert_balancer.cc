// SPDX-License-Identifier: Apache-2.0
#include "worker/leader/expert_balancer.h"

#include <algorithm>
#include <utility>

#include "base/check.h"

namespace cohort {
namespace {

std::vector<ColumnBalance> columns_of(const ExpertOwners& o) {
  std::vector<ColumnBalance> columns;
  for (int tp = 0; tp < o.tp; tp++) {
    std::vector<UnitRange> owned;
    std::vector<double> weights;
    for (int dp = 0; dp < o.dp; dp++) {
      owned.push_back(o.experts > 0 ? o.owned[size_t(tp * o.dp + dp)] : UnitRange{});
      weights.push_back(o.shares.empty() ? 1.0 : o.shares[size_t(dp * o.tp + tp)]);
    }
    columns.emplace_back(std::move(owned), std::move(weights), o.room);
  }
  return columns;
}

}  // namespace

ExpertBalancer::ExpertBalancer(ExpertOwners owners, BalancerOptions options)
    : owners_(std::move(owners)), options_(options), columns_(columns_of(owners_)) {
  sum_.chosen.assign(owners_.layers.size(),
                     std::vector<int64_t>(size_t(owners_.dp * owners_.experts), 0));
  Layer layer;
  for (const ColumnBalance& column : columns_) layer.columns.push_back(column.owners());
  layer.unneeded.resize(columns_.size());
  layers_.assign(owners_.layers.size(), layer);
}

int64_t& ExpertBalancer::chosen(Slice& slice, size_t layer, int dp, int expert) const {
  return slice.chosen[layer][size_t(dp * owners_.experts + expert)];
}

Status ExpertBalancer::add(const ExpertLoad& load, TimePoint now) {
  const auto known = [&](const LayerExpertLoad& layer) {
    return std::ranges::binary_search(owners_.layers, layer.layer) &&
           int(layer.chosen.size()) == owners_.experts;
  };
  if (load.dp < 0 || load.dp >= owners_.dp || !std::ranges::all_of(load.layers, known))
    return invalid_argument("it told the load of experts that the model does not have");
  forget(now);
  if (load.layers.empty()) return {};
  if (slices_.empty() || now - slices_.back().begin >= options_.slice)
    slices_.push_back(
        {now, std::vector<std::vector<int64_t>>(owners_.layers.size(),
                                                std::vector<int64_t>(sum_.chosen[0].size(), 0))});
  for (const LayerExpertLoad& layer : load.layers) {
    const auto at = std::ranges::lower_bound(owners_.layers, layer.layer) - owners_.layers.begin();
    for (int e = 0; e < owners_.experts; e++) {
      chosen(slices_.back(), size_t(at), load.dp, e) += layer.chosen[size_t(e)];
      chosen(sum_, size_t(at), load.dp, e) += layer.chosen[size_t(e)];
    }
  }
  return {};
}

void ExpertBalancer::forget(TimePoint now) {
  while (!slices_.empty() && now - slices_.front().begin >= options_.window) {
    for (size_t layer = 0; layer < sum_.chosen.size(); layer++)
      for (size_t i = 0; i < sum_.chosen[layer].size(); i++)
        sum_.chosen[layer][i] -= slices_.front().chosen[layer][i];
    slices_.pop_front();
  }
}

void ExpertBalancer::load_columns(size_t layer) {
  for (ColumnBalance& column : columns_) {
    std::vector<std::vector<double>> rows(size_t(owners_.dp));
    for (int dp = 0; dp < owners_.dp; dp++)
      for (int e = column.experts().begin; e < column.experts().end; e++)
        rows[size_t(dp)].push_back(double(chosen(sum_, layer, dp, e)));
    column.set_rows(std::move(rows));
  }
}

std::vector<ExpertCopy> ExpertBalancer::next(TimePoint now) {
  if (owners_.dp == 1 || layers_.empty()) return {};
  forget(now);
  // One layer for each plan, so that a look takes no time that a step would miss.
  for (size_t i = 0; pending_.empty() && i < layers_.size(); i++) {
    const size_t layer = turn_;
    turn_ = (turn_ + 1) % layers_.size();
    if (now < layers_[layer].look) continue;
    layers_[layer].look = now + options_.interval;
    look(layer);
    break;
  }
  std::vector<ExpertCopy> copies;
  for (int adds = 0; !pending_.empty(); pending_.pop_front()) {
    if (pending_.front().add && adds++ == options_.adds_per_plan) break;
    copies.push_back(pending_.front());
  }
  return copies;
}

void ExpertBalancer::look(size_t layer) {
  load_columns(layer);
  for (size_t column = 0; column < columns_.size(); column++) look(layer, column);
  // Room is made before it is taken.
  std::stable_partition(pending_.begin(), pending_.end(),
                        [](const ExpertCopy& copy) { return !copy.add; });
}

void ExpertBalancer::look(size_t layer, size_t at) {
  const ColumnBalance& column = columns_[at];
  const double mean = column.mean();
  if (mean < options_.least_rows) return;
  const Holders& present = layers_[layer].columns[at];
  const double most = std::ranges::max(column.loads(present));
  if (most > options_.uneven * mean) {
    Holders target = column.spread(options_.enough, options_.least);
    if (most - std::ranges::max(column.loads(target)) >= options_.gain * mean)
      return change(layer, at, std::move(target));
  }
  drop_unneeded(layer, at);
}

bool ExpertBalancer::needed(size_t layer, size_t at, int e, int d) const {
  const ColumnBalance& column = columns_[at];
  const Holders& present = layers_[layer].columns[at];
  if (column.served(present, e, d) < options_.cold * column.mean()) return false;
  Holders without = present;
  std::erase(without[size_t(e)], d);
  const auto most = [&](const std::vector<double>& loads) {
    double most = 0;
    for (const int holder : present[size_t(e)]) most = std::max(most, loads[size_t(holder)]);
    return most;
  };
  const double bound = std::max(most(column.loads(present)), options_.spare * column.mean());
  return most(column.loads(without)) > bound;
}

// At most one at a look: the others may be needed once it has gone.
void ExpertBalancer::drop_unneeded(size_t layer, size_t at) {
  const ColumnBalance& column = columns_[at];
  const Holders present = layers_[layer].columns[at];
  auto& looks = layers_[layer].unneeded[at];
  bool dropped = false;
  for (int e = 0; e < int(present.size()); e++) {
    for (const int d : present[size_t(e)]) {
      if (d == column.owner(column.experts().begin + e)) continue;
      int& count = looks[{e, d}];
      count = needed(layer, at, e, d) ? 0 : count + 1;
      if (count < options_.patience || std::exchange(dropped, true)) continue;
      Holders target = present;
      std::erase(target[size_t(e)], d);
      change(layer, at, std::move(target));
      looks.erase({e, d});
    }
  }
}

void ExpertBalancer::change(size_t layer, size_t at, Holders target) {
  Holders& present = layers_[layer].columns[at];
  const int first = columns_[at].experts().begin;
  const auto tell = [&](int e, int d, bool add) {
    pending_.push_back({owners_.layers[layer], first + e, d, add});
    layers_[layer].unneeded[at].erase({e, d});
  };
  for (int e = 0; e < int(present.size()); e++) {
    const std::vector<int>&before = present[size_t(e)], &after = target[size_t(e)];
    for (const int d : before)
      if (!std::ranges::binary_search(after, d)) tell(e, d, false);
    for (const int d : after)
      if (!std::ranges::binary_search(before, d)) tell(e, d, true);
  }
  present = std::move(target);
}

double ExpertBalancer::imbalance(TimePoint now) {
  forget(now);
  double most = 0, mean = 0;
  for (size_t layer = 0; layer < layers_.size(); layer++) {
    load_columns(layer);
    double largest = 0, sum = 0;
    for (size_t at = 0; at < columns_.size(); at++) {
      const auto loads = columns_[at].loads(layers_[layer].columns[at]);
      largest = std::max(largest, std::ranges::max(loads));
      for (const double load : loads) sum += load;
    }
    most += largest;
    mean += sum / double(owners_.tp * owners_.dp);
  }
  return mean > 0 ? most / mean : 0;
}

int ExpertBalancer::copies() const {
  int copies = 0;
  for (const Layer& layer : layers_)
    for (const Holders& column : layer.columns)
      for (const std::vector<int>& holders : column) copies += int(holders.size()) - 1;
  return copies;
}

}  // namespace cohort
