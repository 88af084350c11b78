// SPDX-License-Identifier: Apache-2.0
// Adjustments of logits before sampling (docs/arithmetic.md section 6), for all tokens of a row or
// some of them.
#pragma once
#include <cstdint>
#include <span>

#include "kernels/sampling.h"

namespace cohort::cpu {

bool penalised(const SamplingParams& p);
// outputs: tokens in the output.
bool below_min_tokens(const SamplingParams& p, uint64_t outputs);
bool adjusts(const SamplingParams& p, uint64_t outputs);

// logits: of tokens first, first + 1, ...; counts: as many numbers of memory. row.output may lack
// tokens where it is not penalised.
void adjust(std::span<float> logits, int32_t first, const SampleRow& row, uint64_t outputs,
            int32_t* counts);

}  // namespace cohort::cpu
