// SPDX-License-Identifier: Apache-2.0
// Whatever decodes encodes to the very bytes it came from: no input crashes, none has two readings.
#include <cstdlib>

#include "worker/step_plan.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string bytes(reinterpret_cast<const char*>(data), size);
  if (const auto plan = cohort::decode_step_plan(bytes); plan.ok()) {
    if (cohort::encode(*plan) != bytes) std::abort();
  }
  if (const auto result = cohort::decode_step_result(bytes); result.ok()) {
    if (cohort::encode(*result) != bytes) std::abort();
  }
  return 0;
}
