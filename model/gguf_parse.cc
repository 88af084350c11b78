// SPDX-License-Identifier: Apache-2.0
#include "model/gguf_parse.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <limits>
#include <set>
#include <type_traits>

namespace cohort {
namespace {

static_assert(std::endian::native == std::endian::little,
              "values are read as they lie in the file");

// Type numbers of metadata values (gguf.md, gguf_metadata_value_type).
enum class ValueType : uint32_t {
  u8 = 0,
  i8 = 1,
  u16 = 2,
  i16 = 3,
  u32 = 4,
  i32 = 5,
  f32 = 6,
  boolean = 7,
  string = 8,
  array = 9,
  u64 = 10,
  i64 = 11,
  f64 = 12,
};

constexpr uint64_t kMaxKeyBytes = 65535;  // gguf.md
constexpr uint64_t kMaxNameBytes = 255;   // gguf.md asks for 64; a few writers are more generous
constexpr uint32_t kMaxDimensions = 4;    // GGML_MAX_DIMS
constexpr uint64_t kMaxAlignment = 1 << 24;
// The fewest bytes that an entry takes: bounds the counts in the header before memory is reserved.
constexpr uint64_t kLeastPairBytes = 8 + 1 + 4 + 1;
constexpr uint64_t kLeastTensorBytes = 8 + 1 + 4 + 8 + 4 + 8;

// Numbers of tensor types (ggml.h, enum ggml_type), as far as this project computes with them.
std::optional<DType> dtype_of(uint32_t type) {
  switch (type) {
    case 0:
      return DType::f32;
    case 1:
      return DType::f16;
    case 2:
      return DType::q4_0;
    case 3:
      return DType::q4_1;
    case 6:
      return DType::q5_0;
    case 7:
      return DType::q5_1;
    case 8:
      return DType::q8_0;
    case 12:
      return DType::q4_k;
    case 13:
      return DType::q5_k;
    case 14:
      return DType::q6_k;
    case 24:
      return DType::i8;
    case 26:
      return DType::i32;
    case 30:
      return DType::bf16;
    default:
      return std::nullopt;
  }
}

// Text from a file, fit for one line of a message.
std::string printable(std::string_view text) {
  std::string out;
  for (char c : text.substr(0, 80)) out += (c >= 0x20 && c < 0x7f) ? c : '?';
  if (text.size() > 80) out += "...";
  return out;
}

class Parser {
 public:
  Parser(std::span<const std::byte> bytes, const std::string& name) : bytes_(bytes), name_(name) {}

  Result<GgufContents> parse() {
    COHORT_RETURN_IF_ERROR(header());
    for (uint64_t i = 0; i < pair_count_; i++) COHORT_RETURN_IF_ERROR(pair());
    COHORT_RETURN_IF_ERROR(alignment());
    contents_.tensors.reserve(tensor_count_);
    offsets_.reserve(tensor_count_);
    for (uint64_t i = 0; i < tensor_count_; i++) COHORT_RETURN_IF_ERROR(tensor());
    COHORT_RETURN_IF_ERROR(place_tensors());
    COHORT_RETURN_IF_ERROR(overlaps());
    return std::move(contents_);
  }

 private:
  Status error(const std::string& what) const { return invalid_argument(name_ + ": " + what); }
  Status ends_in(const std::string& what) const {
    return error(concat("the file ends inside ", what, " (at byte ", at_, " of ", bytes_.size(),
                        "); was the download cut off?"));
  }
  uint64_t left() const { return bytes_.size() - at_; }

  template <class T>
  Status read(T& out, const std::string& what) {
    if (left() < sizeof(T)) return ends_in(what);
    std::memcpy(&out, bytes_.data() + at_, sizeof(T));
    at_ += sizeof(T);
    return {};
  }

  Status read_string(std::string_view& out, const std::string& what) {
    uint64_t length = 0;
    COHORT_RETURN_IF_ERROR(read(length, what));
    if (length > left()) return ends_in(concat(what, " of ", length, " bytes"));
    out = {reinterpret_cast<const char*>(bytes_.data()) + at_, size_t(length)};
    at_ += length;
    return {};
  }

  Status header() {
    char magic[4];
    if (left() < 4) return error("not a GGUF file: shorter than 4 bytes");
    std::memcpy(magic, bytes_.data(), 4);
    at_ = 4;
    if (std::memcmp(magic, "GGUF", 4) != 0)
      return error("not a GGUF file: it does not start with \"GGUF\"");
    uint32_t version = 0;
    COHORT_RETURN_IF_ERROR(read(version, "the header"));
    if (version != 0 && (version & 0xffff) == 0)
      return error("a big-endian GGUF file; convert it to little endian");
    if (version != 2 && version != 3)
      return error(concat("GGUF version ", version, " is not supported (2 and 3 are)"));
    contents_.version = int(version);
    COHORT_RETURN_IF_ERROR(read(tensor_count_, "the header"));
    COHORT_RETURN_IF_ERROR(read(pair_count_, "the header"));
    if (tensor_count_ > left() / kLeastTensorBytes)
      return error(concat("names ", tensor_count_, " tensors, more than the file has room for"));
    if (pair_count_ > left() / kLeastPairBytes)
      return error(concat("names ", pair_count_, " keys, more than the file has room for"));
    return {};
  }

  Status pair() {
    std::string_view key;
    COHORT_RETURN_IF_ERROR(read_string(key, "a key"));
    const std::string where = concat("key \"", printable(key), "\"");
    if (key.empty()) return error("a key is empty");
    if (key.size() > kMaxKeyBytes)
      return error(concat(where, " is ", key.size(), " bytes long (", kMaxKeyBytes, " allowed)"));
    uint32_t type = 0;
    COHORT_RETURN_IF_ERROR(read(type, where));
    GgufValue value;
    COHORT_RETURN_IF_ERROR(ValueType(type) == ValueType::array ? array(value, where)
                                                               : scalar(type, value, where));
    if (!contents_.metadata.emplace(std::string(key), std::move(value)).second)
      return error(where + " appears twice");
    return {};
  }

  // Reads one T and stores it as a Wide.
  template <class T, class Wide>
  Status as(GgufValue& out, const std::string& where) {
    T value{};
    COHORT_RETURN_IF_ERROR(read(value, where));
    out = Wide(value);
    return {};
  }

  Status scalar(uint32_t type, GgufValue& out, const std::string& where) {
    switch (ValueType(type)) {
      case ValueType::u8:
        return as<uint8_t, uint64_t>(out, where);
      case ValueType::i8:
        return as<int8_t, int64_t>(out, where);
      case ValueType::u16:
        return as<uint16_t, uint64_t>(out, where);
      case ValueType::i16:
        return as<int16_t, int64_t>(out, where);
      case ValueType::u32:
        return as<uint32_t, uint64_t>(out, where);
      case ValueType::i32:
        return as<int32_t, int64_t>(out, where);
      case ValueType::f32:
        return as<float, double>(out, where);
      case ValueType::u64:
        return as<uint64_t, uint64_t>(out, where);
      case ValueType::i64:
        return as<int64_t, int64_t>(out, where);
      case ValueType::f64:
        return as<double, double>(out, where);
      case ValueType::boolean: {
        uint8_t value = 0;
        COHORT_RETURN_IF_ERROR(read(value, where));
        if (value > 1) return error(concat(where, ": a bool of value ", int(value)));
        out = value == 1;
        return {};
      }
      case ValueType::string: {
        std::string_view text;
        COHORT_RETURN_IF_ERROR(read_string(text, where));
        out = text;
        return {};
      }
      case ValueType::array:
        break;
    }
    return error(concat(where, " has the unknown value type ", type));
  }

  Status array(GgufValue& out, const std::string& where) {
    uint32_t type = 0;
    uint64_t count = 0;
    COHORT_RETURN_IF_ERROR(read(type, where));
    COHORT_RETURN_IF_ERROR(read(count, where));
    switch (ValueType(type)) {
      case ValueType::u8:
        return elements<uint8_t, int64_t>(count, out, where);
      case ValueType::i8:
        return elements<int8_t, int64_t>(count, out, where);
      case ValueType::u16:
        return elements<uint16_t, int64_t>(count, out, where);
      case ValueType::i16:
        return elements<int16_t, int64_t>(count, out, where);
      case ValueType::u32:
        return elements<uint32_t, int64_t>(count, out, where);
      case ValueType::i32:
        return elements<int32_t, int64_t>(count, out, where);
      case ValueType::boolean:
        return elements<uint8_t, int64_t>(count, out, where);
      case ValueType::u64:
        return elements<uint64_t, int64_t>(count, out, where);
      case ValueType::i64:
        return elements<int64_t, int64_t>(count, out, where);
      case ValueType::f32:
        return elements<float, double>(count, out, where);
      case ValueType::f64:
        return elements<double, double>(count, out, where);
      case ValueType::string:
        return string_elements(count, out, where);
      case ValueType::array:
        return error(where + " is an array of arrays, which is not supported");
    }
    return error(concat(where, " is an array of the unknown value type ", type));
  }

  Status too_many(uint64_t count, const std::string& where) const {
    return error(concat(where, " names ", count, " elements, more than the file has room for"));
  }

  template <class T, class Wide>
  Status elements(uint64_t count, GgufValue& out, const std::string& where) {
    if (count > left() / sizeof(T)) return too_many(count, where);
    std::vector<Wide> values(count);
    for (Wide& value : values) {
      T narrow{};
      COHORT_RETURN_IF_ERROR(read(narrow, where));
      if constexpr (std::is_same_v<T, uint64_t>)
        if (narrow > uint64_t(std::numeric_limits<int64_t>::max()))
          return error(where + " holds an integer of more than 63 bits");
      value = Wide(narrow);
    }
    out = std::move(values);
    return {};
  }

  Status string_elements(uint64_t count, GgufValue& out, const std::string& where) {
    if (count > left() / sizeof(uint64_t)) return too_many(count, where);
    std::vector<std::string_view> values(count);
    for (std::string_view& value : values) COHORT_RETURN_IF_ERROR(read_string(value, where));
    out = std::move(values);
    return {};
  }

  Status alignment() {
    const auto found = contents_.metadata.find("general.alignment");
    if (found == contents_.metadata.end()) return {};
    const uint64_t* value = std::get_if<uint64_t>(&found->second);
    if (!value || !std::has_single_bit(*value) || *value > kMaxAlignment)
      return error(
          concat("key \"general.alignment\" is not a power of two of at most ", kMaxAlignment));
    alignment_ = *value;
    return {};
  }

  Status tensor() {
    std::string_view name;
    COHORT_RETURN_IF_ERROR(read_string(name, "the name of a tensor"));
    const std::string where = concat("tensor \"", printable(name), "\"");
    if (name.empty()) return error("the name of a tensor is empty");
    if (name.size() > kMaxNameBytes)
      return error(
          concat(where, " has a name of ", name.size(), " bytes (", kMaxNameBytes, " allowed)"));
    if (!names_.insert(name).second) return error(where + " appears twice");
    GgufTensor tensor{std::string(name), DType::f32, {}, nullptr, 0};
    COHORT_RETURN_IF_ERROR(dimensions(tensor, where));
    uint32_t type = 0;
    uint64_t offset = 0;
    COHORT_RETURN_IF_ERROR(read(type, where));
    COHORT_RETURN_IF_ERROR(read(offset, where));
    const std::optional<DType> dtype = dtype_of(type);
    if (!dtype)
      return error(concat(where, " has the unsupported type number ", type,
                          "; supported are F32, F16, BF16, I32, I8, Q8_0, Q4_0, Q4_1, Q5_0, Q5_1, "
                          "Q4_K, Q5_K, Q6_K"));
    tensor.dtype = *dtype;
    offsets_.push_back(offset);
    contents_.tensors.push_back(std::move(tensor));
    return size_of(contents_.tensors.back(), where);
  }

  Status dimensions(GgufTensor& tensor, const std::string& where) {
    uint32_t count = 0;
    COHORT_RETURN_IF_ERROR(read(count, where));
    if (count < 1 || count > kMaxDimensions)
      return error(
          concat(where, " has ", count, " dimensions (1 to ", kMaxDimensions, " supported)"));
    for (uint32_t i = 0; i < count; i++) {
      uint64_t size = 0;
      COHORT_RETURN_IF_ERROR(read(size, where));
      if (size < 1 || size > uint64_t(std::numeric_limits<int64_t>::max()))
        return error(concat(where, " has a dimension of ", size));
      tensor.shape.push_back(int64_t(size));
    }
    std::reverse(tensor.shape.begin(), tensor.shape.end());
    return {};
  }

  Status size_of(GgufTensor& tensor, const std::string& where) const {
    const DTypeInfo& type = info(tensor.dtype);
    if (tensor.shape.back() % type.block_elements != 0)
      return error(concat(where, " has rows of ", tensor.shape.back(), " elements, not whole ",
                          type.name, " blocks of ", type.block_elements));
    int64_t bytes = type.block_bytes;
    bool overflow =
        __builtin_mul_overflow(bytes, tensor.shape.back() / type.block_elements, &bytes);
    for (size_t i = 0; i + 1 < tensor.shape.size(); i++)
      overflow = overflow || __builtin_mul_overflow(bytes, tensor.shape[i], &bytes);
    if (overflow) return error(where + " is larger than any file");
    tensor.bytes = bytes;
    return {};
  }

  // Tensor data starts at the next multiple of the alignment after the last tensor's description.
  Status place_tensors() {
    const uint64_t begin = (at_ + alignment_ - 1) / alignment_ * alignment_;
    const uint64_t room = begin <= bytes_.size() ? bytes_.size() - begin : 0;
    for (size_t i = 0; i < contents_.tensors.size(); i++) {
      GgufTensor& tensor = contents_.tensors[i];
      const std::string where = concat("tensor \"", printable(tensor.name), "\"");
      if (offsets_[i] % alignment_ != 0)
        return error(
            concat(where, " lies at offset ", offsets_[i], ", not a multiple of ", alignment_));
      if (offsets_[i] > room || uint64_t(tensor.bytes) > room - offsets_[i])
        return error(concat(where, " needs ", tensor.bytes, " bytes at offset ", offsets_[i],
                            " but the file has ", room,
                            " bytes of tensor data; was the download "
                            "cut off?"));
      tensor.data = bytes_.data() + begin + offsets_[i];
    }
    return {};
  }

  Status overlaps() const {
    std::vector<const GgufTensor*> sorted;
    for (const GgufTensor& tensor : contents_.tensors) sorted.push_back(&tensor);
    std::sort(sorted.begin(), sorted.end(),
              [](const GgufTensor* a, const GgufTensor* b) { return a->data < b->data; });
    for (size_t i = 1; i < sorted.size(); i++)
      if (sorted[i - 1]->data + sorted[i - 1]->bytes > sorted[i]->data)
        return error(concat("tensor \"", printable(sorted[i]->name), "\" overlaps tensor \"",
                            printable(sorted[i - 1]->name), "\""));
    return {};
  }

  std::span<const std::byte> bytes_;
  const std::string& name_;
  uint64_t at_ = 0;
  uint64_t tensor_count_ = 0, pair_count_ = 0;
  uint64_t alignment_ = 32;  // gguf.md's default
  GgufContents contents_;
  std::set<std::string_view> names_;
  std::vector<uint64_t> offsets_;  // of contents_.tensors, from the start of the tensor data
};

}  // namespace

Result<GgufContents> parse_gguf(std::span<const std::byte> bytes, const std::string& name) {
  return Parser(bytes, name).parse();
}

}  // namespace cohort
