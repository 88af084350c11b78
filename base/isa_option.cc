// SPDX-License-Identifier: Apache-2.0
#include "base/isa_option.h"

#include <algorithm>
#include <cstdlib>

namespace cohort {

Result<Isa> choose_isa(const std::string& option) {
  const char* variable = std::getenv("COHORT_ISA");
  const std::string text = !option.empty() ? option : variable ? variable : "";
  if (text.empty()) return detect_isa();
  const std::string from = concat(option.empty() ? "COHORT_ISA" : "--isa", " ", text);
  const auto wanted = parse_isa(text);
  if (!wanted) return invalid_argument(from + ": known are portable, avx2, avx512 and amx");
  if (supported(*wanted)) return *wanted;
  const Isa best = *std::find_if(kIsas.rbegin(), kIsas.rend(), supported);
  return invalid_argument(
      concat(from, ": this processor does not have it; its best is ", name(best)));
}

}  // namespace cohort
