// SPDX-License-Identifier: Apache-2.0
// A config.json that is accepted makes sense: heads divide, frequencies are finite, as many experts
// as are chosen can be chosen.
#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <nlohmann/json.hpp>
#include <string_view>

#include "base/log.h"
#include "model/families.h"
#include "model/json_file.h"

namespace {

// What the fuzzer starts from, so that it need not guess names.
constexpr std::string_view kSamples[] = {
    R"({"architectures":["LlamaForCausalLM"],"hidden_size":64,"intermediate_size":80,
"num_hidden_layers":2,"num_attention_heads":4,"num_key_value_heads":2,"vocab_size":272,
"max_position_embeddings":512,"rope_parameters":{"rope_type":"llama3","rope_theta":1e4,"factor":8.0,
"low_freq_factor":1.0,"high_freq_factor":4.0,"original_max_position_embeddings":64}})",
    R"({"architectures":["MixtralForCausalLM"],"hidden_size":64,"intermediate_size":80,
"num_hidden_layers":2,"num_attention_heads":4,"num_key_value_heads":2,"vocab_size":272,
"max_position_embeddings":512,"num_local_experts":6,"num_experts_per_tok":2,"sliding_window":9})",
    R"({"architectures":["Qwen2MoeForCausalLM"],"hidden_size":64,"intermediate_size":80,
"num_hidden_layers":4,"num_attention_heads":4,"num_key_value_heads":2,"vocab_size":272,
"max_position_embeddings":512,"num_experts":6,"num_experts_per_tok":2,"moe_intermediate_size":24,
"shared_expert_intermediate_size":40,"mlp_only_layers":[1],"decoder_sparse_step":2,
"rope_scaling":{"type":"yarn","factor":4.0,"original_max_position_embeddings":64}})",
    R"({"architectures":["OlmoeForCausalLM"],"hidden_size":64,"intermediate_size":80,
"num_hidden_layers":2,"num_attention_heads":4,"vocab_size":272,"max_position_embeddings":512,
"num_experts":6,"num_experts_per_tok":2,"norm_topk_prob":true,"clip_qkv":null})",
    R"({"architectures":["DeepseekV2ForCausalLM"],"hidden_size":64,"intermediate_size":80,
"num_hidden_layers":3,"num_attention_heads":4,"vocab_size":272,"max_position_embeddings":512,
"n_routed_experts":8,"num_experts_per_tok":3,"moe_intermediate_size":16,"n_shared_experts":2,
"first_k_dense_replace":1,"n_group":4,"topk_group":2,"topk_method":"group_limited_greedy",
"routed_scaling_factor":1.5,"q_lora_rank":null,"kv_lora_rank":32,"qk_nope_head_dim":16,
"qk_rope_head_dim":8,"v_head_dim":12,"rope_scaling":{"type":"yarn","factor":40,"beta_fast":32,
"beta_slow":1,"mscale":0.7,"mscale_all_dim":0.7,"original_max_position_embeddings":64}})",
    R"({"architectures":["DeepseekV3ForCausalLM"],"hidden_size":64,"intermediate_size":80,
"num_hidden_layers":3,"num_attention_heads":4,"vocab_size":272,"max_position_embeddings":512,
"n_routed_experts":8,"num_experts_per_tok":2,"moe_intermediate_size":16,"n_shared_experts":1,
"first_k_dense_replace":1,"n_group":4,"topk_group":2,"scoring_func":"sigmoid",
"routed_scaling_factor":2.5,"q_lora_rank":24,"kv_lora_rank":32,"qk_nope_head_dim":16,
"qk_rope_head_dim":8,"v_head_dim":12,"num_nextn_predict_layers":1,"rope_interleave":true})",
};

void require(bool good) {
  if (!good) std::abort();
}

void check(const cohort::ModelConfig& config) {
  require(config.heads % config.kv_heads == 0 && config.head_dim >= 1 && config.context >= 1 &&
          config.vocab >= 1 && config.layers >= 1 && config.ffn >= 0);
  require(std::isfinite(config.score_scale));
  for (const double frequency : cohort::rope_frequencies(config.rope))
    require(std::isfinite(frequency));
  const cohort::ExpertsConfig& experts = config.experts;
  const auto& dense = experts.dense_layers;
  require(std::is_sorted(dense.begin(), dense.end()));
  if (experts.count == 0) return;
  require(experts.per_token >= 1 && experts.ffn >= 1 && experts.shared_ffn >= 0);
  require(experts.count % experts.groups == 0 && std::isfinite(experts.scale));
  require(experts.per_token <= experts.count / experts.groups * experts.groups_per_token);
  require(int64_t(dense.size()) < config.layers && (dense.empty() || dense.back() < config.layers));
  require(config.ffn > 0 || dense.empty());
}

}  // namespace

extern "C" size_t LLVMFuzzerMutate(uint8_t* data, size_t size, size_t max_size);

extern "C" size_t LLVMFuzzerCustomMutator(uint8_t* data, size_t size, size_t max_size,
                                          unsigned int seed) {
  const std::string_view start = kSamples[seed / 64 % std::size(kSamples)];
  if (seed % 64 == 0 && start.size() <= max_size) {
    std::memcpy(data, start.data(), start.size());
    size = start.size();
  }
  return LLVMFuzzerMutate(data, size, max_size);
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* bytes, size_t size) {
  static const bool samples_are_good = [] {
    cohort::configure_log("fuzz", cohort::LogLevel::error);
    for (const std::string_view sample : kSamples)
      require(cohort::recognise(*cohort::parse_json(sample)).ok());
    return true;
  }();
  require(samples_are_good);
  const auto value = cohort::parse_json({reinterpret_cast<const char*>(bytes), size});
  if (!value.ok()) return 0;
  const auto known = cohort::recognise(*value);
  if (known.ok()) check(known->config);
  return 0;
}
