// SPDX-License-Identifier: Apache-2.0
// How measurements are taken and told.
#pragma once
#include <string>
#include <vector>

#include "base/function_ref.h"

namespace cohort::bench {

struct Spread {
  double median = 0, least = 0, greatest = 0;
  int count = 0;
};
Spread spread(std::vector<double> values);

// Seconds of one call, after one that is not counted. Short calls are timed together; there are at
// least `least` measurements, and more until `budget` seconds are spent.
Spread time_calls(FunctionRef<void()> call, double budget, int least);

double now();  // seconds, from anywhere

// "12.3 us", "4.56 ms"; "21.3 GB/s" and "540 Gop/s" of units per second; "94 %".
std::string text_of_seconds(double seconds);
std::string giga(double per_second, const char* unit);
std::string percent(double fraction);

}  // namespace cohort::bench
