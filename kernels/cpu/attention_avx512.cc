// SPDX-License-Identifier: Apache-2.0
#include "kernels/cpu/attention_avx512.h"

#include "kernels/cpu/attention_vector.h"

namespace cohort {

// Heads that do not fill whole vectors, which no known model has, go to the narrower ones.
void attend_avx512(const AttentionWork& work) {
  return work.shape->dim % Avx512::kLanes == 0 ? attend_any<Avx512>(work) : attend_avx2(work);
}
void merge_avx512(const AttentionWork& work, const AttentionMerge& m) {
  return work.shape->dim % Avx512::kLanes == 0 ? merge_any<Avx512>(work, m) : merge_avx2(work, m);
}

}  // namespace cohort
