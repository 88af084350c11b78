// SPDX-License-Identifier: Apache-2.0
#include "kernels/philox.h"

namespace cohort {

std::array<uint32_t, 4> philox4x32(std::array<uint32_t, 4> c, std::array<uint32_t, 2> key) {
  constexpr int kRounds = 10;
  constexpr uint64_t kMultiply0 = 0xD2511F53, kMultiply1 = 0xCD9E8D57;
  constexpr uint32_t kStep0 = 0x9E3779B9, kStep1 = 0xBB67AE85;  // golden ratio, sqrt(3) - 1
  for (int round = 0; round < kRounds; round++) {
    const uint64_t p0 = kMultiply0 * c[0], p1 = kMultiply1 * c[2];
    c = {uint32_t(p1 >> 32) ^ c[1] ^ key[0], uint32_t(p1), uint32_t(p0 >> 32) ^ c[3] ^ key[1],
         uint32_t(p0)};
    key[0] += kStep0;
    key[1] += kStep1;
  }
  return c;
}

double uniform_draw(uint64_t seed, uint64_t index) {
  const auto words = philox4x32({uint32_t(index), uint32_t(index >> 32), 0, 0},
                                {uint32_t(seed), uint32_t(seed >> 32)});
  return double((uint64_t(words[1]) << 32 | words[0]) >> 11) * 0x1p-53;
}

}  // namespace cohort
