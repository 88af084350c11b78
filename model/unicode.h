// SPDX-License-Identifier: Apache-2.0
// The little of Unicode's tables that tokenizers need, from ICU.
#pragma once
#include <string>
#include <string_view>

#include "base/status.h"

namespace cohort {

enum class NormalForm { nfc, nfd, nfkc, nfkd };

// Text must be valid UTF-8.
std::string normalized(std::string_view text, NormalForm form);
bool is_white_space(char32_t c);
bool is_word_character(char32_t c);  // letters, marks, digits, connectors: \w

}  // namespace cohort
