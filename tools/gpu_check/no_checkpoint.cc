// SPDX-License-Identifier: Apache-2.0
// Checkpoint without readers of files: they need libraries that a machine for measurements may not
// have. Linked by build.sh instead of model/checkpoint.cc.
#include "model/checkpoint.h"

namespace cohort {

Result<std::unique_ptr<Checkpoint>> Checkpoint::open(const std::string& path) {
  return unimplemented("this program reads no model files, so it cannot open " + path);
}

const WeightInfo* Checkpoint::find(std::string_view name) const {
  for (const WeightInfo& weight : weights())
    if (weight.name == name) return &weight;
  return nullptr;
}

}  // namespace cohort
