// SPDX-License-Identifier: Apache-2.0
// Ten thousand steps of a mixture of experts on 4 ranks, in which all that may change from step to
// step does: who has rows and how many, prefill and decode, micro-batches and copies of experts.
// Nothing hangs, and sequences are what they are alone.
#include <gtest/gtest.h>

#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <random>
#include <sstream>

#include "base/check.h"
#include "tests/support/replay.h"
#include "tests/support/spawn_ranks.h"
#include "tests/worker/requests.h"

namespace cohort::testing {
namespace {

constexpr int kGroups = 2;
constexpr int kExperts = 8;
constexpr int32_t kVocab = 272;
constexpr size_t kSample = 60;  // sequences that are run alone, too

// Sanitizers make steps slower, and need fewer of them.
int wanted_steps() {
  const char* text = std::getenv("COHORT_TEST_STEPS");
  return text == nullptr ? 10000 : std::atoi(text);
}

class Dice {
 public:
  explicit Dice(uint32_t seed) : random_(seed) {}
  // Evenly from [low, high].
  int roll(int low, int high) {
    return low + int(random_() % uint32_t(high - low + 1));  // the same with every library
  }

 private:
  std::mt19937 random_;
};

std::string read_file(const std::filesystem::path& path) {
  std::ifstream in(path, std::ios::binary);
  std::ostringstream text;
  text << in.rdbuf();
  return text.str();
}

void replace(std::string& text, const std::string& from, const std::string& to) {
  const size_t at = text.find(from);
  if (at == std::string::npos) throw std::runtime_error("no " + from);
  text.replace(at, from.size(), to);
}

// The weights of layer 1 and those outside of layers as a safetensors file of a model of one layer.
std::string one_layer_of(Checkpoint& checkpoint) {
  std::string header, data;
  for (const WeightInfo& weight : checkpoint.weights()) {
    std::string name = weight.source_name;
    if (name.find(".layers.") != std::string::npos) {
      if (name.find(".layers.1.") == std::string::npos) continue;
      replace(name, ".layers.1.", ".layers.0.");
    }
    COHORT_CHECK(weight.dtype == DType::bf16);
    const size_t begin = data.size();
    data.resize(begin + size_t(weight.bytes()));
    require_ok(checkpoint.read(weight, 0, weight.rows, 0, weight.columns,
                               reinterpret_cast<std::byte*>(data.data() + begin)));
    const std::string rows = weight.rows == 1 ? "" : concat(weight.rows, ",");
    header += concat(header.empty() ? "{" : ",", "\"", name, "\":{\"dtype\":\"BF16\",\"shape\":[",
                     rows, weight.columns, "],\"data_offsets\":[", begin, ",", data.size(), "]}");
  }
  header += "}";
  header.resize((header.size() + 7) / 8 * 8, ' ');
  std::string file(8, '\0');
  const uint64_t length = header.size();
  std::memcpy(file.data(), &length, sizeof length);
  return file + header + data;
}

// The layer with experts of a tiny model as a model of its own: a step has collectives of every
// kind, and no more than that.
class OneLayer {
 public:
  OneLayer() {
    const std::filesystem::path from = "tests/data/tiny_models/qwen3_moe";
    std::string folder = std::filesystem::temp_directory_path() / "cohort-one-layer-XXXXXX";
    if (mkdtemp(folder.data()) == nullptr) throw std::runtime_error("mkdtemp");
    folder_ = folder;
    std::filesystem::copy(from, folder_);
    std::string config = read_file(from / "config.json");
    replace(config, "\"num_hidden_layers\": 3", "\"num_hidden_layers\": 1");
    replace(config, "\"decoder_sparse_step\": 2", "\"decoder_sparse_step\": 1");
    std::ofstream(folder_ / "config.json") << config;
    std::ofstream(folder_ / "model.safetensors", std::ios::binary)
        << one_layer_of(*require_ok(Checkpoint::open(from)));
  }
  ~OneLayer() { std::filesystem::remove_all(folder_); }
  OneLayer(const OneLayer&) = delete;
  OneLayer& operator=(const OneLayer&) = delete;
  std::string path() const { return folder_; }

 private:
  std::filesystem::path folder_;
};

OpenCheckpoint open(const std::string& model) {
  return [=] { return std::shared_ptr<Checkpoint>(require_ok(Checkpoint::open(model))); };
}

ReplicaOptions options_of(const std::string& model, int tp, int dp) {
  ReplicaOptions options = tiny_options(tp, 1);
  options.model = model;
  options.layout.dp = dp;
  options.limits.max_slots = 4;
  options.limits.max_rows = 12;
  options.limits.max_context = 32;
  return options;
}

TestRequest request_at(int step, Dice& dice) {
  TestRequest request;
  const int prompt = dice.roll(0, 5) == 0 ? dice.roll(10, 22) : dice.roll(1, 6);
  request.prompt = some_tokens(prompt, uint32_t(dice.roll(0, 1 << 20)), kVocab);
  request.outputs = dice.roll(1, 8);
  request.arrival = step;
  request.sampling = greedy(1);
  if (dice.roll(0, 1) == 0) return request;
  request.sampling.temperature = 1.2f;
  request.sampling.seed = uint64_t(dice.roll(0, 1000));
  return request;
}

// What comes to one dp group: nothing for a while, one now and then, or many at once.
std::vector<TestRequest> load_of_group(int steps, Dice& dice) {
  std::vector<TestRequest> load;
  for (int step = 0; step < steps - 1;) {
    const int mood = dice.roll(0, 2), at_once = mood == 2 ? dice.roll(3, 6) : 1;
    const int until = std::min(step + dice.roll(5, 40), steps - 1);
    for (; mood > 0 && step < until; step += dice.roll(1, mood * 8))
      for (int i = 0; i < at_once; i++) load.push_back(request_at(std::min(step, until), dice));
    step = std::max(step, until);
  }
  load.push_back(request_at(steps - 1, dice));
  return load;
}

// Requests are dealt out to the groups in turn.
std::vector<TestRequest> load_of(int steps) {
  Dice dice(21);
  std::vector<TestRequest> groups[kGroups], all;
  for (auto& group : groups) group = load_of_group(steps, dice);
  const size_t most = std::max(groups[0].size(), groups[1].size());
  for (auto& group : groups)
    while (group.size() < most) group.push_back(request_at(steps - 1, dice));
  for (size_t i = 0; i < most; i++)
    for (auto& group : groups) all.push_back(group[i]);
  return all;
}

// What the steps were.
struct Census {
  int steps = 0, nobody = 0, everybody = 0, cut = 0, mixed = 0, adds = 0, drops = 0;
  int alone[kGroups] = {};
};

void count(const StepPlan& plan, int32_t slots, Census& census) {
  int64_t rows[kGroups] = {};
  bool prefill = false, decode = false;
  for (const StepEntry& entry : plan.entries) {
    rows[entry.slot / slots] += entry.length;
    (entry.start == 0 || entry.length > 1 ? prefill : decode) = true;
  }
  census.steps++;
  census.nobody += rows[0] == 0 && rows[1] == 0;
  census.everybody += rows[0] > 0 && rows[1] > 0;
  for (int g = 0; g < kGroups; g++) census.alone[g] += rows[g] > 0 && rows[1 - g] == 0;
  census.cut += plan.micro_batches == 2 && std::max(rows[0], rows[1]) > 1;
  census.mixed += prefill && decode;
}

// Micro-batches, and copies of experts that come and go.
void vary(std::vector<StepPlan>& plans, int32_t slots, Census& census) {
  Dice dice(22);
  for (StepPlan& plan : plans) {
    plan.micro_batches = dice.roll(0, 2) == 0 ? 2 : 1;
    count(plan, slots, census);
    if (dice.roll(0, 9) > 0) continue;
    for (int i = dice.roll(1, 3); i > 0; i--) {
      const bool add = dice.roll(0, 1) == 1;
      plan.copies.push_back({0, dice.roll(0, kExperts - 1), dice.roll(0, kGroups - 1), add});
      (add ? census.adds : census.drops)++;
    }
  }
}

// One after the other, on one rank.
std::vector<TestOutput> run_alone(const std::string& model, std::vector<TestRequest> requests) {
  const ReplicaOptions options = options_of(model, 1, 1);
  int step = 0;
  for (TestRequest& request : requests) {
    request.arrival = step;
    step += (int(request.prompt.size()) + options.limits.max_rows - 1) / options.limits.max_rows +
            request.outputs;
  }
  return generate(open(model), options, requests);
}

void expect_all_kinds(const Census& census, int steps) {
  EXPECT_GE(census.steps, steps);
  for (const int kind : {census.nobody, census.everybody, census.alone[0], census.alone[1],
                         census.cut, census.mixed, census.adds, census.drops})
    EXPECT_GT(kind, steps / 100);
  std::printf(
      "%d steps: %d with rows of both groups, %d and %d of one, %d of none; %d cut in two, %d with "
      "prefill and decode; %d copies added, %d dropped\n",
      census.steps, census.everybody, census.alone[0], census.alone[1], census.nobody, census.cut,
      census.mixed, census.adds, census.drops);
}

TEST(TenThousandSteps, E21_RandomLoadNeitherHangsNorChangesABit) {
  const OneLayer model;
  const int steps = wanted_steps();
  const std::vector<TestRequest> requests = load_of(steps);
  const ReplicaOptions options = options_of(model.path(), 2, kGroups);
  Census census;
  ScheduleOptions schedule{.chunk = 7};
  schedule.change = [&](std::vector<StepPlan>& plans) {
    vary(plans, options.limits.max_slots, census);
  };
  schedule.deadline = std::chrono::seconds(280);
  const std::vector<TestOutput> outputs = generate(open(model.path()), options, requests, schedule);
  expect_all_kinds(census, steps);

  std::vector<TestRequest> sample;
  std::vector<TestOutput> sampled;
  for (size_t i = 0; i < kSample; i++) {
    const size_t request = i * (requests.size() - 1) / (kSample - 1);
    sample.push_back(requests[request]);
    sampled.push_back(outputs[request]);
  }
  const std::vector<TestOutput> expected = run_alone(model.path(), sample);
  for (size_t i = 0; i < kSample; i++) {
    EXPECT_EQ(sampled[i], expected[i]) << "sequence " << i;
    EXPECT_EQ(expected[i].error, "");
    EXPECT_EQ(int(expected[i].tokens.size()), sample[i].outputs);
  }
  for (size_t i = 0; i < requests.size(); i++)
    ASSERT_EQ(int(outputs[i].tokens.size()), requests[i].outputs) << i;
}

}  // namespace
}  // namespace cohort::testing
