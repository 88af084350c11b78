// SPDX-License-Identifier: Apache-2.0
// What the families make of a config.json. Expectations: transformers' configuration_*.py and
// modeling_*.py of each architecture.
#include "model/families.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "model/checkpoint.h"
#include "model/json_file.h"

namespace cohort {
namespace {

using nlohmann::json;
using testing::ElementsAre;
using testing::HasSubstr;
using Score = ExpertsConfig::Score;
using GroupScore = ExpertsConfig::GroupScore;

json settings_of(const std::string& model) {
  return *read_json_file("tests/data/tiny_models/" + model + "/config.json");
}

ModelConfig config_of(const json& settings) {
  const auto known = recognise(settings);
  EXPECT_TRUE(known.ok()) << known.status().to_string();
  return known.ok() ? known->config : ModelConfig();
}
ModelConfig config_of(const char* model) { return config_of(settings_of(model)); }

// The config of a model with some settings changed; null: removed.
ModelConfig with(const std::string& model, const json& changes) {
  json settings = settings_of(model);
  settings.update(changes);
  return config_of(settings);
}

std::string error_of(const std::string& model, const json& changes) {
  json settings = settings_of(model);
  settings.update(changes);
  const auto known = recognise(settings);
  return known.ok() ? "no error" : known.status().message();
}

TEST(Families, Mixtral) {
  const ModelConfig config = config_of("mixtral");
  EXPECT_EQ(config.family, "llama");
  EXPECT_EQ(config.ffn, 0) << "no layer has a plain feed-forward";
  EXPECT_EQ(config.experts,
            (ExpertsConfig{
                .count = 6, .per_token = 2, .ffn = 24, .normalise = true, .dense_layers = {}}));
  EXPECT_TRUE(config.experts.in_layer(0));
  EXPECT_FALSE(config.qkv_bias);
  EXPECT_EQ(config.rope.theta, 1e6);
  EXPECT_EQ(with("mixtral", {{"rope_parameters", nullptr}}).rope.theta, 1e6) << "the default";
  EXPECT_EQ(with("mixtral", {{"sliding_window", 100}}).context, 100);
}

TEST(Families, DenseQwen) {
  const ModelConfig two = config_of("qwen2");
  EXPECT_EQ(two.family, "qwen");
  EXPECT_TRUE(two.qkv_bias);
  EXPECT_EQ(two.query_key_norm, QueryKeyNorm::none);
  EXPECT_EQ(two.experts, ExpertsConfig());
  EXPECT_EQ(two.ffn, 80);
  EXPECT_EQ(two.context, 512) << "its window is not used";
  const ModelConfig three = config_of("qwen3");
  EXPECT_FALSE(three.qkv_bias);
  EXPECT_EQ(three.query_key_norm, QueryKeyNorm::heads);
  EXPECT_EQ(three.head_dim, 32);
  EXPECT_EQ(three.rope.dims, 32);
  EXPECT_TRUE(three.tied_embedding);
  EXPECT_EQ(with("qwen3", {{"head_dim", nullptr}}).head_dim, 128) << "the default";
  EXPECT_EQ(with("qwen3", {{"use_sliding_window", true}, {"sliding_window", 64}}).context, 64);
}

TEST(Families, QwenWithExperts) {
  const ModelConfig two = config_of("qwen2_moe");
  EXPECT_TRUE(two.qkv_bias);
  EXPECT_EQ(two.ffn, 48);
  EXPECT_EQ(two.experts, (ExpertsConfig{.count = 6,
                                        .per_token = 2,
                                        .ffn = 24,
                                        .shared_ffn = 40,
                                        .shared_gate = true,
                                        .dense_layers = {1}}));
  EXPECT_FALSE(with("qwen2_moe", {{"qkv_bias", false}}).qkv_bias);
  EXPECT_THAT(with("qwen2_moe", {{"mlp_only_layers", {7, 2, 0}}}).experts.dense_layers,
              ElementsAre(0, 2));
  const ModelConfig three = config_of("qwen3_moe");
  EXPECT_EQ(three.query_key_norm, QueryKeyNorm::heads);
  EXPECT_EQ(three.experts,
            (ExpertsConfig{
                .count = 8, .per_token = 2, .ffn = 24, .normalise = true, .dense_layers = {0, 2}}))
      << "every second layer has experts";
  EXPECT_EQ(with("qwen3_moe", {{"num_experts", 0}}).experts, ExpertsConfig());
  EXPECT_EQ(with("qwen3_moe", {{"decoder_sparse_step", 9}}).experts, ExpertsConfig());
  EXPECT_EQ(with("qwen3_moe", {{"decoder_sparse_step", 1}}).ffn, 0);
}

TEST(Families, Olmoe) {
  const ModelConfig config = config_of("olmoe");
  EXPECT_EQ(config.family, "olmoe");
  EXPECT_EQ(config.query_key_norm, QueryKeyNorm::rows);
  EXPECT_EQ(config.experts,
            (ExpertsConfig{.count = 8, .per_token = 2, .ffn = 24, .dense_layers = {}}));
  EXPECT_EQ(config.norm_eps, 1e-5);
  EXPECT_TRUE(with("olmoe", {{"norm_topk_prob", true}}).experts.normalise);
}

TEST(Families, DeepSeekV2) {
  const ModelConfig config = config_of("deepseek_v2");
  EXPECT_EQ(config.family, "deepseek");
  EXPECT_EQ(
      config.latent,
      (LatentConfig{.q_rank = 24, .kv_rank = 32, .nope_dim = 16, .rope_dim = 8, .value_dim = 12}));
  EXPECT_EQ(config.heads, 4);
  EXPECT_EQ(config.kv_heads, 4);
  EXPECT_EQ(config.head_dim, 24);
  EXPECT_EQ(config.rope.dims, 8);
  EXPECT_EQ(config.rope.pairing, RopePairing::neighbours);
  EXPECT_EQ(config.experts, (ExpertsConfig{.count = 8,
                                           .per_token = 3,
                                           .ffn = 16,
                                           .shared_ffn = 32,
                                           .groups = 4,
                                           .groups_per_token = 2,
                                           .scale = 1.5,
                                           .dense_layers = {0}}));
  const ModelConfig lite = config_of("deepseek_v2_lite");
  EXPECT_EQ(lite.latent.q_rank, 0);
  EXPECT_EQ(lite.score_scale, 0);
  EXPECT_EQ(lite.experts.groups, 1);
}

TEST(Families, DeepSeekV3) {
  const ModelConfig config = config_of("deepseek_v3");
  EXPECT_EQ(config.experts, (ExpertsConfig{.count = 8,
                                           .per_token = 2,
                                           .ffn = 16,
                                           .shared_ffn = 16,
                                           .score = Score::sigmoid,
                                           .choice_bias = true,
                                           .groups = 4,
                                           .groups_per_token = 2,
                                           .group_score = GroupScore::two_largest,
                                           .normalise = true,
                                           .scale = 2.5,
                                           .dense_layers = {0}}));
  EXPECT_FALSE(with("deepseek_v3", {{"norm_topk_prob", false}}).experts.normalise);
  EXPECT_EQ(with("deepseek_v3", {{"rope_interleave", false}}).rope.pairing, RopePairing::halves);
  EXPECT_EQ(with("deepseek_v3", {{"num_nextn_predict_layers", 2}}).draft_layers, 2);
  EXPECT_EQ(with("deepseek_v3", {{"first_k_dense_replace", 3}}).experts, ExpertsConfig());
}

// Expected numbers: attention_scaling and scaling of transformers 5.24.0 for DeepSeek-V2-Lite's
// factor of 40 (with heads of 192 dimensions), and for Qwen's of 4.
TEST(Families, YarnStretchesAttention) {
  json rope = {{"rope_type", "yarn"}, {"factor", 40.0}, {"original_max_position_embeddings", 64},
               {"mscale", 1.0},       {"beta_fast", 0}, {"mscale_all_dim", 0.707}};
  ModelConfig config = with("deepseek_v2", {{"rope_parameters", rope}});
  ASSERT_TRUE(config.rope.yarn);
  EXPECT_NEAR(config.rope.yarn->attention_factor, 1.0857263992561355, 1e-12);
  EXPECT_NEAR(config.score_scale, 0.1147213867929261 * std::sqrt(192.0 / 24), 1e-12);
  EXPECT_EQ(config.rope.yarn->beta_fast, 32) << "zero stands for the default";
  EXPECT_EQ(config.rope.yarn->original_context, 64);
  rope.erase("mscale_all_dim");
  config = with("deepseek_v2", {{"rope_parameters", rope}});
  EXPECT_NEAR(config.rope.yarn->attention_factor, 1 + 0.1 * std::log(40.0), 1e-12);
  EXPECT_EQ(config.score_scale, 0);
  const json old = {{"type", "yarn"}, {"factor", 4.0}};
  config = with("qwen2", {{"rope_parameters", nullptr}, {"rope_scaling", old}});
  EXPECT_NEAR(config.rope.yarn->attention_factor, 1.138629436111989, 1e-12);
  EXPECT_EQ(config.rope.yarn->original_context, 512) << "the whole context, where not said";
  EXPECT_EQ(config.score_scale, 0);
  const json given = {{"type", "yarn"},
                      {"factor", nullptr},
                      {"attention_factor", 1.5},
                      {"original_max_position_embeddings", 128},
                      {"truncate", false}};
  config = with("qwen2", {{"rope_parameters", given}});
  EXPECT_EQ(*config.rope.yarn,
            (RopeConfig::Yarn{
                .factor = 4, .original_context = 128, .truncate = false, .attention_factor = 1.5}));
}

struct Refusal {
  const char* model;
  json changes;
  const char* error;
};

TEST(Families, SettingsThatAreRefusedAreNamed) {
  const json linear = {{"rope_type", "linear"}, {"factor", 2}, {"mscale_all_dim", 1}};
  const json nested = {{"full_attention", {{"rope_type", "default"}}}};
  const Refusal cases[] = {
      {"mixtral", {{"num_local_experts", nullptr}}, "'num_local_experts' is missing"},
      {"mixtral", {{"num_local_experts", 4097}}, "not within 1 and 4096"},
      {"mixtral", {{"num_experts_per_tok", 7}}, "7 of 6 experts"},
      {"mixtral", {{"num_experts_per_tok", 65}}, "not within 1 and 64"},
      {"mixtral", {{"num_experts_per_tok", 0}}, "not within 1 and 64"},
      {"qwen2", {{"attention_bias", true}}, "'attention_bias'"},
      {"qwen2", {{"hidden_act", "gelu"}}, "'gelu'"},
      {"qwen2", {{"use_sliding_window", true}, {"sliding_window", -1}}, "'sliding_window' is -1"},
      {"qwen2", {{"rope_parameters", nested}}, "full_attention"},
      {"qwen2_moe", {{"mlp_only_layers", 1}}, "'mlp_only_layers' is not a list"},
      {"qwen2_moe", {{"mlp_only_layers", {"x"}}}, "whole numbers"},
      {"qwen2_moe", {{"decoder_sparse_step", 0}}, "'decoder_sparse_step' is 0"},
      {"qwen2_moe", {{"shared_expert_intermediate_size", -5}}, "'shared_expert_intermediate_size'"},
      {"qwen3_moe", {{"moe_intermediate_size", nullptr}}, "'moe_intermediate_size' is missing"},
      {"olmoe", {{"clip_qkv", 8.0}}, "clip_qkv"},
      {"olmoe", {{"num_experts", 1 << 20}}, "'num_experts' is 1048576"},
      {"deepseek_v2", {{"topk_method", "best"}}, "'topk_method' is 'best'"},
      {"deepseek_v2", {{"scoring_func", "sigmoid"}}, "'scoring_func' is 'sigmoid'"},
      {"deepseek_v2", {{"norm_topk_prob", true}}, "'norm_topk_prob'"},
      {"deepseek_v2", {{"n_group", 3}}, "8 experts in 3 groups"},
      {"deepseek_v2", {{"topk_group", 5}}, "of which 5"},
      {"deepseek_v2", {{"num_experts_per_tok", 5}}, "too few to choose 5"},
      {"deepseek_v2", {{"rms_norm_eps", 1e-5}}, "'rms_norm_eps'"},
      {"deepseek_v2", {{"moe_layer_freq", 2}}, "'moe_layer_freq' is 2"},
      {"deepseek_v2", {{"kv_lora_rank", 0}}, "'kv_lora_rank' is 0"},
      {"deepseek_v2", {{"qk_rope_head_dim", 7}}, "even number"},
      {"deepseek_v2", {{"attention_bias", true}}, "'attention_bias'"},
      {"deepseek_v2", {{"rope_parameters", linear}}, "'mscale_all_dim'"},
      {"deepseek_v2", {{"n_shared_experts", 4096}, {"moe_intermediate_size", 4096}}, "too many"},
      {"deepseek_v3", {{"topk_method", "greedy"}}, "'topk_method' is 'greedy'"},
      {"deepseek_v3", {{"scoring_func", "softmax"}}, "'scoring_func' is 'softmax'"},
      {"deepseek_v3", {{"n_group", 8}}, "two best"},
      {"deepseek_v3", {{"routed_scaling_factor", 0}}, "multiplied by 0"},
      {"deepseek_v3", {{"quantization_config", {{"bits", 8}}}}, "use a GGUF file"},
  };
  for (const auto& [model, changes, error] : cases)
    EXPECT_THAT(error_of(model, changes), HasSubstr(error)) << model << " " << changes;
}

TEST(Families, YarnThatMakesNoSenseIsRefused) {
  const json good = {{"rope_type", "yarn"}, {"factor", 4}};
  const struct {
    const char* key;
    json value;
  } cases[] = {{"factor", -1},          {"factor", 0},     {"original_max_position_embeddings", 0},
               {"attention_factor", 0}, {"beta_slow", -1}, {"rope_theta", 1},
               {"rope_theta", 0.5},     {"mscale", "x"}};
  for (const auto& [key, value] : cases) {
    json rope = good;
    rope[key] = value;
    EXPECT_THAT(error_of("qwen2", {{"rope_parameters", rope}}),
                testing::AnyOf(HasSubstr("out of range"), HasSubstr(key)))
        << rope;
  }
}

TEST(Families, UnknownArchitecturesListAllKnownOnes) {
  EXPECT_THAT(error_of("olmoe", {{"architectures", {"DeepseekV32ForCausalLM"}}}),
              HasSubstr("supported are: LlamaForCausalLM, MistralForCausalLM, MixtralForCausalLM, "
                        "Qwen2ForCausalLM, Qwen3ForCausalLM, Qwen2MoeForCausalLM, "
                        "Qwen3MoeForCausalLM, OlmoeForCausalLM, DeepseekV2ForCausalLM, "
                        "DeepseekV3ForCausalLM"));
}

// A copy of the tiny DeepSeek-V3 whose settings are then changed.
class ChangedModel : public testing::Test {
 protected:
  void SetUp() override {
    std::string folder = std::filesystem::temp_directory_path() / "cohort-families-XXXXXX";
    ASSERT_NE(mkdtemp(folder.data()), nullptr);
    folder_ = folder;
    std::filesystem::copy("tests/data/tiny_models/deepseek_v3", folder_,
                          std::filesystem::copy_options::recursive);
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  json settings() { return *read_json_file(folder_ + "/config.json"); }
  void set(const char* key, const json& value) {
    json changed = settings();
    changed[key] = value;
    std::ofstream(folder_ + "/config.json") << changed;
  }
  std::unique_ptr<Checkpoint> open() {
    Result<std::unique_ptr<Checkpoint>> opened = Checkpoint::open(folder_);
    EXPECT_TRUE(opened.ok()) << opened.status().to_string();
    return opened.ok() ? *std::move(opened) : nullptr;
  }
  std::string open_error() {
    const auto opened = Checkpoint::open(folder_);
    return opened.ok() ? "no error" : opened.status().message();
  }

  std::string folder_;
};

// The layer that guesses a second token ahead, which DeepSeek-V3's checkpoints hold at the end.
TEST_F(ChangedModel, DraftLayersArePassedOver) {
  set("num_hidden_layers", 2);
  set("num_nextn_predict_layers", 0);
  EXPECT_THAT(open_error(), HasSubstr("'model.layers.2."));
  set("num_nextn_predict_layers", 1);
  const auto checkpoint = open();
  EXPECT_NE(checkpoint->find("layers.1.router"), nullptr);
  EXPECT_EQ(checkpoint->find("layers.2.router"), nullptr);
  set("num_hidden_layers", 1);
  EXPECT_THAT(open_error(), HasSubstr("'model.layers.2."));
}

TEST_F(ChangedModel, FingerprintsTellChoicesOfExpertsApart) {
  const std::string original = open()->fingerprint();
  const auto changed = [&](const char* key, const json& value) {
    const json before = (settings())[key];
    set(key, value);
    const std::string fingerprint = open()->fingerprint();
    set(key, before);
    return fingerprint != original;
  };
  EXPECT_TRUE(changed("routed_scaling_factor", 2.0));
  EXPECT_TRUE(changed("num_experts_per_tok", 3));
  EXPECT_TRUE(changed("topk_group", 3));
  EXPECT_TRUE(changed("norm_topk_prob", false));
  EXPECT_TRUE(changed("rope_interleave", false));
  json rope = (settings())["rope_parameters"];
  rope["attention_factor"] = 1.25;
  EXPECT_TRUE(changed("rope_parameters", rope));
  rope["attention_factor"] = nullptr;
  rope["mscale"] = rope["mscale_all_dim"] = 0.5;
  EXPECT_TRUE(changed("rope_parameters", rope));
  EXPECT_FALSE(changed("_name_or_path", "another name"));
}

}  // namespace
}  // namespace cohort
