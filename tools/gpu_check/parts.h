// SPDX-License-Identifier: Apache-2.0
// The parts of the check. Each writes its lines to the report; what it throws fails it.
#pragma once
#include <memory>
#include <string>

#include "base/device_cuda.h"
#include "tools/gpu_check/report.h"

namespace cohort::gpu_check {

void measure_device(Report& report);     // what the GPU can do: the ceilings
void check_kernels(Report& report);      // every op against float64 on the CPU
void compare_emulation(Report& report);  // instructions against what the emulation makes of them
void run_sanitizer(Report& report);      // compute-sanitizer, where there is one
void measure_speed(Report& report);      // every kernel at the shapes of Llama-3-8B
void measure_engine(Report& report);     // whole steps of a rank with random weights
void check_nccl(Report& report);         // one rank, then several processes on the one GPU

// The first GPU. Throws Failure.
std::shared_ptr<CudaDevice> open_gpu();

// Writes what compare_emulation computes on this device to a file; 0 if it could.
int write_expected(const std::string& path);
// One rank of check_nccl's processes, started as `gpu_check nccl-rank ...`.
int run_nccl_rank(int argc, char** argv);

}  // namespace cohort::gpu_check
