// SPDX-License-Identifier: Apache-2.0
#include "model/unicode.h"

#include <unicode/bytestream.h>
#include <unicode/normalizer2.h>
#include <unicode/uchar.h>

namespace cohort {
namespace {

const icu::Normalizer2* instance(NormalForm form, UErrorCode& error) {
  switch (form) {
    case NormalForm::nfc:
      return icu::Normalizer2::getNFCInstance(error);
    case NormalForm::nfd:
      return icu::Normalizer2::getNFDInstance(error);
    case NormalForm::nfkc:
      return icu::Normalizer2::getNFKCInstance(error);
    case NormalForm::nfkd:
      return icu::Normalizer2::getNFKDInstance(error);
  }
  return nullptr;
}

}  // namespace

std::string normalized(std::string_view text, NormalForm form) {
  UErrorCode error = U_ZERO_ERROR;
  const icu::Normalizer2* normalizer = instance(form, error);
  std::string out;
  icu::StringByteSink<std::string> sink(&out, int32_t(text.size()));
  if (normalizer)
    normalizer->normalizeUTF8(0, icu::StringPiece(text.data(), int32_t(text.size())), sink, nullptr,
                              error);
  // ICU fails only where its data files are missing or memory is out.
  COHORT_CHECK_MSG(U_SUCCESS(error), u_errorName(error));
  return out;
}

bool is_white_space(char32_t c) { return u_isUWhiteSpace(UChar32(c)); }

bool is_word_character(char32_t c) {
  return u_hasBinaryProperty(UChar32(c), UCHAR_ALPHABETIC) ||
         u_charType(UChar32(c)) == U_DECIMAL_DIGIT_NUMBER ||
         (U_MASK(u_charType(UChar32(c))) & (U_GC_M_MASK | U_GC_PC_MASK)) != 0;
}

}  // namespace cohort
