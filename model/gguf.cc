// SPDX-License-Identifier: Apache-2.0
#include "model/gguf.h"

#include <limits>

#include "base/mapped_file.h"
#include "model/gguf_parse.h"

namespace cohort {
namespace {

class ParsedGguf : public GgufFile {
 public:
  ParsedGguf(std::string path, std::unique_ptr<MappedFile> mapping, GgufContents contents)
      : path_(std::move(path)), mapping_(std::move(mapping)), contents_(std::move(contents)) {}

  const std::string& path() const override { return path_; }
  int version() const override { return contents_.version; }
  const std::map<std::string, GgufValue, std::less<>>& metadata() const override {
    return contents_.metadata;
  }
  const std::vector<GgufTensor>& tensors() const override { return contents_.tensors; }

 private:
  const std::string path_;
  const std::unique_ptr<MappedFile> mapping_;  // null where the caller owns the bytes
  const GgufContents contents_;
};

// The value of a key where it has exactly type T.
template <class T>
const T* get(const GgufFile& file, std::string_view key) {
  const auto found = file.metadata().find(key);
  return found == file.metadata().end() ? nullptr : std::get_if<T>(&found->second);
}

template <class T>
std::optional<T> value_of(const T* found) {
  return found ? std::optional<T>(*found) : std::nullopt;
}

}  // namespace

Result<std::unique_ptr<GgufFile>> GgufFile::open(const std::string& path) {
  COHORT_ASSIGN_OR_RETURN(std::unique_ptr<MappedFile> mapping, MappedFile::open(path));
  COHORT_ASSIGN_OR_RETURN(GgufContents contents, parse_gguf(mapping->bytes(), path));
  return std::unique_ptr<GgufFile>(
      std::make_unique<ParsedGguf>(path, std::move(mapping), std::move(contents)));
}

Result<std::unique_ptr<GgufFile>> GgufFile::parse(std::span<const std::byte> bytes,
                                                  const std::string& name) {
  COHORT_ASSIGN_OR_RETURN(GgufContents contents, parse_gguf(bytes, name));
  return std::unique_ptr<GgufFile>(
      std::make_unique<ParsedGguf>(name, nullptr, std::move(contents)));
}

std::optional<int64_t> GgufFile::integer(std::string_view key) const {
  if (const int64_t* value = get<int64_t>(*this, key)) return *value;
  const uint64_t* value = get<uint64_t>(*this, key);
  if (!value || *value > uint64_t(std::numeric_limits<int64_t>::max())) return std::nullopt;
  return int64_t(*value);
}

std::optional<double> GgufFile::number(std::string_view key) const {
  if (const double* value = get<double>(*this, key)) return *value;
  if (const uint64_t* value = get<uint64_t>(*this, key)) return double(*value);
  const std::optional<int64_t> whole = integer(key);
  return whole ? std::optional<double>(double(*whole)) : std::nullopt;
}

std::optional<bool> GgufFile::boolean(std::string_view key) const {
  return value_of(get<bool>(*this, key));
}

std::optional<std::string_view> GgufFile::string(std::string_view key) const {
  return value_of(get<std::string_view>(*this, key));
}

const std::vector<std::string_view>* GgufFile::strings(std::string_view key) const {
  return get<std::vector<std::string_view>>(*this, key);
}

const std::vector<int64_t>* GgufFile::integers(std::string_view key) const {
  return get<std::vector<int64_t>>(*this, key);
}

const std::vector<double>* GgufFile::numbers(std::string_view key) const {
  return get<std::vector<double>>(*this, key);
}

}  // namespace cohort
