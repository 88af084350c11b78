// SPDX-License-Identifier: Apache-2.0
// Measures a model in this process: loads it as a worker does, with ranks as threads, and executes
// step plans without network, scheduler and HTTP.
#pragma once
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "base/cpu.h"
#include "base/dtype.h"
#include "base/status.h"
#include "kernels/activations.h"
#include "tools/bench/demand.h"
#include "tools/bench/timing.h"
#include "tools/probe/machine_probe.h"

namespace cohort::bench {

struct ModelOptions {
  std::string model;                 // a path
  std::string weight_cache = "off";  // as the worker's (worker/replica_options.h)
  int tp = 1;
  int threads = 1;  // of each rank
  Isa isa = Isa::portable;
  ActivationMode activations = ActivationMode::int8;
  DType kv_dtype = DType::f16;
  bool choose_kv_dtype = false;  // as ReplicaOptions has it
  // Tokens of a prompt, and sequences that decode. Empty: the default sizes, as far as the model's
  // context goes.
  std::vector<int32_t> prefill, decode;
  bool default_prefill = false;  // sizes that do not fit are left out, not refused
  int32_t context = 128;         // positions of each sequence before a decode is measured
  int32_t tokens = 32;           // that each sequence decodes in a repetition
  int32_t chunk = 256;           // tokens of one step, as the worker's
  int repetitions = 5;
};

struct Measurement {
  enum class Kind { prefill, decode };
  Kind kind = Kind::prefill;
  int32_t size = 0;     // tokens of the prompt, or sequences
  int32_t context = 0;  // positions of a sequence before the first step that counts
  int64_t tokens = 0;   // of a repetition
  Spread seconds;       // of the repetitions
  double fraction_of_bound = 0;
  Bound bound = Bound::bandwidth;
  double tokens_per_second() const { return double(tokens) / seconds.median; }
};

struct ModelReport {
  MachineLimits machine;  // with the threads of all ranks together
  std::string name, fingerprint, arithmetic;
  int64_t weight_bytes = 0;  // packed, of all ranks
  double load_seconds = 0;
  std::vector<Measurement> measurements;
};

// progress: called by another thread as soon as there is something new; at first with a report
// without measurements.
Result<ModelReport> bench_model(const ModelOptions& options,
                                const std::function<void(const ModelReport&)>& progress);

}  // namespace cohort::bench
