// SPDX-License-Identifier: Apache-2.0
#include "tools/bench/timing.h"

#include <algorithm>
#include <cstdio>

#include "base/check.h"
#include "base/clock.h"

namespace cohort::bench {
namespace {

// A measurement is long beside what reading the clock takes.
constexpr double kLeastSeconds = 200e-6;
constexpr int kMost = 1000;

std::string format(double value, const char* unit) {
  char text[64];
  const int decimals = value < 10 ? 2 : value < 100 ? 1 : 0;
  std::snprintf(text, sizeof text, "%.*f %s", decimals, value, unit);
  return text;
}

}  // namespace

Spread spread(std::vector<double> values) {
  COHORT_CHECK(!values.empty());
  std::sort(values.begin(), values.end());
  const size_t n = values.size();
  return {.median = (values[(n - 1) / 2] + values[n / 2]) / 2,
          .least = values.front(),
          .greatest = values.back(),
          .count = int(n)};
}

double now() { return seconds(std::chrono::steady_clock::now().time_since_epoch()); }

Spread time_calls(FunctionRef<void()> call, double budget, int least) {
  const double first = now();
  call();
  const double once = std::max(now() - first, 1e-9);
  const int together = once < kLeastSeconds ? int(kLeastSeconds / once) + 1 : 1;
  std::vector<double> times;
  for (const double end = now() + budget;
       int(times.size()) < least || (now() < end && int(times.size()) < kMost);) {
    const double start = now();
    for (int i = 0; i < together; i++) call();
    times.push_back((now() - start) / together);
  }
  return spread(std::move(times));
}

std::string text_of_seconds(double seconds) {
  if (seconds < 1e-3) return format(seconds * 1e6, "us");
  return seconds < 1 ? format(seconds * 1e3, "ms") : format(seconds, "s");
}

std::string giga(double per_second, const char* unit) { return format(per_second / 1e9, unit); }

std::string percent(double fraction) {
  char text[32];
  std::snprintf(text, sizeof text, "%.0f %%", fraction * 100);
  return text;
}

}  // namespace cohort::bench
