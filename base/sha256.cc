// SPDX-License-Identifier: Apache-2.0
#include "base/sha256.h"

#include <openssl/evp.h>

#include "base/check.h"

namespace cohort {
namespace {

EVP_MD_CTX* state_of(void* state) { return static_cast<EVP_MD_CTX*>(state); }

// OpenSSL fails here only where it has no memory or no SHA-256 at all: nothing can go on then.
void start(void* state) {
  COHORT_CHECK_EQ(EVP_DigestInit_ex(state_of(state), EVP_sha256(), nullptr), 1);
}

}  // namespace

void Sha256::Deleter::operator()(void* state) const { EVP_MD_CTX_free(state_of(state)); }

Sha256::Sha256() : state_(EVP_MD_CTX_new()) {
  COHORT_CHECK(state_ != nullptr);
  start(state_.get());
}
Sha256::~Sha256() = default;
Sha256::Sha256(Sha256&&) noexcept = default;
Sha256& Sha256::operator=(Sha256&&) noexcept = default;

Sha256& Sha256::update(std::span<const std::byte> bytes) {
  COHORT_CHECK_EQ(EVP_DigestUpdate(state_of(state_.get()), bytes.data(), bytes.size()), 1);
  return *this;
}

Sha256Digest Sha256::finish() {
  Sha256Digest digest;
  COHORT_CHECK_EQ(EVP_DigestFinal_ex(state_of(state_.get()), digest.data(), nullptr), 1);
  start(state_.get());
  return digest;
}

Sha256Digest sha256(std::span<const std::byte> bytes) { return Sha256().update(bytes).finish(); }

std::string to_hex(const Sha256Digest& digest) {
  static constexpr char kDigits[] = "0123456789abcdef";
  std::string text;
  for (const uint8_t byte : digest) {
    text += kDigits[byte >> 4];
    text += kDigits[byte & 15];
  }
  return text;
}

}  // namespace cohort
