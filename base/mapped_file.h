// SPDX-License-Identifier: Apache-2.0
// A regular file, mapped read-only for as long as the object lives. Pages are read when they are
// first touched. Immutable; any thread may read.
#pragma once
#include <cstddef>
#include <memory>
#include <span>
#include <string>

#include "base/status.h"

namespace cohort {

class MappedFile {
 public:
  // An empty file gives an empty span. Errors name the path.
  static Result<std::unique_ptr<MappedFile>> open(const std::string& path);
  ~MappedFile();
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;

  const std::string& path() const { return path_; }
  std::span<const std::byte> bytes() const { return {data_, size_}; }

 private:
  MappedFile(std::string path, const std::byte* data, size_t size)
      : path_(std::move(path)), data_(data), size_(size) {}

  const std::string path_;
  const std::byte* const data_;
  const size_t size_;
};

// Asks the system to start reading these mapped bytes now: one large request in place of a page
// fault every few pages. Only a hint.
void read_ahead(std::span<const std::byte> mapped);

// Says that these bytes of a MappedFile are not needed any more: they no longer count as memory of
// this process, and are mapped again should somebody touch them. Only a hint. (Memory of any other
// kind would lose what it holds.)
void let_go(std::span<const std::byte> mapped);

}  // namespace cohort
