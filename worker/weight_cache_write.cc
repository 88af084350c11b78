// SPDX-License-Identifier: Apache-2.0
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>

#include "kernels/matrix.h"
#include "worker/weight_cache.h"

namespace cohort {
namespace {

namespace fs = std::filesystem;

Status write_all(int fd, const void* data, size_t size, uint64_t at) {
  const char* from = static_cast<const char*>(data);
  while (size > 0) {
    const ssize_t put = ::pwrite(fd, from, size, off_t(at));
    if (put < 0 && errno == EINTR) continue;
    if (put < 0) return resource_exhausted(concat("cannot be written: ", std::strerror(errno)));
    from += put;
    at += uint64_t(put);
    size -= size_t(put);
  }
  return {};
}

// Parts, one behind the other, as pieces with their sums.
class ContentWriter {
 public:
  ContentWriter(int fd, uint64_t content_at)
      : fd_(fd), at_(content_at), piece_(new std::byte[kCachePiece]) {}

  // Zeros until `offset` of the content, then bytes.
  Status append(uint64_t offset, std::span<const std::byte> bytes) {
    static constexpr std::byte kZeros[kCacheAlignment] = {};
    COHORT_RETURN_IF_ERROR(append({kZeros, size_t(offset - written_ - used_)}));
    return append(bytes);
  }
  Status finish() { return used_ > 0 ? flush() : Status(); }
  std::vector<uint64_t> take_sums() { return std::move(sums_); }

 private:
  Status append(std::span<const std::byte> bytes) {
    while (!bytes.empty()) {
      const size_t some = std::min(bytes.size(), size_t(kCachePiece - used_));
      std::memcpy(piece_.get() + used_, bytes.data(), some);
      used_ += some;
      bytes = bytes.subspan(some);
      if (used_ == kCachePiece) COHORT_RETURN_IF_ERROR(flush());
    }
    return {};
  }

  Status flush() {
    sums_.push_back(cache_sum({piece_.get(), used_}));
    COHORT_RETURN_IF_ERROR(write_all(fd_, piece_.get(), used_, at_ + written_));
    written_ += used_;
    used_ = 0;
    return {};
  }

  const int fd_;
  const uint64_t at_;
  const std::unique_ptr<std::byte[]> piece_;
  uint64_t written_ = 0;
  size_t used_ = 0;
  std::vector<uint64_t> sums_;
};

uint64_t size_of(const CachedPart& part) {
  return uint64_t(packed_bytes(part.dtype, part.rows, part.columns));
}

uint64_t round_up(uint64_t n, uint64_t to) { return (n + to - 1) / to * to; }

// Gives the parts their places.
CacheHeader lay_out(const std::string& identity, std::vector<CachedPart> parts) {
  CacheHeader header{
      .identity = identity, .content_bytes = 0, .parts = std::move(parts), .sums = {}};
  for (CachedPart& part : header.parts) {
    part.offset = round_up(header.content_bytes, kCacheAlignment);
    header.content_bytes = part.offset + size_of(part);
  }
  header.sums.resize(round_up(header.content_bytes, kCachePiece) / kCachePiece);
  return header;
}

Status write_file(int fd, CacheHeader header, std::span<const std::byte* const> data) {
  ContentWriter content(fd, encode(header).size());
  for (size_t i = 0; i < header.parts.size(); i++)
    COHORT_RETURN_IF_ERROR(
        content.append(header.parts[i].offset, {data[i], size_of(header.parts[i])}));
  COHORT_RETURN_IF_ERROR(content.finish());
  header.sums = content.take_sums();
  const std::string head = encode(header);
  return write_all(fd, head.data(), head.size(), 0);
}

// A file or a folder that lies in one.
fs::path folder_of(const fs::path& model) {
  if (fs::is_directory(model)) return model;
  const fs::path parent = model.parent_path();
  return parent.empty() ? "." : parent;
}

fs::path store_folder() {
  if (const char* folder = std::getenv("COHORT_MODELS")) return folder;
  if (const char* cache = std::getenv("XDG_CACHE_HOME")) return fs::path(cache) / "cohort";
  const char* home = std::getenv("HOME");
  return fs::path(home != nullptr ? home : "/tmp") / ".cache" / "cohort";
}

std::string stamp_of(const fs::path& file) {
  struct stat about;
  if (::stat(file.c_str(), &about) != 0) return "?";
  return concat(file.filename().string(), " ", about.st_size, " ", about.st_mtim.tv_sec, ".",
                about.st_mtim.tv_nsec);
}

}  // namespace

Status write_weight_cache(const std::string& path, const std::string& identity,
                          std::vector<CachedPart> parts, std::span<const std::byte* const> data) {
  std::string temporary = path + ".XXXXXX";
  const FileDescriptor file(::mkostemp(temporary.data(), O_CLOEXEC));
  if (!file.valid()) return failed_precondition(concat(temporary, ": ", std::strerror(errno)));
  Status status = write_file(file.get(), lay_out(identity, std::move(parts)), data);
  // Ranks of other users may read what is no more secret than the model.
  if (status.ok() &&
      (::fchmod(file.get(), 0644) != 0 || ::rename(temporary.c_str(), path.c_str()) != 0))
    status = failed_precondition(std::strerror(errno));
  if (status.ok()) return {};
  ::unlink(temporary.c_str());
  return status.annotate(path);
}

std::string weight_cache_folder(const std::string& option, const std::string& model) {
  if (option.empty() || option == "off" || model.empty()) return "";
  if (option != "auto") return option;
  const std::string beside = folder_of(model).string();
  return ::access(beside.c_str(), W_OK) == 0 ? beside : store_folder().string();
}

std::string files_stamp(const std::string& model) {
  std::error_code error;
  const bool index = model.ends_with(".safetensors.index.json");
  if (!index && !fs::is_directory(model, error)) return stamp_of(model);
  std::vector<std::string> stamps;
  for (const auto& entry : fs::directory_iterator(folder_of(model), error))
    if (entry.path().extension() == ".safetensors") stamps.push_back(stamp_of(entry.path()));
  std::sort(stamps.begin(), stamps.end());
  std::string all;
  for (const std::string& stamp : stamps) all += stamp + "; ";
  return all;
}

std::string weight_cache_path(const std::string& folder, const std::string& model,
                              const std::string& identity) {
  // Two identities of one sum would take turns in one file: slow, not wrong.
  char sum[17];
  std::snprintf(sum, sizeof sum, "%016llx",
                static_cast<unsigned long long>(
                    cache_sum(std::as_bytes(std::span(identity.data(), identity.size())))));
  fs::path path = fs::path(model).lexically_normal();
  if (!path.has_filename()) path = path.parent_path();
  return (fs::path(folder) / concat(path.filename().string(), ".", sum, ".cohort-weights"))
      .string();
}

}  // namespace cohort
