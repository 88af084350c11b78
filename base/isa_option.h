// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <string>

#include "base/cpu.h"
#include "base/status.h"

namespace cohort {

// The instruction set that --isa names, else COHORT_ISA, else the processor's best. What was asked
// for and cannot be is an error, never another choice.
Result<Isa> choose_isa(const std::string& option);

}  // namespace cohort
