// SPDX-License-Identifier: Apache-2.0
// Whatever decodes encodes to the very bytes it came from: no input crashes, none has two readings.
#include <cstdlib>

#include "worker/expert_load.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string bytes(reinterpret_cast<const char*>(data), size);
  if (const auto load = cohort::decode_expert_load(bytes); load.ok()) {
    if (cohort::encode(*load) != bytes) std::abort();
  }
  return 0;
}
