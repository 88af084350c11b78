// SPDX-License-Identifier: Apache-2.0
// Philox4x32-10: a counter-based random number generator (Salmon, Moraes, Dror, Shaw: Parallel
// random numbers: as easy as 1, 2, 3; SC'11). A value is a pure function of counter and key.
#pragma once
#include <array>
#include <cstdint>

namespace cohort {

std::array<uint32_t, 4> philox4x32(std::array<uint32_t, 4> counter, std::array<uint32_t, 2> key);

// Uniform in [0, 1), a multiple of 2^-53: the draw of output `index` under `seed`.
double uniform_draw(uint64_t seed, uint64_t index);

}  // namespace cohort
