// SPDX-License-Identifier: Apache-2.0
// Matches what a file holds with what a family needs.
#pragma once
#include <optional>
#include <span>
#include <vector>

#include "base/status.h"
#include "model/checkpoint.h"
#include "model/families.h"
#include "model/latent_parts.h"
#include "model/stored_tensor.h"

namespace cohort {

struct BoundWeight {
  WeightInfo info;
  std::span<const std::byte> data;        // with `parts`: those of the keys
  std::optional<LatentParts> parts = {};  // the weight is made from these, in f32
};

// One weight for each rule and layer, in the order of the rules, layer by layer. Fails where a
// tensor is missing, has another shape, a type that Cohort does not compute with, or a number of
// bytes that does not belong to its shape, and where the file holds tensors that the family does
// not know.
Result<std::vector<BoundWeight>> bind_weights(const Family& family, const ModelConfig& config,
                                              FileFormat format,
                                              std::span<const StoredTensor> stored);

}  // namespace cohort
