// SPDX-License-Identifier: Apache-2.0
// The weights of a checkpoint as the tensors of a GGUF file: under its names, experts stacked.
#pragma once
#include <cstddef>
#include <map>
#include <string>
#include <vector>

#include "model/checkpoint.h"

namespace cohort {

std::vector<std::byte> read_all(Checkpoint& checkpoint, const WeightInfo& weight);
std::vector<int64_t> shape_of(const WeightInfo& weight);  // one dimension for one row

// Tensors of a file; experts of one kind are appended to each other in the order of their numbers.
struct Stored {
  DType type;
  std::vector<int64_t> shape;
  std::vector<std::byte> data;
};
using Tensors = std::map<std::string, Stored>;
Tensors tensors_of(Checkpoint& checkpoint);

}  // namespace cohort
