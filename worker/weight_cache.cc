// SPDX-License-Identifier: Apache-2.0
#include "worker/weight_cache.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>

#include "base/byte_io.h"
#include "kernels/matrix.h"

namespace cohort {
namespace {

constexpr std::string_view kMagic = "COHORTWC";
constexpr size_t kFixedBytes = 24;
constexpr uint64_t kPage = 4096;
constexpr uint64_t kMostHeaderBytes = uint64_t(1) << 30;
constexpr uint64_t kMostContentBytes = uint64_t(1) << 50;
// Far beyond any matrix, and small enough that no product of them overflows.
constexpr int64_t kMostRows = int64_t(1) << 32, kMostColumns = int64_t(1) << 24;
constexpr size_t kLeastPartBytes = 4 + 1 + 8 + 8 + 8;

uint64_t round_up(uint64_t n, uint64_t to) { return (n + to - 1) / to * to; }

std::span<const std::byte> as_bytes(std::string_view text) {
  return std::as_bytes(std::span(text.data(), text.size()));
}

std::string encode_body(const CacheHeader& header) {
  ByteWriter out;
  out.put_text(header.identity);
  out.put(header.content_bytes);
  out.put(uint32_t(header.parts.size()));
  for (const CachedPart& part : header.parts) {
    out.put_text(part.name);
    out.put(uint8_t(part.dtype));
    out.put(part.rows);
    out.put(part.columns);
    out.put(part.offset);
  }
  out.put_all(header.sums);
  return out.take();
}

uint64_t header_sum(std::string_view fixed, std::string_view body) {
  std::string all(fixed);
  all += body;
  return cache_sum(as_bytes(all));
}

// Whether the part is one that add_parts() could have packed.
bool possible(const CachedPart& part) {
  const bool known =
      part.dtype <= DType::bf16 || (part.dtype >= DType::q8_0 && part.dtype <= DType::q6_k);
  return known && part.rows >= 0 && part.rows <= kMostRows && part.columns >= 0 &&
         part.columns <= kMostColumns && part.columns % info(part.dtype).block_elements == 0;
}

Status damaged(const std::string& what) { return data_loss("weight cache: " + what); }

Result<CacheHeader> decode_body(std::string_view body) {
  ByteReader in(body);
  CacheHeader header;
  header.identity = in.get_text();
  header.content_bytes = in.get<uint64_t>();
  if (header.content_bytes > kMostContentBytes) return damaged("an impossible size");
  header.parts.resize(in.get_count(kLeastPartBytes));
  uint64_t end = 0;
  for (CachedPart& part : header.parts) {
    part.name = in.get_text();
    part.dtype = DType(in.get<uint8_t>());
    part.rows = in.get<int64_t>();
    part.columns = in.get<int64_t>();
    part.offset = in.get<uint64_t>();
    if (!in.ok() || !possible(part)) return damaged("an impossible matrix");
    const uint64_t size = uint64_t(packed_bytes(part.dtype, part.rows, part.columns));
    if (part.offset != round_up(end, kCacheAlignment) || part.offset > header.content_bytes ||
        size > header.content_bytes - part.offset)
      return damaged("a matrix lies where it cannot");
    end = part.offset + size;
  }
  header.sums = in.get_all<uint64_t>();
  if (!in.done()) return damaged("its header is cut short or too long");
  if (end != header.content_bytes ||
      header.sums.size() != round_up(header.content_bytes, kCachePiece) / kCachePiece)
    return damaged("its size is not that of its matrices");
  return header;
}

// How many bytes the header after the fixed ones has.
Result<uint64_t> body_bytes(std::string_view fixed) {
  if (fixed.size() < kFixedBytes || fixed.substr(0, kMagic.size()) != kMagic)
    return damaged("not a file of this kind");
  ByteReader in(fixed.substr(kMagic.size()));
  const auto version = in.get<uint32_t>();
  if (version != kWeightCacheVersion)
    return damaged(concat("of version ", version, ", not ", kWeightCacheVersion));
  const uint64_t size = in.get<uint32_t>();
  if (size > kMostHeaderBytes) return damaged("an impossible header");
  return size;
}

Status read_all(int fd, std::byte* out, uint64_t size, uint64_t at) {
  while (size > 0) {
    const ssize_t got = ::pread(fd, out, size, off_t(at));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return damaged(concat("cannot be read: ", std::strerror(errno)));
    if (got == 0) return damaged("it ends early");
    out += got;
    at += uint64_t(got);
    size -= uint64_t(got);
  }
  return {};
}

}  // namespace

uint64_t cache_sum(std::span<const std::byte> bytes) {
  // Odd numbers with many bits set here and there: fractions of square roots of 2, 3 and 5.
  constexpr uint64_t kStep = 0x6a09e667f3bcc909, kFold = 0xbb67ae8584caa73b,
                     kStart = 0x3c6ef372fe94f82b;
  constexpr int kLanes = 8;
  uint64_t lane[kLanes];
  for (int i = 0; i < kLanes; i++) lane[i] = kStart * uint64_t(2 * i + 1);
  const auto step = [](uint64_t state, uint64_t word) {
    const uint64_t mixed = (state ^ word) * kStep;
    return mixed << 29 | mixed >> 35;
  };
  const std::byte* in = bytes.data();
  size_t left = bytes.size();
  for (; left >= sizeof lane; in += sizeof lane, left -= sizeof lane) {
    uint64_t words[kLanes];
    std::memcpy(words, in, sizeof words);
    for (int i = 0; i < kLanes; i++) lane[i] = step(lane[i], words[i]);
  }
  uint64_t words[kLanes] = {};
  if (left > 0) std::memcpy(words, in, left);
  uint64_t sum = bytes.size() * kFold;
  for (int i = 0; i < kLanes; i++) {
    const uint64_t mixed = (sum ^ step(lane[i], words[i])) * kFold;
    sum = mixed ^ mixed >> 32;
  }
  return sum;
}

std::string encode(const CacheHeader& header) {
  const std::string body = encode_body(header);
  ByteWriter fixed;
  for (char c : kMagic) fixed.put(c);
  fixed.put(kWeightCacheVersion);
  fixed.put(uint32_t(body.size()));
  const std::string start = fixed.take();
  ByteWriter sum;
  sum.put(header_sum(start, body));
  std::string out = start + sum.take() + body;
  out.resize(round_up(out.size(), kPage));
  return out;
}

Result<CacheHeader> decode_cache_header(std::string_view file) {
  COHORT_ASSIGN_OR_RETURN(const uint64_t size, body_bytes(file));
  if (file.size() - kFixedBytes < size) return damaged("it ends early");
  const std::string_view body = file.substr(kFixedBytes, size);
  ByteReader sum(file.substr(kFixedBytes - 8, 8));
  if (header_sum(file.substr(0, kFixedBytes - 8), body) != sum.get<uint64_t>())
    return damaged("its header is damaged");
  return decode_body(body);
}

Result<std::unique_ptr<WeightCacheFile>> WeightCacheFile::open(const std::string& path,
                                                               const std::string& identity) {
  FileDescriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (!file.valid() && errno == ENOENT) return not_found(path + " is not there");
  if (!file.valid()) return failed_precondition(concat(path, ": ", std::strerror(errno)));
  struct stat about;
  if (::fstat(file.get(), &about) != 0 || !S_ISREG(about.st_mode))
    return failed_precondition(path + ": not a regular file");
  std::string head(kFixedBytes, '\0');
  const auto read = [&](uint64_t at) {
    return read_all(file.get(), reinterpret_cast<std::byte*>(head.data()) + at, head.size() - at,
                    at);
  };
  COHORT_RETURN_IF_ERROR(read(0));
  COHORT_ASSIGN_OR_RETURN(const uint64_t size, body_bytes(head));
  if (uint64_t(about.st_size) < kFixedBytes + size) return damaged("it ends early");
  head.resize(kFixedBytes + size);
  COHORT_RETURN_IF_ERROR(read(kFixedBytes));
  COHORT_ASSIGN_OR_RETURN(CacheHeader header, decode_cache_header(head));
  if (header.identity != identity) return damaged("it was made from something else");
  const uint64_t content_at = round_up(head.size(), kPage);
  if (uint64_t(about.st_size) != content_at + header.content_bytes)
    return damaged("the file has another size than its header says");
  return std::unique_ptr<WeightCacheFile>(
      new WeightCacheFile(path, std::move(file), std::move(header), content_at));
}

Status WeightCacheFile::read_pieces(std::byte* content, uint64_t first, uint64_t last) const {
  for (uint64_t piece = first; piece < last; piece++) {
    const uint64_t at = piece * kCachePiece;
    const uint64_t size = std::min(kCachePiece, header_.content_bytes - at);
    COHORT_RETURN_IF_ERROR(read_all(file_.get(), content + at, size, content_at_ + at));
    if (cache_sum({content + at, size}) != header_.sums[piece])
      return damaged(concat("its bytes from ", content_at_ + at, " on are damaged"));
  }
  return {};
}

Result<Buffer> WeightCacheFile::read(ThreadPool& threads) const {
  Buffer content(header_.content_bytes);
  std::vector<Status> results(size_t(threads.size()));
  std::atomic<size_t> next{0};
  threads.parallel_for(int64_t(header_.sums.size()), [&](int64_t first, int64_t last) {
    results[next.fetch_add(1)] = read_pieces(content.data(), uint64_t(first), uint64_t(last));
  });
  for (const Status& status : results) COHORT_RETURN_IF_ERROR(status.annotate(path_));
  return content;
}

}  // namespace cohort
