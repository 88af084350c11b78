// SPDX-License-Identifier: Apache-2.0
#include "model/safetensors.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <unordered_set>

#include "model/safetensors_header.h"

namespace cohort {
namespace {

struct StoredType {
  std::string_view name;
  uint64_t bytes;
  std::optional<DType> dtype;
};
constexpr std::array<StoredType, 16> kTypes = {{
    {"F32", 4, DType::f32},
    {"F16", 2, DType::f16},
    {"BF16", 2, DType::bf16},
    {"I32", 4, DType::i32},
    {"I8", 1, DType::i8},
    {"F64", 8, std::nullopt},
    {"C64", 8, std::nullopt},
    {"I64", 8, std::nullopt},
    {"U64", 8, std::nullopt},
    {"U32", 4, std::nullopt},
    {"I16", 2, std::nullopt},
    {"U16", 2, std::nullopt},
    {"U8", 1, std::nullopt},
    {"BOOL", 1, std::nullopt},
    {"F8_E4M3", 1, std::nullopt},
    {"F8_E5M2", 1, std::nullopt},
}};

// Bytes of a tensor, or nullopt where the product does not fit in 63 bits.
std::optional<uint64_t> size_of(const std::vector<int64_t>& shape, uint64_t element_bytes) {
  int64_t size = int64_t(element_bytes);
  // A dimension of zero makes an empty tensor, whatever the others are.
  if (std::find(shape.begin(), shape.end(), 0) != shape.end()) return 0;
  for (const int64_t n : shape)
    if (__builtin_mul_overflow(size, n, &size)) return std::nullopt;
  return uint64_t(size);
}

Result<StoredTensor> check_entry(HeaderEntry&& header, std::span<const std::byte> data) {
  const auto fail = [&](auto... why) {
    return invalid_argument(concat("tensor '", header.name, "': ", why...));
  };
  const auto type = std::find_if(kTypes.begin(), kTypes.end(),
                                 [&](const StoredType& t) { return t.name == header.type_name; });
  if (type == kTypes.end()) return fail("unknown type '", header.type_name, "'");
  if (header.begin > header.end || header.end > data.size())
    return fail("its bytes [", header.begin, ", ", header.end, ") are not within the ", data.size(),
                " bytes of data: the file may be cut short");
  const std::optional<uint64_t> expected = size_of(header.shape, type->bytes);
  if (!expected) return fail("absurd shape");
  if (*expected != header.end - header.begin)
    return fail("its shape and type need ", *expected, " bytes and it has ",
                header.end - header.begin);
  return StoredTensor{std::move(header.name), std::move(header.type_name), type->dtype,
                      std::move(header.shape),
                      data.subspan(header.begin, header.end - header.begin)};
}

// The format asks for every byte of data to belong to exactly one tensor.
Status check_coverage(const std::vector<StoredTensor>& entries, std::span<const std::byte> data) {
  std::vector<const StoredTensor*> order;
  for (const StoredTensor& entry : entries)
    if (!entry.data.empty()) order.push_back(&entry);
  std::sort(order.begin(), order.end(),
            [](const auto* a, const auto* b) { return a->data.data() < b->data.data(); });
  const std::byte* next = data.data();
  for (const StoredTensor* entry : order) {
    if (entry->data.data() < next)
      return invalid_argument(concat("tensor '", entry->name, "' overlaps another one"));
    if (entry->data.data() > next)
      return invalid_argument(
          concat("bytes before tensor '", entry->name, "' belong to no tensor"));
    next = entry->data.data() + entry->data.size();
  }
  if (next != data.data() + data.size())
    return invalid_argument(concat(data.data() + data.size() - next,
                                   " bytes at the end of the file belong to no tensor"));
  return {};
}

Result<std::vector<StoredTensor>> parse(std::span<const std::byte> file,
                                        const SafetensorsLimits& limits) {
  uint64_t length = 0;
  if (file.size() < sizeof length)
    return invalid_argument("not a safetensors file: shorter than its 8-byte start");
  std::memcpy(&length, file.data(), sizeof length);
  if (length > limits.header_bytes)
    return invalid_argument(concat("not a safetensors file, or a hostile one: a header of ", length,
                                   " bytes (at most ", limits.header_bytes, ")"));
  if (length > file.size() - sizeof length)
    return invalid_argument(
        concat("the header of ", length, " bytes is longer than the file: it may be cut short"));
  const std::string_view text(reinterpret_cast<const char*>(file.data()) + sizeof length, length);
  COHORT_ASSIGN_OR_RETURN(std::vector<HeaderEntry> headers, read_safetensors_header(text, limits));
  const std::span<const std::byte> data = file.subspan(sizeof length + length);
  std::vector<StoredTensor> entries;
  entries.reserve(headers.size());
  for (HeaderEntry& header : headers) {
    COHORT_ASSIGN_OR_RETURN(StoredTensor entry, check_entry(std::move(header), data));
    entries.push_back(std::move(entry));
  }
  std::unordered_set<std::string_view> names;
  for (const StoredTensor& entry : entries)
    if (!names.insert(entry.name).second)
      return invalid_argument(concat("tensor '", entry.name, "' occurs twice"));
  COHORT_RETURN_IF_ERROR(check_coverage(entries, data));
  return entries;
}

}  // namespace

Result<std::vector<StoredTensor>> parse_safetensors(std::span<const std::byte> file,
                                                    const std::string& name,
                                                    const SafetensorsLimits& limits) {
  Result<std::vector<StoredTensor>> entries = parse(file, limits);
  if (!entries.ok()) return entries.status().annotate(name);
  return entries;
}

}  // namespace cohort
