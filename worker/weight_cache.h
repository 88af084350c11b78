// SPDX-License-Identifier: Apache-2.0
// The packed weights of one rank as a file (docs/weights.md):
//
//   0   magic "COHORTWC" | version u32 | header bytes u32 | sum of those two and the header u64
//   24  header: identity text | content bytes u64 | parts [name text, dtype u8, rows i64,
//       columns i64, offset u64] | sums u64 [piece]
//   ..  zeros up to a multiple of 4096, then the content: parts at their offsets, in ascending
//       order, multiples of 64
//
// Little-endian; a text or list has its length before it (base/byte_io.h). The identity says what
// the content was made from: a file with another one is not used.
//
// A sum guards a piece of 1 MiB of the content against damage: torn writes, bad sectors, a copy cut
// short. It is no signature (who can write the file can write the sums, and could write the model
// as well), so it need not be cryptographic: SHA-256 runs at 0.3 to 2 GB/s a core, this at the
// speed of memory. Each of eight lanes is a chain of bijections of 64 bits, as is their fold, so
// that a change within any one word, or within any words of one lane's last step, is always
// noticed, and any other with a chance of 1 - 2^-64.
#pragma once
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/buffer.h"
#include "base/dtype.h"
#include "base/file_descriptor.h"
#include "base/status.h"
#include "base/threads.h"

namespace cohort {

// Of the format and of all that decides a packed byte: kernels/packed.h, the order of the loader.
inline constexpr uint32_t kWeightCacheVersion = 3;
inline constexpr uint64_t kCachePiece = uint64_t(1) << 20;
inline constexpr uint64_t kCacheAlignment = 64;

struct CachedPart {
  std::string name;
  DType dtype = DType::f32;
  int64_t rows = 0, columns = 0;
  uint64_t offset = 0;  // in the content; its size follows from the other three
  friend bool operator==(const CachedPart&, const CachedPart&) = default;
};

struct CacheHeader {
  std::string identity;
  uint64_t content_bytes = 0;
  std::vector<CachedPart> parts;
  std::vector<uint64_t> sums;  // of each piece
  friend bool operator==(const CacheHeader&, const CacheHeader&) = default;
};

// All that comes before the content, zeros included.
std::string encode(const CacheHeader& header);
// From the first bytes of a file. DATA_LOSS, with what is wrong, for anything that encode() does
// not write: sizes, offsets and counts of the result may be trusted.
Result<CacheHeader> decode_cache_header(std::string_view file);

uint64_t cache_sum(std::span<const std::byte> bytes);

// A file whose header is good and whose identity is the one that was asked for.
class WeightCacheFile {
 public:
  static Result<std::unique_ptr<WeightCacheFile>> open(const std::string& path,
                                                       const std::string& identity);
  const CacheHeader& header() const { return header_; }
  // The whole content, checked, in memory of its own: every thread reads a part of it.
  Result<Buffer> read(ThreadPool& threads) const;

 private:
  WeightCacheFile(std::string path, FileDescriptor file, CacheHeader header, uint64_t content_at)
      : path_(std::move(path)),
        file_(std::move(file)),
        header_(std::move(header)),
        content_at_(content_at) {}
  Status read_pieces(std::byte* content, uint64_t first, uint64_t last) const;

  const std::string path_;
  const FileDescriptor file_;
  const CacheHeader header_;
  const uint64_t content_at_;
};

// Writes a file under another name and renames it: it is there whole or not at all, whoever writes
// at the same time. data[i]: of parts[i]. Leaves nothing behind where it fails.
Status write_weight_cache(const std::string& path, const std::string& identity,
                          std::vector<CachedPart> parts, std::span<const std::byte* const> data);

// Where --weight-cache says that the files of a model are kept; "": nowhere. auto: beside the model
// where that can be written, else in ${COHORT_MODELS}, ${XDG_CACHE_HOME}/cohort or ~/.cache/cohort.
std::string weight_cache_folder(const std::string& option, const std::string& model);

// The model's files as they lie there, sizes and times, for identities.
std::string files_stamp(const std::string& model);

// FOLDER/MODEL.<sum of identity>.cohort-weights
std::string weight_cache_path(const std::string& folder, const std::string& model,
                              const std::string& identity);

}  // namespace cohort
