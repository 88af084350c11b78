// SPDX-License-Identifier: Apache-2.0
// The emulation against hardware, instruction by instruction. expected.txt holds what the emulated
// device computes (make_expected.sh); the same inputs are made here again.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <map>
#include <sstream>

#include "base/failure.h"
#include "base/half.h"
#include "tools/gpu_check/dump.h"
#include "tools/gpu_check/kernel_checks.h"
#include "tools/gpu_check/parts.h"

namespace cohort::gpu_check {
namespace {

using Words = std::vector<uint32_t>;

class Numbers {
 public:
  explicit Numbers(uint32_t seed) : state_(seed * 2654435761u + 1) {}
  uint32_t next() {
    state_ = state_ * 1664525u + 1013904223u;
    return state_ ^ state_ >> 15;
  }
  float unit() { return float(next() >> 8) * 0x1p-23f - 1; }  // [-1, 1)
  // Of either sign and of sizes from 2^-12 to 2^11.
  float of_any_size() { return std::ldexp(unit(), int(next() >> 8) % 24 - 12); }

 private:
  uint32_t state_;
};

uint32_t input_word(Input input, Numbers& numbers) {
  if (input == Input::bits) return numbers.next();
  if (input == Input::floats) {
    const float x = std::clamp(numbers.of_any_size(), -100.0f, 100.0f);
    uint32_t word;
    std::memcpy(&word, &x, sizeof word);
    return word;
  }
  const auto half = input == Input::bf16_pairs ? float_to_bf16 : float_to_half;
  const uint32_t low = half(numbers.unit());
  return low | uint32_t(half(numbers.unit())) << 16;
}

Words input_of(const Probe& probe) {
  Numbers numbers(uint32_t(probe.words_in * 100 + probe.words_out * 10 + probe.warps));
  Words words(size_t(probe.warps) * 32 * size_t(probe.words_in));
  for (uint32_t& word : words) word = input_word(probe.input, numbers);
  return words;
}

Words run(CudaDevice& device, const Probe& probe) {
  const Words in = input_of(probe);
  Words out(size_t(probe.warps) * 32 * size_t(probe.words_out));
  const Buffer from = device.allocate(in.size() * 4), to = device.allocate(out.size() * 4);
  device.upload(from.data(), in.data(), from.size());
  probe.run(device.compute(), probe.warps, from.as<uint32_t>(), to.as<uint32_t>());
  device.download(out.data(), to.data(), to.size());
  return out;
}

float float_of(uint32_t word) {
  float x;
  std::memcpy(&x, &word, sizeof x);
  return x;
}

// In units in the last place of the larger of the expected value and `scale`.
double ulps(uint32_t got, uint32_t expected, float scale) {
  const float a = float_of(got), b = float_of(expected);
  if (got == expected || (std::isnan(a) && std::isnan(b))) return 0;
  if (std::isnan(a) || std::isnan(b)) return NAN;
  int exponent;
  std::frexp(std::fmax(std::fabs(b), std::fmax(scale, 0x1p-126f)), &exponent);
  return std::fabs(double(a) - double(b)) / std::ldexp(1.0, exponent - 24);
}

void compare(Report& report, const Probe& probe, const Words& got, const Words& expected) {
  if (got.size() != expected.size()) {
    report.pass(probe.name, "", false, "expected.txt is of another version: run make_expected.sh");
    return;
  }
  double most = 0;
  size_t different = 0;
  for (size_t i = 0; i < got.size(); i++) {
    const double off =
        probe.of_floats ? ulps(got[i], expected[i], probe.scale) : got[i] != expected[i];
    most = larger(most, off);
    different += !(off == 0);
  }
  const std::string shape = concat(got.size(), " words, ", different, " differ");
  const int allowed = std::max(probe.allowed_ulp, 0);
  report.add(probe.name, shape, most, probe.of_floats ? "ulp" : "different", allowed,
             most <= allowed ? Verdict::pass : Verdict::fail);
}

// Name, number of words, then the words; by name.
std::map<std::string, Words> read_expected(const std::string& path) {
  std::ifstream file(path);
  if (!file) throw Failure(not_found(path + " cannot be read"));
  std::map<std::string, Words> all;
  for (std::string name; std::getline(file, name);) {
    size_t count = 0;
    file >> std::dec >> count >> std::hex;
    Words& words = all[name];
    for (uint32_t word; words.size() < count && file >> word;) words.push_back(word);
    file.ignore(1);
  }
  return all;
}

}  // namespace

void compare_emulation(Report& report) {
  const std::map<std::string, Words> expected = read_expected(GPU_CHECK_FOLDER "/expected.txt");
  const std::shared_ptr<CudaDevice> device = open_gpu();
  for (const Probe& probe : probes())
    report.guarded(probe.name, "", [&] {
      const auto found = expected.find(probe.name);
      compare(report, probe, run(*device, probe),
              found == expected.end() ? Words() : found->second);
    });
}

int write_expected(const std::string& path) {
  const std::shared_ptr<CudaDevice> device = open_gpu();
  std::ofstream file(path);
  for (const Probe& probe : probes()) {
    const Words words = run(*device, probe);
    file << probe.name << '\n' << std::dec << words.size() << std::hex;
    for (size_t i = 0; i < words.size(); i++) file << (i % 12 == 0 ? '\n' : ' ') << words[i];
    file << '\n';
  }
  file.flush();
  if (!file) std::fprintf(stderr, "%s cannot be written\n", path.c_str());
  return file ? 0 : 1;
}

}  // namespace cohort::gpu_check
