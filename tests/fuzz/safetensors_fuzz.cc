// SPDX-License-Identifier: Apache-2.0
// Whatever parses has tensors within the file, as large as their shapes say, that cover the data.
#include <cstdlib>
#include <cstring>
#include <string>

#include "model/safetensors.h"

namespace {

void parse(const std::string& file, size_t data) {
  const auto tensors = cohort::parse_safetensors(std::as_bytes(std::span(file)), "fuzz");
  if (!tensors.ok()) return;
  size_t covered = 0;
  for (const cohort::StoredTensor& tensor : *tensors) {
    const char* begin = reinterpret_cast<const char*>(tensor.data.data());
    if (begin < file.data() || begin + tensor.data.size() > file.data() + file.size()) std::abort();
    int64_t elements = 1;
    for (const int64_t n : tensor.shape) elements *= n;
    if (tensor.dtype && size_t(bytes_of(*tensor.dtype, elements)) != tensor.data.size())
      std::abort();
    covered += tensor.data.size();
  }
  if (data != std::string::npos && covered != data) std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* bytes, size_t size) {
  const std::string input(reinterpret_cast<const char*>(bytes), size);
  parse(input, std::string::npos);
  // As a header of the right length before a little data: the start of a file is hard to guess.
  for (const size_t data : {size_t(0), size_t(8)}) {
    const uint64_t length = size;
    std::string file(8, '\0');
    std::memcpy(file.data(), &length, 8);
    parse(file + input + std::string(data, '\0'), data);
  }
  return 0;
}
