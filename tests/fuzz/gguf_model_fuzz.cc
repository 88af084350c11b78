// SPDX-License-Identifier: Apache-2.0
// A GGUF model whose settings and tensors are accepted has every weight within the file.
#include <cstdlib>
#include <cstring>
#include <vector>

#include "base/log.h"
#include "model/gguf.h"
#include "model/weight_table.h"
#include "tests/support/gguf_writer.h"

namespace {

using cohort::GgufWriter;

void add(GgufWriter& w, const char* name, const std::vector<int64_t>& shape) {
  int64_t elements = 1;
  for (const int64_t n : shape) elements *= n;
  w.add_f32_tensor(name, shape, std::vector<float>(size_t(elements), 1.0f));
}

void add_settings(GgufWriter& w, const std::string& arch) {
  w.add_string("general.architecture", arch);
  for (const auto& [key, value] :
       std::vector<std::pair<const char*, uint32_t>>{{"embedding_length", 4},
                                                     {"block_count", 1},
                                                     {"attention.head_count", 1},
                                                     {"attention.key_length", 4},
                                                     {"attention.value_length", 4},
                                                     {"feed_forward_length", 3},
                                                     {"context_length", 16},
                                                     {"expert_count", 2},
                                                     {"expert_used_count", 1},
                                                     {"expert_feed_forward_length", 2},
                                                     {"rope.dimension_count", 2}})
    w.add_u32(arch + "." + key, value);
  w.add_f32(arch + ".attention.layer_norm_rms_epsilon", 1e-5f);
}

void add_experts(GgufWriter& w) {
  add(w, "token_embd.weight", {5, 4});
  add(w, "output_norm.weight", {4});
  add(w, "blk.0.attn_norm.weight", {4});
  add(w, "blk.0.attn_output.weight", {4, 4});
  add(w, "blk.0.ffn_norm.weight", {4});
  add(w, "blk.0.ffn_gate_inp.weight", {2, 4});
  add(w, "blk.0.ffn_gate_exps.weight", {2, 2, 4});
  add(w, "blk.0.ffn_up_exps.weight", {2, 2, 4});
  add(w, "blk.0.ffn_down_exps.weight", {2, 4, 2});
}

std::string plain_sample(const std::string& arch) {
  GgufWriter w;
  add_settings(w, arch);
  add_experts(w);
  for (const char* part : {"q", "k", "v"})
    add(w, cohort::concat("blk.0.attn_", part, ".weight").c_str(), {4, 4});
  for (const char* part : {"q", "k"})
    if (arch == "qwen3moe")
      add(w, cohort::concat("blk.0.attn_", part, "_norm.weight").c_str(), {4});
  return w.bytes();
}

std::string latent_sample(bool apart) {
  GgufWriter w;
  add_settings(w, "deepseek2");
  w.add_u32("deepseek2.attention.kv_lora_rank", 3);
  w.add_u32("deepseek2.leading_dense_block_count", 0);
  w.add_u32("deepseek2.expert_gating_func", 2);
  add_experts(w);
  add(w, "blk.0.exp_probs_b.bias", {2});
  add(w, "blk.0.attn_q.weight", {4, 4});
  add(w, "blk.0.attn_kv_a_mqa.weight", {5, 4});
  add(w, "blk.0.attn_kv_a_norm.weight", {3});
  if (apart) {
    w.add_u32("deepseek2.attention.key_length_mla", 4);
    w.add_u32("deepseek2.attention.value_length_mla", 4);
    add(w, "blk.0.attn_k_b.weight", {1, 3, 2});
    add(w, "blk.0.attn_v_b.weight", {1, 4, 3});
  } else {
    add(w, "blk.0.attn_kv_b.weight", {6, 3});
  }
  return w.bytes();
}

const std::vector<std::string>& samples() {
  static const std::vector<std::string> all{plain_sample("llama"), plain_sample("qwen3moe"),
                                            latent_sample(false), latent_sample(true)};
  return all;
}

void check(const cohort::BoundWeight& weight, std::span<const std::byte> file) {
  const auto within = [&](std::span<const std::byte> data) {
    return data.data() >= file.data() && data.data() + data.size() <= file.data() + file.size();
  };
  if (!within(weight.data)) std::abort();
  if (!weight.parts) {
    if (uint64_t(weight.info.bytes()) != weight.data.size()) std::abort();
    return;
  }
  if (!within(weight.parts->values)) std::abort();
  std::vector<std::byte> out(size_t(weight.info.bytes()));
  read_latent_parts(*weight.parts, 0, weight.info.rows, 0, weight.info.columns, out.data());
}

// Whether the model was accepted.
bool use(std::span<const std::byte> bytes) {
  const auto file = cohort::GgufFile::parse(bytes, "fuzz");
  if (!file.ok()) return false;
  const auto known = cohort::recognise(**file);
  if (!known.ok()) return false;
  std::vector<cohort::StoredTensor> stored;
  for (const cohort::GgufTensor& tensor : (*file)->tensors())
    stored.push_back(
        {tensor.name, "", tensor.dtype, tensor.shape, {tensor.data, size_t(tensor.bytes)}});
  const auto weights =
      cohort::bind_weights(*known->family, known->config, cohort::FileFormat::gguf, stored);
  if (!weights.ok()) return false;
  for (const cohort::BoundWeight& weight : *weights) check(weight, bytes);
  return true;
}

}  // namespace

extern "C" size_t LLVMFuzzerMutate(uint8_t* data, size_t size, size_t max_size);

extern "C" size_t LLVMFuzzerCustomMutator(uint8_t* data, size_t size, size_t max_size,
                                          unsigned int seed) {
  const std::string& start = samples()[seed / 16 % samples().size()];
  if (seed % 16 == 0 && start.size() <= max_size) {
    std::memcpy(data, start.data(), start.size());
    size = start.size();
  }
  return LLVMFuzzerMutate(data, size, max_size);
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const bool samples_are_good = [] {
    cohort::configure_log("fuzz", cohort::LogLevel::error);
    for (const std::string& sample : samples())
      if (!use(std::as_bytes(std::span(sample)))) return false;
    return true;
  }();
  if (!samples_are_good) std::abort();
  use({reinterpret_cast<const std::byte*>(data), size});
  return 0;
}
