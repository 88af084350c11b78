// SPDX-License-Identifier: Apache-2.0
#include "model/gguf.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <limits>

#include "model/gguf_parse.h"

namespace cohort {
namespace {

// The bytes of a file, mapped read-only for as long as the object lives.
class Mapping {
 public:
  static Result<std::unique_ptr<Mapping>> open(const std::string& path) {
    const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
    if (fd < 0) {
      const Code code = errno == ENOENT ? Code::kNotFound : Code::kFailedPrecondition;
      return Status(code, concat(path, ": cannot be opened: ", std::strerror(errno)));
    }
    Result<std::unique_ptr<Mapping>> result = map(fd, path);
    ::close(fd);
    return result;
  }
  ~Mapping() { ::munmap(data_, size_); }
  Mapping(const Mapping&) = delete;
  Mapping& operator=(const Mapping&) = delete;

  std::span<const std::byte> bytes() const { return {static_cast<const std::byte*>(data_), size_}; }

 private:
  Mapping(void* data, size_t size) : data_(data), size_(size) {}

  static Result<std::unique_ptr<Mapping>> map(int fd, const std::string& path) {
    struct stat about;
    if (::fstat(fd, &about) != 0)
      return failed_precondition(concat(path, ": cannot be examined: ", std::strerror(errno)));
    if (!S_ISREG(about.st_mode)) return invalid_argument(path + ": not a regular file");
    if (about.st_size == 0) return invalid_argument(path + ": not a GGUF file: it is empty");
    const size_t size = size_t(about.st_size);
    void* data = ::mmap(nullptr, size, PROT_READ, MAP_SHARED, fd, 0);
    if (data == MAP_FAILED)
      return resource_exhausted(concat(path, ": cannot be mapped: ", std::strerror(errno)));
    return std::unique_ptr<Mapping>(new Mapping(data, size));
  }

  void* const data_;
  const size_t size_;
};

class ParsedGguf : public GgufFile {
 public:
  ParsedGguf(std::string path, std::unique_ptr<Mapping> mapping, GgufContents contents)
      : path_(std::move(path)), mapping_(std::move(mapping)), contents_(std::move(contents)) {}

  const std::string& path() const override { return path_; }
  int version() const override { return contents_.version; }
  const std::map<std::string, GgufValue, std::less<>>& metadata() const override {
    return contents_.metadata;
  }
  const std::vector<GgufTensor>& tensors() const override { return contents_.tensors; }

 private:
  const std::string path_;
  const std::unique_ptr<Mapping> mapping_;  // null where the caller owns the bytes
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
  COHORT_ASSIGN_OR_RETURN(std::unique_ptr<Mapping> mapping, Mapping::open(path));
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
