// SPDX-License-Identifier: Apache-2.0
// What shorter numbers cost: the perplexity of a text with each type of the KV cache, and with int8
// and f32 activations, and how far the log-probabilities of its tokens move. Each token is
// predicted from the whole text before it.
//
//   quality MODEL [TEXT_FILE]
#include <cmath>
#include <cstdio>
#include <fstream>
#include <sstream>
#include <thread>
#include <vector>

#include "kernels/kv_layout.h"
#include "tests/support/replay.h"
#include "tests/support/spawn_ranks.h"

namespace cohort::testing {
namespace {

constexpr int32_t kChunk = 64;  // positions that are predicted in one step

std::vector<int32_t> first_blocks(int32_t from, int32_t positions) {
  std::vector<int32_t> ids;
  for (int32_t b = from; b * kBlockTokens < positions; b++) ids.push_back(b);
  return ids;
}

// The text in one sequence, slot 0, chunk by chunk. After each chunk every position of it is asked
// for the token after it: by a sequence of its own that has the same blocks, computes that position
// once more, to the same bits, and takes the text's next token, whatever its likelihood is.
std::vector<StepPlan> make_plans(const std::vector<int32_t>& ids) {
  std::vector<StepPlan> plans;
  const auto n = int32_t(ids.size());
  for (int32_t first = 0, last = 0; first < n; first = last) {
    last = std::min(first + kChunk, n);
    StepPlan text, ask;
    text.epoch = ask.epoch = 1;
    const int32_t held = (first + kBlockTokens - 1) / kBlockTokens;
    StepEntry chunk{.slot = 0,
                    .start = first,
                    .length = last - first,
                    .sample = false,
                    .new_blocks = first_blocks(held, last),
                    .sequence = {}};
    if (first == 0) chunk.sequence = NewSequence{ids, n, {}};
    text.entries.push_back(std::move(chunk));
    for (int32_t i = 1; first > 0 && i <= kChunk; i++) text.frees.push_back(i);
    for (int32_t p = first; p < std::min(last, n - 1); p++) {
      SamplingParams wanted;
      wanted.temperature = 0;
      wanted.logprobs = 0;
      wanted.logit_bias = {{ids[size_t(p) + 1], 1e9f}};  // log-probabilities are without it
      ask.entries.push_back(
          {.slot = 1 + p - first,
           .start = p,
           .length = 1,
           .sample = true,
           .new_blocks = first_blocks(0, p + 1),
           .sequence = NewSequence{{ids.begin(), ids.begin() + p + 1}, p + 1, wanted}});
    }
    plans.push_back(std::move(text));
    if (!ask.entries.empty()) plans.push_back(std::move(ask));
  }
  chain(plans);
  return plans;
}

// Log-probabilities of ids[1], ids[2], ...
std::vector<double> predict(const std::string& model, const std::vector<int32_t>& ids,
                            ActivationMode activations, DType kv) {
  ReplicaOptions options = tiny_options();
  options.isa = detect_isa();
  options.threads = int(std::max(1u, std::thread::hardware_concurrency()));
  options.activations = activations;
  options.kv_dtype = kv;
  options.limits = {.max_slots = kChunk + 1, .max_rows = 256, .max_context = int32_t(ids.size())};
  const auto open = [&] {
    return std::shared_ptr<Checkpoint>(require_ok(Checkpoint::open(model)));
  };
  std::vector<double> logprobs;
  for (const StepResult& result :
       run_plans(open, options, make_plans(ids), std::chrono::seconds(3600)))
    for (const SlotResult& slot : result.slots) {
      COHORT_CHECK_MSG(slot.error.empty(), slot.error);
      COHORT_CHECK_EQ(slot.sampled.token, ids[logprobs.size() + 1]);
      logprobs.push_back(double(slot.sampled.logprob));
    }
  return logprobs;
}

double perplexity(const std::vector<double>& logprobs) {
  double sum = 0;
  for (const double p : logprobs) sum += p;
  return std::exp(-sum / double(logprobs.size()));
}

void report(const char* what, const std::vector<double>& got, const std::vector<double>& exact) {
  double moved = 0, largest = 0;
  for (size_t i = 0; i < exact.size(); i++) {
    const double change = std::abs(got[i] - exact[i]);
    moved += change;
    largest = std::max(largest, change);
  }
  std::printf("%-27s perplexity %8.4f (%+.3f %%), a logprob moves by %.5f (at most %.3f)\n", what,
              perplexity(got), 100 * (perplexity(got) / perplexity(exact) - 1),
              moved / double(exact.size()), largest);
  std::fflush(stdout);
}

std::vector<int32_t> read_tokens(const std::string& model, const std::string& path) {
  std::ostringstream text;
  text << std::ifstream(path).rdbuf();
  COHORT_CHECK_MSG(!text.str().empty(), "nothing to read in " + path);
  const auto checkpoint = require_ok(Checkpoint::open(model));
  return require_ok(checkpoint->tokenizer())->encode(text.str(), {});
}

int run(const std::string& model, const std::string& path) {
  const std::vector<int32_t> ids = read_tokens(model, path);
  std::printf("%zu tokens of %s\n", ids.size(), path.c_str());
  const auto exact = predict(model, ids, ActivationMode::f32, DType::f32);
  const auto usual = predict(model, ids, ActivationMode::int8, DType::f32);
  std::printf("against f32 activations and KV f32:\n");
  report("f32 activations, KV f32", exact, exact);
  report("int8 activations, KV f32", usual, exact);
  std::printf("against int8 activations and KV f32:\n");
  for (const DType kv : {DType::f16, DType::bf16, DType::i8}) {
    const std::string_view type = kv == DType::i8 ? "int8" : name(kv);
    report(concat("int8 activations, KV ", type).c_str(),
           predict(model, ids, ActivationMode::int8, kv), usual);
  }
  return 0;
}

}  // namespace
}  // namespace cohort::testing

int main(int argc, char** argv) {
  if (argc < 2 || argc > 3) {
    std::fprintf(stderr, "usage: quality MODEL [TEXT_FILE]\n");
    return 64;
  }
  return cohort::testing::run(argv[1], argc > 2 ? argv[2] : "tests/data/tale_of_two_cities.txt");
}
