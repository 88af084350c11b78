// SPDX-License-Identifier: Apache-2.0
#include "worker/check_options.h"

#include "worker/token_route.h"

namespace cohort {
namespace {

Status check_types(const ReplicaOptions& options) {
  const bool gpu = options.gpu.device == DeviceKind::cuda;
  const DType kv = options.kv_dtype, a = options.gpu.dtype;
  const bool eight_bits = kv == (gpu ? DType::f8_e4m3 : DType::i8);
  if (kv != DType::f32 && kv != DType::f16 && kv != DType::bf16 && !eight_bits)
    return invalid_argument(
        concat("on a ", gpu ? "GPU" : "CPU", " the KV cache holds f32, f16, bf16 or ",
               gpu ? "f8_e4m3" : "int8", ", not ", kv == DType::i8 ? "int8" : name(kv),
               ": choose another --kv-dtype"));
  if (!gpu) return {};
  if (options.activations == ActivationMode::bf16)
    return invalid_argument("bf16 activations are for CPUs: on a GPU choose --dtype bf16");
  if (options.compress_activations)
    return invalid_argument("--compress-activations is for pipelines of CPUs");
  if (a != DType::f32 && a != DType::f16 && a != DType::bf16)
    return invalid_argument(concat("a GPU computes in f32, f16 or bf16, not in ", name(a)));
  if (kv != a && !(eight_bits && a != DType::f32))
    return invalid_argument(concat("on a GPU that computes in ", name(a), " the KV cache is ",
                                   name(a), a == DType::f32 ? "" : " or f8_e4m3", ", not ",
                                   name(kv), ": choose --kv-dtype or --dtype alike"));
  return {};
}

Status only_on_cpus(const std::string& what) {
  return unimplemented(concat(
      what, " on CPUs alone, not on GPUs: leave out --device cuda; see docs/experts.md section 4"));
}

}  // namespace

Status check_options(const ReplicaOptions& options, int world_size) {
  const StepLimits& limits = options.limits;
  if (options.layout.ranks() != world_size)
    return invalid_argument(concat("the layout ", to_string(options.layout), " needs ",
                                   options.layout.ranks(), " ranks; ", world_size,
                                   " were started"));
  if (options.threads < 1) return invalid_argument("a rank needs at least 1 thread");
  if (!supported(options.isa))
    return invalid_argument(concat("this processor has no ", name(options.isa)));
  if (limits.max_slots < 1 || limits.max_rows < 1 || limits.max_context < 1)
    return invalid_argument("the limits on slots, rows and context must be at least 1");
  if (options.layout.ranks() > 1 && limits.max_slots > TokenRoute::kMostTokens)
    return invalid_argument(concat("a replica of several ranks runs at most ",
                                   TokenRoute::kMostTokens, " sequences at once, not ",
                                   limits.max_slots, ": lower --max-batch"));
  return check_types(options);
}

Status check_device(const ReplicaOptions& options, const ModelConfig& config) {
  if (options.gpu.device != DeviceKind::cuda) return {};
  if (options.layout.dp > 1)
    return only_on_cpus(concat("data-parallel groups (--dp ", options.layout.dp, ") run"));
  if (config.latent.kv_rank > 0) return only_on_cpus("latent attention (DeepSeek) runs");
  if (config.query_key_norm == QueryKeyNorm::rows)
    return only_on_cpus("norms of queries and keys over all heads (OLMoE) run");
  return {};
}

}  // namespace cohort
