// SPDX-License-Identifier: Apache-2.0
// The values of GGUF's tokenizer.ggml.pre: which pre-tokenizer the model was trained with.
#pragma once
#include <string_view>
#include <vector>

#include "base/status.h"
#include "model/pretokenizer.h"

namespace cohort {

struct NamedPreTokenizer {
  std::vector<PreTokenizerStep> steps;  // ends with the byte-level step
  bool ignore_merges = false;           // a piece that is a token stays whole
  bool add_bos = false;                 // where the file does not say
};

// An unknown name is an error: the wrong split ruins a model's answers without any other sign.
Result<NamedPreTokenizer> named_pretokenizer(std::string_view name);

}  // namespace cohort
