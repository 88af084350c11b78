// SPDX-License-Identifier: Apache-2.0
#include "tools/gpu_check/parts.h"
#include "tools/gpu_check/speed.h"

namespace cohort::gpu_check {

void SpeedBench::add(const std::string& name, const std::string& shape, double seconds,
                     double bytes, double flops, const char* memory) const {
  const double bandwidth = report.ceiling(memory), speed = report.ceiling(kGemm);
  const bool by_memory = flops * bandwidth * 1e9 <= bytes * speed * 1e12;
  if (by_memory)
    report.add(name, shape, bytes / seconds * 1e-9, "GB/s", bandwidth);
  else
    report.add(name, shape, flops / seconds * 1e-12, "TFLOP/s", speed);
}

void measure_speed(Report& report) {
  const SpeedBench bench{report, open_gpu()};
  measure_attention(bench);
  measure_products(bench);
  measure_sampler(bench);
  measure_rows(bench);
}

}  // namespace cohort::gpu_check
