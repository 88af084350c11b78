// SPDX-License-Identifier: Apache-2.0
#include "tools/gpu_check/parts.h"
namespace cohort::gpu_check {
void compare_emulation(Report&) {}
int write_expected(const std::string&) { return 1; }
void measure_speed(Report&) {}
}  // namespace cohort::gpu_check
