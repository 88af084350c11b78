// SPDX-License-Identifier: Apache-2.0
// A GGUF file (versions 2 and 3, little endian), memory-mapped. Format: ggml-org/ggml docs/gguf.md.
// Opening checks everything that can be checked without reading tensor data: a file that opens has
// in-bounds, aligned, non-overlapping tensors of known types and no duplicate keys. Errors name the
// file, the tensor or key, and the reason. Immutable; any thread may read.
#pragma once
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "base/dtype.h"
#include "base/status.h"

namespace cohort {

// Arrays of strings stay views into the file: vocabularies are large.
using GgufValue =
    std::variant<bool, int64_t, uint64_t, double, std::string_view, std::vector<std::string_view>,
                 std::vector<int64_t>, std::vector<double>>;

struct GgufTensor {
  std::string name;
  DType dtype;
  std::vector<int64_t> shape;  // outermost first: [rows, columns], the reverse of GGUF's order
  const std::byte* data;
  int64_t bytes;
};

class GgufFile {
 public:
  static Result<std::unique_ptr<GgufFile>> open(const std::string& path);
  // The same checks over memory that outlives the object: for tests and fuzzing.
  static Result<std::unique_ptr<GgufFile>> parse(std::span<const std::byte> bytes,
                                                 const std::string& name);
  virtual ~GgufFile() = default;

  virtual const std::string& path() const = 0;
  virtual int version() const = 0;
  virtual const std::map<std::string, GgufValue, std::less<>>& metadata() const = 0;
  virtual const std::vector<GgufTensor>& tensors() const = 0;

  // Typed access; nullopt where the key is absent or of another kind. Integers of either sign
  // convert when the value fits.
  std::optional<int64_t> integer(std::string_view key) const;
  std::optional<double> number(std::string_view key) const;  // also integers
  std::optional<bool> boolean(std::string_view key) const;
  std::optional<std::string_view> string(std::string_view key) const;
  const std::vector<std::string_view>* strings(std::string_view key) const;
  const std::vector<int64_t>* integers(std::string_view key) const;
  const std::vector<double>* numbers(std::string_view key) const;
};

}  // namespace cohort
