// SPDX-License-Identifier: Apache-2.0
// The model again, naively and in double precision: the oracle for the worker's forward pass. It
// shares nothing with it but the checkpoint interface.
#pragma once
#include <cstdint>
#include <vector>

#include "model/checkpoint.h"

namespace cohort::testing {

// Logits [vocab] at every position of the tokens.
std::vector<std::vector<double>> reference_logits(Checkpoint& checkpoint,
                                                  const std::vector<int32_t>& tokens);

// Natural logarithm of the softmax.
std::vector<double> log_softmax(const std::vector<double>& logits);

}  // namespace cohort::testing
