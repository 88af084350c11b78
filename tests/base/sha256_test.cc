// SPDX-License-Identifier: Apache-2.0
#include "base/sha256.h"

#include <gtest/gtest.h>

namespace cohort {
namespace {

std::string hash(std::string_view text) {
  return to_hex(sha256(std::as_bytes(std::span(text.data(), text.size()))));
}

// Examples of FIPS 180-4 (csrc.nist.gov, "Examples with Intermediate Values").
TEST(Sha256, GivesTheDigestsOfTheStandard) {
  EXPECT_EQ(hash(""), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  EXPECT_EQ(hash("abc"), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  EXPECT_EQ(hash("abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq"),
            "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
}

TEST(Sha256, PiecesEqualTheWholeAndFinishStartsAfresh) {
  Sha256 hash_of_pieces;
  hash_of_pieces.update("a").update("").update("bc");
  EXPECT_EQ(to_hex(hash_of_pieces.finish()), hash("abc"));
  EXPECT_EQ(to_hex(hash_of_pieces.update("abc").finish()), hash("abc"));
  EXPECT_EQ(to_hex(hash_of_pieces.finish()), hash(""));
}

}  // namespace
}  // namespace cohort
