// SPDX-License-Identifier: Apache-2.0
#include "parallel/shard.h"

#include <algorithm>
#include <charconv>
#include <numeric>

#include "base/check.h"

namespace cohort {

std::vector<UnitRange> shard(int units, const std::vector<int>& weights, Halves halves) {
  const int ranks = int(weights.size());
  const int64_t total = std::accumulate(weights.begin(), weights.end(), int64_t(0));
  std::vector<UnitRange> ranges;
  int64_t weight_so_far = 0;
  int begin = 0;
  for (int r = 0; r < ranks; r++) {
    COHORT_CHECK_GT(weights[size_t(r)], 0);
    weight_so_far += weights[size_t(r)];
    // The nearest cut to the exact share, but one unit for this rank and for each that follows.
    const int64_t twice = 2 * weight_so_far * units + total;  // the exact cut + 1/2, * 2 total
    int nearest = int(twice / (2 * total));
    if (halves == Halves::even && twice % (2 * total) == 0) nearest -= nearest % 2;
    const int most = std::max(begin, units - (ranks - 1 - r));
    const int least = std::min(begin + 1, units);
    const int end = units < ranks ? least : std::clamp(nearest, least, most);
    ranges.push_back({begin, end});
    begin = end;
  }
  return ranges;
}

Result<std::vector<int>> parse_shares(const std::string& text, int least) {
  constexpr int kMostShares = 1024, kLargestShare = 1'000'000;
  std::vector<int> shares;
  const char* at = text.data();
  const char* const end = at + text.size();
  while (true) {
    int share = 0;
    const auto [next, error] = std::from_chars(at, end, share);
    if (error != std::errc() || share < least || share > kLargestShare ||
        int(shares.size()) == kMostShares)
      return invalid_argument(
          concat("shares are whole numbers from ", least,
                 " on, separated by colons or commas, as in 2:1; this is none: ", text));
    shares.push_back(share);
    if (next == end) return shares;
    if (*next != ':' && *next != ',')
      return invalid_argument("shares are separated by colons or commas, as in 2:1: " + text);
    at = next + 1;
  }
}

Slice slice_of(UnitRange units, int64_t width, int64_t total) {
  return {std::min(units.begin * width, total), std::min(units.end * width, total)};
}

}  // namespace cohort
