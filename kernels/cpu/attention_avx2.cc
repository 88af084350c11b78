// SPDX-License-Identifier: Apache-2.0
#include "kernels/cpu/attention_avx2.h"

#include "kernels/cpu/attention_vector.h"

namespace cohort {

void attend_avx2(const AttentionWork& work) { attend_any<Avx2>(work); }
void merge_avx2(const AttentionWork& work, const AttentionMerge& m) { merge_any<Avx2>(work, m); }

}  // namespace cohort
