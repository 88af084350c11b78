// SPDX-License-Identifier: Apache-2.0
// What int8 between pipeline stages costs: the perplexity of a text, and how far logprobs move,
// with
// --compress-activations and without, on 2 and 3 stages. Each token is predicted from the text
// before it.
//
//   stage_compression MODEL TOKEN_ID...
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <vector>

#include "tests/support/replay.h"
#include "tests/support/spawn_ranks.h"

namespace cohort::testing {
namespace {

// Log-probabilities of ids[1], ids[2], ...: each of a request that ends before it.
std::vector<double> predict(const std::string& model, const std::vector<int32_t>& ids, int stages,
                            bool compress) {
  ReplicaOptions options = tiny_options(1, stages);
  options.isa = detect_isa();
  options.compress_activations = compress;
  options.limits = {.max_slots = 8, .max_rows = 256, .max_context = 512};
  const auto open = [&] {
    return std::shared_ptr<Checkpoint>(require_ok(Checkpoint::open(model)));
  };
  const auto vocab = int32_t(open()->config().vocab);
  std::vector<double> logprobs;
  for (size_t first = 1; first < ids.size(); first += 16) {
    std::vector<TestRequest> requests;
    for (size_t n = first; n < std::min(first + 16, ids.size()); n++) {
      SamplingParams sampling;
      sampling.temperature = 0;
      sampling.logprobs = vocab;
      requests.push_back({{ids.begin(), ids.begin() + int64_t(n)}, 1, sampling, 0});
    }
    const auto outputs = generate(open, options, requests);
    for (size_t i = 0; i < outputs.size(); i++)
      for (const TokenLogprob& top : outputs[i].tokens.at(0).top)
        if (top.token == ids[first + i]) logprobs.push_back(double(top.logprob));
  }
  return logprobs;
}

double perplexity(const std::vector<double>& logprobs) {
  double sum = 0;
  for (const double p : logprobs) sum += p;
  return std::exp(-sum / double(logprobs.size()));
}

void compare(const std::string& model, const std::vector<int32_t>& ids, int stages,
             const std::vector<double>& whole) {
  const std::vector<double> compressed = predict(model, ids, stages, true);
  double moved = 0;
  for (size_t i = 0; i < whole.size(); i++) moved += std::abs(compressed[i] - whole[i]);
  std::printf(
      "%d stages: perplexity %.3f with int8 between them, %.3f without (%+.2f %%); mean "
      "change of a logprob %.4f over %zu tokens\n",
      stages, perplexity(compressed), perplexity(whole),
      100 * (perplexity(compressed) / perplexity(whole) - 1), moved / double(whole.size()),
      whole.size());
}

}  // namespace
}  // namespace cohort::testing

int main(int argc, char** argv) {
  if (argc < 4) {
    std::fprintf(stderr, "usage: stage_compression MODEL TOKEN_ID TOKEN_ID...\n");
    return 64;
  }
  std::vector<int32_t> ids;
  for (int i = 2; i < argc; i++) ids.push_back(std::atoi(argv[i]));
  const auto whole = cohort::testing::predict(argv[1], ids, 1, false);
  for (const int stages : {2, 3}) cohort::testing::compare(argv[1], ids, stages, whole);
}
