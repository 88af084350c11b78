// SPDX-License-Identifier: Apache-2.0
// Flat little-endian bytes: a writer that appends and a reader that never leaves its input. The
// reader's first failure sticks: read on freely, ask ok() at the end. A count is refused unless
// that many items of the given least size can still follow, so memory is bounded by the input.
#pragma once
#include <bit>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

namespace cohort {

static_assert(std::endian::native == std::endian::little, "values are copied as they lie");

class ByteWriter {
 public:
  template <class T>
  void put(T value) {
    static_assert(std::is_arithmetic_v<T>);
    bytes_.append(reinterpret_cast<const char*>(&value), sizeof value);
  }
  template <class T>
  void put_all(std::span<const T> values) {
    static_assert(std::is_arithmetic_v<T>);
    put(static_cast<uint32_t>(values.size()));
    bytes_.append(reinterpret_cast<const char*>(values.data()), values.size_bytes());
  }
  template <class T>
  void put_all(const std::vector<T>& values) {
    put_all(std::span<const T>(values));
  }
  void put_text(std::string_view text) { put_all(std::span<const char>(text.data(), text.size())); }
  std::string take() { return std::move(bytes_); }

 private:
  std::string bytes_;
};

class ByteReader {
 public:
  explicit ByteReader(std::string_view bytes) : left_(bytes) {}

  template <class T>
  T get() {
    static_assert(std::is_arithmetic_v<T> && !std::is_same_v<T, bool>);
    T value{};
    if (left_.size() < sizeof value) {
      fail();
      return value;
    }
    std::memcpy(&value, left_.data(), sizeof value);
    left_.remove_prefix(sizeof value);
    return value;
  }
  // One byte that is 0 or 1.
  bool get_flag() {
    const uint8_t value = get<uint8_t>();
    if (value > 1) fail();
    return value == 1;
  }
  // How many items follow; 0 after a failure.
  uint32_t get_count(size_t least_item_bytes) {
    const uint32_t count = get<uint32_t>();
    if (count > left_.size() / least_item_bytes) {
      fail();
      return 0;
    }
    return count;
  }
  template <class T>
  std::vector<T> get_all() {
    std::vector<T> values(get_count(sizeof(T)));
    if (values.empty()) return values;
    std::memcpy(values.data(), left_.data(), values.size() * sizeof(T));
    left_.remove_prefix(values.size() * sizeof(T));
    return values;
  }
  std::string get_text() {
    const uint32_t size = get_count(1);
    std::string text(left_.substr(0, size));
    left_.remove_prefix(size);
    return text;
  }

  bool ok() const { return ok_; }
  // Everything was read and nothing failed.
  bool done() const { return ok_ && left_.empty(); }
  void fail() {
    ok_ = false;
    left_ = {};
  }

 private:
  std::string_view left_;
  bool ok_ = true;
};

}  // namespace cohort
