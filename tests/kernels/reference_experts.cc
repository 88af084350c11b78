// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <optional>

#include "tests/kernels/reference.h"

namespace cohort::reference {
namespace {

// What is chosen by: a sum of terms.
struct Rated {
  std::vector<double> terms;
  double value() const { return std::accumulate(terms.begin(), terms.end(), 0.0); }
  double magnitude() const {
    return std::accumulate(terms.begin(), terms.end(), 0.0,
                           [](double sum, double x) { return sum + std::fabs(x); });
  }
};

// The numbers of the `count` best, best first; of equal ones the lower. gap: see Routed.
std::vector<int32_t> best(const std::vector<Rated>& rated, const std::vector<int32_t>& among,
                          size_t count, double& gap) {
  std::vector<int32_t> order = among;
  std::stable_sort(order.begin(), order.end(), [&](int32_t a, int32_t b) {
    return rated[size_t(a)].value() > rated[size_t(b)].value();
  });
  if (count > 0 && count < order.size()) {
    const Rated &last = rated[size_t(order[count - 1])], &next = rated[size_t(order[count])];
    const double magnitude = std::max(last.magnitude(), next.magnitude());
    // Of the same terms it is a true tie.
    if (last.terms != next.terms) gap = std::min(gap, (last.value() - next.value()) / magnitude);
  }
  order.resize(count);
  return order;
}

std::vector<double> scores(std::span<const float> logits, bool by_sigmoid) {
  std::vector<double> out;
  const double top = *std::max_element(logits.begin(), logits.end());
  for (double x : logits) out.push_back(by_sigmoid ? sigmoid(x) : std::exp(x - top));
  if (by_sigmoid) return out;
  const double sum = std::accumulate(out.begin(), out.end(), 0.0);
  for (double& x : out) x /= sum;
  return out;
}

std::vector<int32_t> count_up(int32_t begin, int32_t end) {
  std::vector<int32_t> out(size_t(end - begin));
  std::iota(out.begin(), out.end(), begin);
  return out;
}

}  // namespace

Routed route(std::span<const float> logits, std::span<const float> bias, const Routing& r) {
  const std::vector<double> score = scores(logits, r.sigmoid);
  std::vector<Rated> rated, groups;
  for (size_t e = 0; e < score.size(); e++) {
    rated.push_back({{score[e], bias.empty() ? 0 : double(bias[e])}});
  }
  Routed out{{}, {}, std::numeric_limits<double>::infinity()};
  const int32_t size = r.experts / r.groups;
  double ignored = 0;
  for (int32_t g = 0; g < r.groups; g++) {
    Rated sum;
    const size_t counted = r.two_best && size > 1 ? 2 : 1;
    for (int32_t e : best(rated, count_up(g * size, (g + 1) * size), counted, ignored))
      for (double term : rated[size_t(e)].terms) sum.terms.push_back(term);
    groups.push_back(sum);
  }
  std::vector<int32_t> open;
  for (int32_t g : best(groups, count_up(0, r.groups), size_t(r.groups_per_token), out.gap))
    for (int32_t e = g * size; e < (g + 1) * size; e++) open.push_back(e);
  std::sort(open.begin(), open.end());
  out.experts = best(rated, open, size_t(r.per_token), out.gap);
  std::sort(out.experts.begin(), out.experts.end());
  for (int32_t e : out.experts) out.weights.push_back(score[size_t(e)]);
  const double sum = std::accumulate(out.weights.begin(), out.weights.end(), 0.0);
  for (double& w : out.weights) w = (r.normalise ? w / sum : w) * double(r.scale);
  return out;
}

namespace {

// The node of the tree over products that begins at expert `begin` and is `width` wide, a power of
// two; of products of one column, where there are any.
std::optional<float> node(const std::vector<std::optional<float>>& products, size_t begin,
                          size_t width) {
  if (begin >= products.size()) return {};
  if (width == 1) return products[begin];
  const auto left = node(products, begin, width / 2);
  const auto right = node(products, begin + width / 2, width / 2);
  if (left && right) return *left + *right;
  return left ? left : right;
}

}  // namespace

Combined combine(int experts, const std::vector<int32_t>& numbers,
                 const std::vector<std::vector<float>>& outputs,
                 const std::vector<float>& weights) {
  Combined out;
  size_t width = 1;
  while (width < size_t(experts)) width *= 2;
  for (size_t i = 0; !outputs.empty() && i < outputs[0].size(); i++) {
    std::vector<std::optional<float>> products(static_cast<size_t>(experts));
    double sum = 0, magnitude = 0;
    for (size_t j = 0; j < numbers.size(); j++) {
      products[size_t(numbers[j])] = weights[j] * outputs[j][i];
      sum += double(weights[j]) * double(outputs[j][i]);
      magnitude += std::fabs(double(weights[j]) * double(outputs[j][i]));
    }
    out.tree.push_back(node(products, 0, width).value_or(-0.0f));
    out.all.push_back(sum);
    out.magnitude.push_back(magnitude);
  }
  return out;
}

}  // namespace cohort::reference
