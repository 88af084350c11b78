// SPDX-License-Identifier: Apache-2.0
// Activation functions beside those of kernels/ops.h.
#pragma once
#include "base/stream.h"
#include "base/tensor.h"

namespace cohort::cuda {

// out A [tokens, n] = gelu(gate) * up, gate_up A [tokens, 2 n] = gate | up. The tanh form:
// gelu(x) = x / 2 (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3))).
void gelu_mul(Stream& stream, Tensor out, Tensor gate_up);

}  // namespace cohort::cuda
