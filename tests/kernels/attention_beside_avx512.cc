// SPDX-License-Identifier: Apache-2.0
// Attention for AMX as the library has it.
#include "tests/kernels/software_tiles.h"

namespace cohort {

Isa isa_beside_tiles() { return Isa::avx512; }

}  // namespace cohort
