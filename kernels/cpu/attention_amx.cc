// SPDX-License-Identifier: Apache-2.0
#include "kernels/cpu/attention_amx.h"

#include "kernels/cpu/attention_avx512.h"

namespace cohort {

void attend_amx(const AttentionWork& work) {
  return worth_tiles(work) ? attend_on_tiles<Avx512, HardwareTiles>(work) : attend_avx512(work);
}

}  // namespace cohort
