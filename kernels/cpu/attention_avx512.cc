// SPDX-License-Identifier: Apache-2.0
#include "kernels/cpu/attention_job.h"

namespace cohort {

void attend_avx512(const AttentionWork& work) { attend_avx2(work); }
void merge_avx512(const AttentionWork& work, const AttentionMerge& m) { merge_avx2(work, m); }

}  // namespace cohort
