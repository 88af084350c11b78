// SPDX-License-Identifier: Apache-2.0
// Copies to memory that another core reads next.
#pragma once
#include <cstdint>

namespace cohort {

// As memcpy; `from` may be empty. What is more than a few cache lines goes past this core's caches:
// fetching modified lines out of another core's cache costs a round trip each, which hardware
// prefetches badly, while memory is read as a stream. Stores that follow stay behind it.
void stream_copy(void* to, const void* from, int64_t bytes);

}  // namespace cohort
