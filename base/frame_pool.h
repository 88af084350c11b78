// SPDX-License-Identifier: Apache-2.0
// Memory for coroutine frames: a free list per thread and size class, so that the forward pass,
// which makes three frames a layer, allocates nothing once it has run. A frame may be released on
// another thread than took it; it then stays with that one.
#pragma once
#include <cstddef>

namespace cohort {

void* take_frame(size_t bytes);
void release_frame(void* frame, size_t bytes) noexcept;

}  // namespace cohort
