// SPDX-License-Identifier: Apache-2.0
#pragma once
#include "base/status.h"
#include "model/tokenizer_json.h"

namespace cohort {

// Fills bos, eos, end tokens and the chat template from the files beside tokenizer.json, and lets
// add_bos_token and add_eos_token overrule what the post-processor puts around a text.
Status apply_configs(const TokenizerFiles& files, TokenizerParts& parts);

}  // namespace cohort
