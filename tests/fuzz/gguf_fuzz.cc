// SPDX-License-Identifier: Apache-2.0
// A GGUF file that opens has readable tensors; a tokenizer that loads from it encodes and decodes.
#include <cstdlib>
#include <cstring>
#include <vector>

#include "model/gguf.h"
#include "model/tokenizer.h"
#include "tests/support/gguf_writer.h"

namespace {

void read_tensors(const cohort::GgufFile& file) {
  for (const cohort::GgufTensor& tensor : file.tensors()) {
    int64_t elements = 1;
    for (int64_t size : tensor.shape) elements *= size;
    if (cohort::bytes_of(tensor.dtype, elements) != tensor.bytes) std::abort();
    volatile std::byte last = tensor.data[tensor.bytes - 1];
    (void)last;
  }
}

void use_tokenizer(const cohort::GgufFile& file) {
  const auto tokenizer = cohort::Tokenizer::from_gguf(file);
  if (!tokenizer.ok()) return;
  for (cohort::TokenId id : (*tokenizer)->encode("Hi \xff<|im_end|> 12", {}))
    if (id < 0 || id >= (*tokenizer)->vocab_size()) std::abort();
  std::vector<cohort::TokenId> all;
  for (int id = -1; id <= (*tokenizer)->vocab_size(); id++) all.push_back(id);
  (*tokenizer)->decode(all, false);
}

// What the fuzzer starts from, so that it need not invent the format.
std::string sample() {
  cohort::GgufWriter w;
  w.add_string("tokenizer.ggml.model", "llama");
  w.add_strings("tokenizer.ggml.tokens", {"<unk>", "<0x48>", "\xe2\x96\x81", "i", "Hi"});
  w.add_f32s("tokenizer.ggml.scores", {0, 0, -1, -2, -3});
  w.add_i32s("tokenizer.ggml.token_type", {2, 6, 1, 1, 1});
  w.add_f32_tensor("weight", {2, 2}, std::vector<float>(4, 1.0f));
  return w.bytes();
}

}  // namespace

extern "C" size_t LLVMFuzzerMutate(uint8_t* data, size_t size, size_t max_size);

extern "C" size_t LLVMFuzzerCustomMutator(uint8_t* data, size_t size, size_t max_size,
                                          unsigned int seed) {
  static const std::string start = sample();
  if (seed % 64 == 0 && start.size() <= max_size) {
    std::memcpy(data, start.data(), start.size());
    size = start.size();
  }
  return LLVMFuzzerMutate(data, size, max_size);
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto file =
      cohort::GgufFile::parse({reinterpret_cast<const std::byte*>(data), size}, "fuzz");
  if (!file.ok()) return 0;
  read_tensors(**file);
  use_tokenizer(**file);
  return 0;
}
