// SPDX-License-Identifier: Apache-2.0
// SHA-256 (FIPS 180-4), computed by OpenSSL. In its own library, cohort_crypto, so that base builds
// without OpenSSL.
#pragma once
#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>

namespace cohort {

using Sha256Digest = std::array<uint8_t, 32>;

// Over pieces that come one after another. Not thread-safe; movable.
class Sha256 {
 public:
  Sha256();
  ~Sha256();
  Sha256(Sha256&&) noexcept;
  Sha256& operator=(Sha256&&) noexcept;

  Sha256& update(std::span<const std::byte> bytes);
  Sha256& update(std::string_view text) {
    return update(std::as_bytes(std::span(text.data(), text.size())));
  }
  // The digest of everything since the start or the last finish(); then it starts afresh.
  Sha256Digest finish();

 private:
  struct Deleter {
    void operator()(void* state) const;
  };
  std::unique_ptr<void, Deleter> state_;
};

Sha256Digest sha256(std::span<const std::byte> bytes);
std::string to_hex(const Sha256Digest& digest);  // 64 lower-case digits

}  // namespace cohort
