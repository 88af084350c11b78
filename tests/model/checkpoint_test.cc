// SPDX-License-Identifier: Apache-2.0
#include "model/checkpoint.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <thread>

#include "model/json_file.h"
#include "tests/model/reference_decoder.h"

namespace cohort {
namespace {

using nlohmann::json;
using testing::HasSubstr;
namespace fs = std::filesystem;

const std::string kModels = "tests/data/tiny_models/";

std::unique_ptr<Checkpoint> open(const std::string& path) {
  Result<std::unique_ptr<Checkpoint>> opened = Checkpoint::open(path);
  EXPECT_TRUE(opened.ok()) << opened.status().to_string();
  return opened.ok() ? *std::move(opened) : nullptr;
}

std::vector<std::byte> read_all(Checkpoint& checkpoint, const WeightInfo& weight) {
  std::vector<std::byte> bytes(size_t(weight.bytes()));
  const Status status = checkpoint.read(weight, 0, weight.rows, 0, weight.columns, bytes.data());
  EXPECT_TRUE(status.ok()) << status.to_string();
  return bytes;
}

// The largest difference between our reading of a model and the expected logits beside it.
double worst_logit(const std::string& folder, const std::string& path) {
  const std::unique_ptr<Checkpoint> checkpoint = open(path);
  const json expected = *read_json_file(folder + "/expected.json");
  std::ifstream file(folder + "/expected.bin", std::ios::binary);
  double worst = 0;
  for (const json& prompt : expected["prompts"]) {
    const auto ids = prompt["ids"].get<std::vector<int>>();
    const std::vector<double> logits = reference_logits(*checkpoint, ids);
    std::vector<float> right(logits.size());
    file.seekg(prompt["logits_offset"].get<int64_t>() * 4);
    file.read(reinterpret_cast<char*>(right.data()), std::streamsize(4 * right.size()));
    EXPECT_TRUE(file.good());
    for (size_t i = 0; i < right.size(); i++)
      worst = std::max(worst, std::abs(logits[i] - double(right[i])));
  }
  return worst;
}

// Logits are of the order of 10; transformers computes them in f32.
constexpr double kTolerance = 1e-4;

class TinyModel : public testing::TestWithParam<const char*> {};

TEST_P(TinyModel, MeansWhatTransformersComputes) {
  const std::string folder = kModels + GetParam();
  EXPECT_LT(worst_logit(folder, folder), kTolerance);
}

TEST_P(TinyModel, CountsTheBytesThatWereRead) {
  const std::unique_ptr<Checkpoint> checkpoint = open(kModels + GetParam());
  EXPECT_EQ(checkpoint->bytes_read(), 0);
  int64_t total = 0;
  for (const WeightInfo& weight : checkpoint->weights()) {
    read_all(*checkpoint, weight);
    total += weight.bytes();
    EXPECT_EQ(checkpoint->bytes_read(), total);
  }
  EXPECT_EQ(checkpoint->total_weight_bytes(), total);
}

INSTANTIATE_TEST_SUITE_P(All, TinyModel,
                         testing::Values("llama2", "llama3", "smollm2", "tinyllama", "mistral",
                                         "llama3_bf16", "mixtral", "qwen2", "qwen3", "qwen2_moe",
                                         "qwen3_moe", "olmoe", "deepseek_v2", "deepseek_v2_lite",
                                         "deepseek_v3"),
                         [](const auto& test) { return std::string(test.param); });

TEST(Checkpoint, TheGgufOfAModelMeansTheSame) {
  const std::string folder = kModels + "llama3_bf16";
  EXPECT_LT(worst_logit(folder, folder + "/llama3_bf16.gguf"), kTolerance);
  const auto gguf = open(folder + "/llama3_bf16.gguf");
  EXPECT_EQ(gguf->format(), "GGUF v3");
  EXPECT_EQ(gguf->config().rope.pairing, RopePairing::neighbours);
  EXPECT_EQ(gguf->config().name, "tiny llama3_bf16");
  EXPECT_TRUE(gguf->config().tied_embedding);
  EXPECT_EQ(gguf->find("head"), nullptr);
  EXPECT_EQ(gguf->find("layers.1.attention.k")->source_name, "blk.1.attn_k.weight");
}

TEST(Checkpoint, TheGgufOfAMixtralMeansTheSame) {
  const std::string folder = kModels + "mixtral";
  EXPECT_LT(worst_logit(folder, folder + "/mixtral.gguf"), kTolerance);
}

TEST(Checkpoint, ConfigsOfTheVariants) {
  const ModelConfig mistral = open(kModels + "mistral")->config();
  EXPECT_EQ(mistral.family, "llama");
  EXPECT_EQ(mistral.head_dim, 32);
  EXPECT_EQ(mistral.hidden, 64);
  EXPECT_EQ(mistral.context, 256) << "cut to the window of attention";
  EXPECT_EQ(mistral.rope.theta, 1e6);
  const ModelConfig smollm2 = open(kModels + "smollm2")->config();
  EXPECT_EQ(smollm2.heads, 9);
  EXPECT_EQ(smollm2.kv_heads, 3);
  EXPECT_TRUE(smollm2.tied_embedding);
  EXPECT_EQ(smollm2.context, 512);
  EXPECT_EQ(smollm2.vocab, 272);
  EXPECT_EQ(open(kModels + "tinyllama")->config().rope.linear_factor, 2);
  ASSERT_TRUE(open(kModels + "llama3")->config().rope.llama3);
  EXPECT_EQ(open(kModels + "llama3")->config().rope.llama3->original_context, 64);
}

TEST(Checkpoint, ReadsAnyRectangle) {
  const auto checkpoint = open(kModels + "llama3");
  const WeightInfo& weight = *checkpoint->find("layers.2.feed_forward.down");
  ASSERT_EQ(weight.rows, 64);
  ASSERT_EQ(weight.columns, 80);
  const std::vector<std::byte> all = read_all(*checkpoint, weight);
  const int64_t before = checkpoint->bytes_read();
  std::vector<float> part(5 * 7);
  ASSERT_TRUE(
      checkpoint->read(weight, 11, 16, 73, 80, reinterpret_cast<std::byte*>(part.data())).ok());
  EXPECT_EQ(checkpoint->bytes_read() - before, 5 * 7 * 4);
  const float* whole = reinterpret_cast<const float*>(all.data());
  for (int row = 0; row < 5; row++)
    for (int column = 0; column < 7; column++)
      ASSERT_EQ(part[size_t(row * 7 + column)], whole[(row + 11) * 80 + column + 73]);
  EXPECT_TRUE(checkpoint->read(weight, 3, 3, 0, 80, nullptr).ok());
}

TEST(Checkpoint, RefusesReadsOutsideOfAWeight) {
  const auto checkpoint = open(kModels + "llama3");
  const WeightInfo& weight = *checkpoint->find("layers.0.attention.q");
  std::vector<std::byte> out(size_t(weight.bytes()));
  EXPECT_FALSE(checkpoint->read(weight, 0, 65, 0, 64, out.data()).ok());
  EXPECT_FALSE(checkpoint->read(weight, -1, 1, 0, 64, out.data()).ok());
  EXPECT_FALSE(checkpoint->read(weight, 2, 1, 0, 64, out.data()).ok());
  EXPECT_FALSE(checkpoint->read(weight, 0, 1, 1, 65, out.data()).ok());
  WeightInfo stranger = weight;
  stranger.name = "layers.9.attention.q";
  EXPECT_EQ(checkpoint->read(stranger, 0, 1, 0, 64, out.data()).code(), Code::kNotFound);
  EXPECT_EQ(checkpoint->bytes_read(), 0);
}

TEST(Checkpoint, ManyThreadsRead) {
  const auto checkpoint = open(kModels + "tinyllama");
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; i++)
    threads.emplace_back([&] {
      for (const WeightInfo& weight : checkpoint->weights()) read_all(*checkpoint, weight);
    });
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(checkpoint->bytes_read(), 4 * checkpoint->total_weight_bytes());
}

// Copies of models that are then damaged.
class DamagedModel : public testing::Test {
 protected:
  void SetUp() override {
    std::string folder = fs::temp_directory_path() / "cohort-checkpoint-XXXXXX";
    ASSERT_NE(mkdtemp(folder.data()), nullptr);
    folder_ = folder;
  }
  void TearDown() override { fs::remove_all(folder_); }

  std::string copy(const std::string& model) {
    fs::copy(kModels + model, folder_ / model);
    return (folder_ / model).string();
  }
  static void edit_json(const std::string& path, const std::function<void(json&)>& edit) {
    json value = *read_json_file(path);
    edit(value);
    std::ofstream(path) << value;
  }
  static void set(const std::string& folder, const char* key, const json& value) {
    edit_json(folder + "/config.json", [&](json& config) { config[key] = value; });
  }
  // "no error", or the message.
  static std::string error_of(const std::string& path) {
    const auto opened = Checkpoint::open(path);
    return opened.ok() ? "no error" : opened.status().message();
  }

  fs::path folder_;
};

TEST_F(DamagedModel, FingerprintsTellModelsApart) {
  const std::string folder = copy("llama2");
  const std::string original = open(kModels + "llama2")->fingerprint();
  EXPECT_EQ(original.size(), 64u);
  EXPECT_EQ(open(folder)->fingerprint(), original) << "another path, the same model";
  EXPECT_EQ(open(folder + "/model.safetensors")->fingerprint(), original);
  EXPECT_NE(open(kModels + "llama3")->fingerprint(), original);

  set(folder, "rms_norm_eps", 2e-5);
  EXPECT_NE(open(folder)->fingerprint(), original);
  set(folder, "rms_norm_eps", 1e-5);
  EXPECT_EQ(open(folder)->fingerprint(), original);
  set(folder, "rope_parameters", {{"rope_theta", 20000.0}});
  EXPECT_NE(open(folder)->fingerprint(), original);
  set(folder, "rope_parameters", nullptr);
  EXPECT_EQ(open(folder)->fingerprint(), original) << "10000 is the default";

  std::fstream file(folder + "/model.safetensors", std::ios::in | std::ios::out | std::ios::binary);
  file.seekp(-4, std::ios::end);
  file.write("\x01\x02\x03\x04", 4);
  file.close();
  EXPECT_NE(open(folder)->fingerprint(), original);
  EXPECT_EQ(open(folder)->bytes_read(), 0);
}

TEST_F(DamagedModel, PathsThatHoldNoModel) {
  EXPECT_THAT(error_of((folder_ / "absent").string()), HasSubstr("no such file"));
  EXPECT_THAT(error_of(folder_.string()), HasSubstr("without config.json"));
  EXPECT_THAT(error_of("/dev/null"), HasSubstr("not a regular file"));
  EXPECT_THAT(error_of(kModels + "llama2/config.json"), HasSubstr("neither"));
  const std::string folder = copy("llama2");
  fs::rename(folder + "/model.safetensors", folder + "/pytorch_model.bin");
  EXPECT_THAT(error_of(folder), HasSubstr("must be converted"));
  std::ofstream(folder + "/model.safetensors");
  EXPECT_THAT(error_of(folder), HasSubstr("shorter than its 8-byte start"));
}

TEST_F(DamagedModel, UnknownArchitecturesListTheKnownOnes) {
  const std::string folder = copy("llama2");
  set(folder, "architectures", {"GPT2LMHeadModel"});
  EXPECT_THAT(error_of(folder), HasSubstr("'GPT2LMHeadModel' is not supported; supported are: "
                                          "LlamaForCausalLM, MistralForCausalLM"));
  set(folder, "architectures", json::array());
  EXPECT_THAT(error_of(folder), HasSubstr("must name one architecture"));
}

TEST_F(DamagedModel, SettingsThatAreRefusedAreNamed) {
  const struct {
    const char* key;
    json value;
    const char* error;
  } cases[] = {
      {"attention_bias", true, "'attention_bias'"},
      {"mlp_bias", true, "'mlp_bias'"},
      {"hidden_act", "gelu", "'gelu'"},
      {"hidden_size", nullptr, "'hidden_size' is missing"},
      {"hidden_size", "64", "'hidden_size' is not a whole number"},
      {"hidden_size", -64, "'hidden_size' is -64"},
      {"hidden_size", 18446744073709551615u, "'hidden_size' is not a whole number"},
      {"num_hidden_layers", 0, "'num_hidden_layers' is 0"},
      {"num_hidden_layers", 4000, "'model.layers.2.input_layernorm.weight' is missing"},
      {"num_hidden_layers", 1, "model.layers.1."},
      {"num_attention_heads", 3, "query heads cannot be shared"},
      {"num_key_value_heads", 2, "shape [64, 64]; by the model's settings"},
      {"head_dim", 15, "even number"},
      {"vocab_size", 273, "[273, 64]"},
      {"rms_norm_eps", 0, "epsilon"},
      {"tie_word_embeddings", "yes", "not true or false"},
      {"quantization_config", {{"bits", 4}}, "use a GGUF file"},
      {"partial_rotary_factor", 0.5, "partly rotated"},
      {"rope_scaling", {{"type", "dynamic"}, {"factor", 4}}, "'dynamic' is not supported"},
      {"rope_scaling", {{"rope_type", "llama3"}, {"factor", 4}}, "low_freq_factor"},
      {"rope_scaling", {{"type", "linear"}}, "needs a factor"},
      {"rope_scaling", {{"type", "linear"}, {"factor", -1}}, "out of range"},
      {"rope_scaling", 4, "not an object"},
      {"rope_parameters", {{"rope_theta", 0}}, "out of range"},
  };
  const std::string folder = copy("llama2");
  const json original = *read_json_file(folder + "/config.json");
  for (const auto& test : cases) {
    json config = original;
    config[test.key] = test.value;
    std::ofstream(folder + "/config.json") << config;
    EXPECT_THAT(error_of(folder), HasSubstr(test.error)) << test.key << " = " << test.value;
  }
}

TEST_F(DamagedModel, WindowsOfAttention) {
  const std::string folder = copy("mistral");
  set(folder, "sliding_window", nullptr);
  EXPECT_EQ(open(folder)->config().context, 512);
  set(folder, "sliding_window", 0);
  EXPECT_THAT(error_of(folder), HasSubstr("'sliding_window' is 0"));
}

TEST_F(DamagedModel, TensorsThatNobodyWouldCompute) {
  const std::string folder = copy("llama2");
  const std::string path = folder + "/model.safetensors";
  std::string file;
  {
    std::ifstream in(path, std::ios::binary);
    file.assign(std::istreambuf_iterator<char>(in), {});
  }
  const std::string norm = "model.layers.0.input_layernorm.weight";
  const std::string bias = "model.layers.0.self_attn.q_proj.bias.";
  ASSERT_EQ(norm.size(), bias.size());
  std::string renamed = file;
  renamed.replace(renamed.find(norm), norm.size(), bias);
  std::ofstream(path, std::ios::binary) << renamed;
  EXPECT_THAT(error_of(folder), HasSubstr("'" + norm + "' is missing"));
  set(folder, "tie_word_embeddings", true);
  std::string head = file;
  head.replace(head.find("lm_head.weight"), 14, "xm_head.weight");
  std::ofstream(path, std::ios::binary) << head;
  EXPECT_THAT(error_of(folder), HasSubstr("'xm_head.weight' is no part of a model"));
  std::ofstream(path, std::ios::binary) << file;
  EXPECT_EQ(open(folder)->find("head"), nullptr) << "a second copy of a tied table is passed over";
}

TEST_F(DamagedModel, IndexesThatLie) {
  const std::string folder = copy("tinyllama");
  const std::string path = folder + "/model.safetensors.index.json";
  const std::string tensor = "model.norm.weight";
  const json original = *read_json_file(path);
  const auto with = [&](const std::function<void(json&)>& edit) {
    json index = original;
    edit(index);
    std::ofstream(path) << index;
    return error_of(folder);
  };
  const auto in_file = [&](const json& file) {
    return with([&](json& index) { index["weight_map"][tensor] = file; });
  };
  EXPECT_EQ(with([](json&) {}), "no error");
  EXPECT_EQ(error_of(path), "no error");
  const std::string ghost = "model-00000-of-00003.safetensors";  // opened first
  EXPECT_THAT(in_file(ghost), HasSubstr(ghost + ": cannot be opened: No such file"));
  EXPECT_THAT(in_file("model.safetensors.index.json"), HasSubstr("not in a .safetensors file"));
  EXPECT_THAT(in_file("../llama2/model.safetensors"), HasSubstr("not in a .safetensors file"));
  EXPECT_THAT(in_file(7), HasSubstr("not in a .safetensors file"));
  const std::string first = original["weight_map"]["model.embed_tokens.weight"];
  const std::string last = original["weight_map"]["model.layers.1.mlp.up_proj.weight"];
  EXPECT_THAT(in_file(original["weight_map"][tensor] == first ? last : first),
              HasSubstr("tensor '" + tensor + "'"));
  EXPECT_THAT(with([&](json& index) { index["weight_map"].erase(tensor); }),
              HasSubstr("not there by the index"));
  EXPECT_THAT(with([&](json& index) { index["weight_map"]["ghost"] = first; }),
              HasSubstr("'ghost' is missing"));
  EXPECT_THAT(with([&](json& index) { index["weight_map"] = json::object(); }),
              HasSubstr("names 0 files"));
  EXPECT_THAT(with([&](json& index) { index = json::array({index}); }), HasSubstr("weight_map"));
  std::ofstream(path) << std::string(1000, '[') << std::string(1000, ']');
  EXPECT_THAT(error_of(folder), HasSubstr("nested"));
  // An index that is its own shard.
  fs::remove(folder + "/" + first);
  fs::create_symlink(path, folder + "/" + first);
  std::ofstream(path) << original;
  EXPECT_THAT(error_of(folder), HasSubstr("not a safetensors file"));
}

TEST_F(DamagedModel, FilesThatAreCutShort) {
  const std::string folder = copy("llama2");
  const std::string weights = folder + "/model.safetensors";
  fs::resize_file(weights, fs::file_size(weights) - 1);
  EXPECT_THAT(error_of(folder), HasSubstr("cut short"));
  const std::string gguf = copy("llama3_bf16") + "/llama3_bf16.gguf";
  fs::resize_file(gguf, fs::file_size(gguf) - 64);
  EXPECT_THAT(error_of(gguf), HasSubstr("llama3_bf16.gguf"));
  std::ofstream(folder + "/config.json") << R"({"architectures": ["Llama)";
  EXPECT_THAT(error_of(folder), HasSubstr("not valid JSON"));
}

TEST(Checkpoint, FoldersCarryTheirTokenizer) {
  for (const char* path : {"llama2", "llama3_bf16/llama3_bf16.gguf"}) {
    const auto checkpoint = open(kModels + path);
    const auto tokenizer = checkpoint->tokenizer();
    ASSERT_TRUE(tokenizer.ok()) << tokenizer.status().to_string();
    EXPECT_EQ((*tokenizer)->vocab_size(), checkpoint->config().vocab);
    EXPECT_EQ((*tokenizer)->eos(), TokenId(2));
    EXPECT_TRUE((*tokenizer)->chat_template().has_value());
  }
}

}  // namespace
}  // namespace cohort
