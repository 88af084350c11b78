// SPDX-License-Identifier: Apache-2.0
// Models by name: what a person may write instead of a path. A known model is fetched once into
// $COHORT_MODELS, or ${XDG_CACHE_HOME:-~/.cache}/cohort, and checked by its SHA-256.
#pragma once
#include <string>

#include "base/status.h"

namespace cohort {

// The path of the model: `text` itself if such a file or folder exists, else the file of the known
// model of that name, fetched if necessary (progress on standard error).
Result<std::string> resolve_model(const std::string& text);

}  // namespace cohort
