// SPDX-License-Identifier: Apache-2.0
#include "base/mapped_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstring>

namespace cohort {
namespace {

Status system_error(const std::string& path, const char* what) {
  const int error = errno;
  const Code code = error == ENOENT   ? Code::kNotFound
                    : error == EACCES ? Code::kPermissionDenied
                    : error == ENOMEM ? Code::kResourceExhausted
                                      : Code::kFailedPrecondition;
  return Status(code, concat(path, ": ", what, ": ", std::strerror(error)));
}

// Of all pages that the bytes touch.
void advise(std::span<const std::byte> mapped, int advice) {
  if (mapped.empty()) return;
  const uintptr_t page = uintptr_t(::sysconf(_SC_PAGESIZE));
  const uintptr_t begin = reinterpret_cast<uintptr_t>(mapped.data()) / page * page;
  const uintptr_t end = reinterpret_cast<uintptr_t>(mapped.data()) + mapped.size();
  ::madvise(reinterpret_cast<void*>(begin), end - begin, advice);
}

}  // namespace

Result<std::unique_ptr<MappedFile>> MappedFile::open(const std::string& path) {
  // Non-blocking: opening a named pipe must not wait for a writer.
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (fd < 0) return system_error(path, "cannot be opened");
  const std::unique_ptr<const int, void (*)(const int*)> closer(&fd,
                                                                [](const int* f) { ::close(*f); });
  struct stat about;
  if (::fstat(fd, &about) != 0) return system_error(path, "cannot be examined");
  if (!S_ISREG(about.st_mode)) return invalid_argument(path + ": not a regular file");
  const size_t size = size_t(about.st_size);
  void* data = nullptr;
  if (size > 0) {
    data = ::mmap(nullptr, size, PROT_READ, MAP_SHARED, fd, 0);
    if (data == MAP_FAILED) return system_error(path, "cannot be mapped");
  }
  return std::unique_ptr<MappedFile>(
      new MappedFile(path, static_cast<const std::byte*>(data), size));
}

MappedFile::~MappedFile() {
  if (size_ > 0) ::munmap(const_cast<std::byte*>(data_), size_);
}

void read_ahead(std::span<const std::byte> mapped) { advise(mapped, MADV_WILLNEED); }

void let_go(std::span<const std::byte> mapped) { advise(mapped, MADV_DONTNEED); }

}  // namespace cohort
