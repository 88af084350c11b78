// SPDX-License-Identifier: Apache-2.0
// How SentencePiece vocabularies write spaces and single bytes.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace cohort {

inline constexpr std::string_view kMetaSpace = "\xe2\x96\x81";  // U+2581, a visible space

std::string with_spaces(std::string_view token);  // U+2581 as spaces
// The byte of a token written "<0x0A>".
std::optional<uint8_t> byte_of_token(std::string_view token);

}  // namespace cohort
