// SPDX-License-Identifier: Apache-2.0
// What every rank of a replica is started with. All ranks must be given the same values (threads
// and isa, which change no result, apart).
#pragma once
#include <chrono>
#include <cstdint>
#include <string>

#include "base/clock.h"
#include "base/cpu.h"
#include "base/device.h"
#include "base/dtype.h"
#include "kernels/activations.h"
#include "parallel/mesh.h"
#include "worker/step_plan.h"

namespace cohort {

// Where a rank computes, and how on a GPU.
struct GpuOptions {
  DeviceKind device = DeviceKind::cpu;
  int ordinal = -1;            // of the host's GPUs; -1: ranks of a host take one each, in order
  DType dtype = DType::bf16;   // of activations and plain weights: bf16, f16 or f32
  bool choose_dtype = false;   // as the checkpoint is: bf16 if most of it is, else f16
  bool deterministic = false;  // one order of every sum, for any batch and layout
  bool graphs = true;          // decode steps are captured once and replayed
};

// Whether a step's rows are cut in two, one computing while the other's collectives run.
enum class Overlap { automatic, on, off };

// Where a rank writes what it did when (trace.h).
struct TraceOptions {
  std::string path;                 // with ".<rank>.json" after it; empty: no trace
  std::string process = "replica";  // what the replica is called in it
  int64_t steps = 0;                // written when so many steps are done; 0: at the end
};

struct ReplicaOptions {
  std::string model;  // path for Checkpoint::open
  // CPUs: a folder where packed weights are kept, "auto" (weight_cache.h) or "off".
  std::string weight_cache = "off";
  Layout layout;
  int threads = 1;
  bool pin = false;  // CPU threads to processors that nobody else has claimed
  Isa isa = detect_isa();
  ActivationMode activations = ActivationMode::int8;
  // f32, f16, bf16, i8 (CPUs) or f8_e4m3 (GPUs); on CPUs with f32 activations always f32.
  DType kv_dtype = DType::f16;
  // Not kv_dtype, but gpu.dtype, or bf16 where CPUs compute in bf16.
  bool choose_kv_dtype = false;
  // Bytes of KV cache of each rank. 0: room for limits.max_slots sequences of limits.max_context
  // positions, but no more than a quarter of the host's memory for all ranks on it, or nine tenths
  // of what is free on a GPU.
  int64_t kv_memory = 0;
  GpuOptions gpu;
  TraceOptions trace;
  // Activations travel between stages as int8: a quarter of the bytes, and other results.
  bool compress_activations = false;
  Overlap overlap = Overlap::automatic;  // automatic: where it is predicted to gain
  StepLimits limits;                     // blocks and in_flight are filled in by Rank::load
  // Nobody asked for limits.max_context in particular: where the KV cache is too small for one such
  // sequence, it is lowered to what there is room for.
  bool fit_context = false;

  Duration start_timeout = std::chrono::seconds(60);  // until all ranks have met
  Duration load_timeout = std::chrono::minutes(30);   // until the slowest has its weights
  Duration step_timeout = std::chrono::seconds(10);   // least patience with one step (watchdog.h)
};

}  // namespace cohort
