// SPDX-License-Identifier: Apache-2.0
// A decoder of any family in plain double-precision loops, from the published formulas: what a
// checkpoint means, for comparison with expected logits. Slow, and independent of kernels/.
#pragma once
#include <span>
#include <vector>

#include "model/checkpoint.h"

namespace cohort {

// Logits [tokens, vocab] of one sequence that starts at position 0.
std::vector<double> reference_logits(Checkpoint& checkpoint, std::span<const int> tokens);

}  // namespace cohort
