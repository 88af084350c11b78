// SPDX-License-Identifier: Apache-2.0
#include "tests/model/gguf_tensors.h"

#include <gtest/gtest.h>

namespace cohort {
namespace {

// Names of llama.cpp's tensors, without "blk.N.".
const std::map<std::string, std::string> kParts = {
    {"attention_norm", "attn_norm.weight"},
    {"attention.q", "attn_q.weight"},
    {"attention.k", "attn_k.weight"},
    {"attention.v", "attn_v.weight"},
    {"attention.o", "attn_output.weight"},
    {"attention.q_bias", "attn_q.bias"},
    {"attention.k_bias", "attn_k.bias"},
    {"attention.v_bias", "attn_v.bias"},
    {"attention.q_norm", "attn_q_norm.weight"},
    {"attention.k_norm", "attn_k_norm.weight"},
    {"attention.q_down", "attn_q_a.weight"},
    {"attention.q_down_norm", "attn_q_a_norm.weight"},
    {"attention.q_up", "attn_q_b.weight"},
    {"attention.kv_down", "attn_kv_a_mqa.weight"},
    {"attention.kv_down_norm", "attn_kv_a_norm.weight"},
    {"attention.kv_up", "attn_kv_b.weight"},
    {"feed_forward_norm", "ffn_norm.weight"},
    {"feed_forward.gate", "ffn_gate.weight"},
    {"feed_forward.up", "ffn_up.weight"},
    {"feed_forward.down", "ffn_down.weight"},
    {"router", "ffn_gate_inp.weight"},
    {"router_bias", "exp_probs_b.bias"},
    {"experts.gate", "ffn_gate_exps.weight"},
    {"experts.up", "ffn_up_exps.weight"},
    {"experts.down", "ffn_down_exps.weight"},
    {"shared_expert.gate", "ffn_gate_shexp.weight"},
    {"shared_expert.up", "ffn_up_shexp.weight"},
    {"shared_expert.down", "ffn_down_shexp.weight"},
    {"shared_gate", "ffn_gate_inp_shexp.weight"},
};

void add_layer_weight(const WeightInfo& weight, std::vector<std::byte> data, Tensors& tensors) {
  const size_t number = std::string("layers.").size();
  const size_t dot = weight.name.find('.', number);
  std::string part = weight.name.substr(dot + 1);
  const bool expert = part.starts_with("experts.");
  if (expert) part = "experts." + part.substr(part.rfind('.') + 1);
  const std::string name =
      concat("blk.", weight.name.substr(number, dot - number), ".", kParts.at(part));
  Stored& stored = tensors[name];
  stored.type = weight.dtype;
  if (expert)
    stored.shape = {stored.shape.empty() ? 1 : stored.shape[0] + 1, weight.rows, weight.columns};
  else
    stored.shape = shape_of(weight);
  stored.data.insert(stored.data.end(), data.begin(), data.end());
}

}  // namespace

std::vector<std::byte> read_all(Checkpoint& checkpoint, const WeightInfo& weight) {
  std::vector<std::byte> bytes(size_t(weight.bytes()));
  const Status status = checkpoint.read(weight, 0, weight.rows, 0, weight.columns, bytes.data());
  EXPECT_TRUE(status.ok()) << status.to_string();
  return bytes;
}

std::vector<int64_t> shape_of(const WeightInfo& weight) {
  if (weight.rows == 1) return {weight.columns};
  return {weight.rows, weight.columns};
}

Tensors tensors_of(Checkpoint& checkpoint) {
  const std::map<std::string, std::string> whole = {{"embedding", "token_embd.weight"},
                                                    {"final_norm", "output_norm.weight"},
                                                    {"head", "output.weight"}};
  Tensors tensors;
  for (const WeightInfo& weight : checkpoint.weights()) {
    std::vector<std::byte> data = read_all(checkpoint, weight);
    const auto found = whole.find(weight.name);
    if (found == whole.end()) {
      add_layer_weight(weight, std::move(data), tensors);
      continue;
    }
    tensors[found->second] = {weight.dtype, shape_of(weight), std::move(data)};
  }
  return tensors;
}

}  // namespace cohort
