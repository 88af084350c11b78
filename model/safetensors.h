// SPDX-License-Identifier: Apache-2.0
// The safetensors format (huggingface/safetensors, README "Format"): eight bytes of header length,
// little endian; a JSON object that maps each tensor's name to {"dtype", "shape", "data_offsets"};
// the data. Parsing checks that the tensors lie within the file, fill it without gap or overlap and
// have as many bytes as their shape says; names occur once. No data is read.
#pragma once
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/status.h"
#include "model/stored_tensor.h"

namespace cohort {

struct SafetensorsLimits {
  uint64_t header_bytes = 100'000'000;  // the format's own limit
  size_t tensors = 1'000'000;
  size_t rank = 8;
};

// name: how errors call the input, usually its path. Tensors view the input and come in the order
// of the header.
Result<std::vector<StoredTensor>> parse_safetensors(std::span<const std::byte> file,
                                                    const std::string& name,
                                                    const SafetensorsLimits& limits = {});

}  // namespace cohort
