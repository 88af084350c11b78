// SPDX-License-Identifier: Apache-2.0
#include "tests/support/gguf_writer.h"

#include <fstream>
#include <stdexcept>

namespace cohort {
namespace {

template <class T>
void put(std::string& out, T value) {
  out.append(reinterpret_cast<const char*>(&value), sizeof(T));
}

void put_string(std::string& out, std::string_view text) {
  put<uint64_t>(out, text.size());
  out += text;
}

void pad(std::string& out, uint64_t alignment) {
  while (out.size() % alignment != 0) out += '\0';
}

}  // namespace

uint32_t gguf_type(DType type) {
  switch (type) {
    case DType::f32:
      return 0;
    case DType::f16:
      return 1;
    case DType::q4_0:
      return 2;
    case DType::q4_1:
      return 3;
    case DType::q5_0:
      return 6;
    case DType::q5_1:
      return 7;
    case DType::q8_0:
      return 8;
    case DType::q4_k:
      return 12;
    case DType::q5_k:
      return 13;
    case DType::q6_k:
      return 14;
    case DType::i8:
    case DType::f8_e4m3:
      return 24;
    case DType::i32:
      return 26;
    case DType::bf16:
      return 30;
  }
  throw std::runtime_error("unknown dtype");
}

void GgufWriter::key(std::string_view key, uint32_t type) {
  put_string(pairs_, key);
  put(pairs_, type);
  pair_count_++;
}

void GgufWriter::add_raw(std::string_view name, uint32_t type, std::string_view bytes) {
  key(name, type);
  pairs_ += bytes;
}

void GgufWriter::add_u32(std::string_view name, uint32_t value) {
  key(name, 4);
  put(pairs_, value);
}

void GgufWriter::add_i32(std::string_view name, int32_t value) {
  key(name, 5);
  put(pairs_, value);
}

void GgufWriter::add_f32(std::string_view name, float value) {
  key(name, 6);
  put(pairs_, value);
}

void GgufWriter::add_bool(std::string_view name, bool value) {
  key(name, 7);
  put<uint8_t>(pairs_, value);
}

void GgufWriter::add_string(std::string_view name, std::string_view value) {
  key(name, 8);
  put_string(pairs_, value);
}

void GgufWriter::add_u64(std::string_view name, uint64_t value) {
  key(name, 10);
  put(pairs_, value);
}

void GgufWriter::add_i64(std::string_view name, int64_t value) {
  key(name, 11);
  put(pairs_, value);
}

void GgufWriter::add_f64(std::string_view name, double value) {
  key(name, 12);
  put(pairs_, value);
}

void GgufWriter::add_strings(std::string_view name, const std::vector<std::string>& values) {
  key(name, 9);
  put<uint32_t>(pairs_, 8);
  put<uint64_t>(pairs_, values.size());
  for (const std::string& value : values) put_string(pairs_, value);
}

void GgufWriter::add_i32s(std::string_view name, const std::vector<int32_t>& values) {
  key(name, 9);
  put<uint32_t>(pairs_, 5);
  put<uint64_t>(pairs_, values.size());
  for (int32_t value : values) put(pairs_, value);
}

void GgufWriter::add_f32s(std::string_view name, const std::vector<float>& values) {
  key(name, 9);
  put<uint32_t>(pairs_, 6);
  put<uint64_t>(pairs_, values.size());
  for (float value : values) put(pairs_, value);
}

void GgufWriter::add_raw_tensor(std::string_view name, uint32_t type,
                                const std::vector<uint64_t>& shape, uint64_t offset) {
  put_string(tensors_, name);
  put<uint32_t>(tensors_, uint32_t(shape.size()));
  for (uint64_t size : shape) put(tensors_, size);
  put(tensors_, type);
  put(tensors_, offset);
  tensor_count_++;
}

void GgufWriter::add_tensor(std::string_view name, DType type, const std::vector<int64_t>& shape,
                            std::span<const std::byte> data) {
  pad(data_, alignment_);
  add_raw_tensor(name, gguf_type(type), {shape.rbegin(), shape.rend()}, data_.size());
  data_.append(reinterpret_cast<const char*>(data.data()), data.size());
}

void GgufWriter::add_f32_tensor(std::string_view name, const std::vector<int64_t>& shape,
                                std::span<const float> values) {
  add_tensor(name, DType::f32, shape, std::as_bytes(values));
}

std::string GgufWriter::bytes() const {
  std::string out = "GGUF";
  put(out, version_);
  put(out, tensor_count_);
  put(out, pair_count_ + (alignment_ != 32 ? 1 : 0));
  if (alignment_ != 32) {
    put_string(out, "general.alignment");
    put<uint32_t>(out, 4);
    put<uint32_t>(out, uint32_t(alignment_));
  }
  out += pairs_;
  out += tensors_;
  pad(out, alignment_);
  out += data_;
  return out;
}

void GgufWriter::write(const std::string& path) const {
  std::ofstream file(path, std::ios::binary | std::ios::trunc);
  file << bytes();
  if (!file.flush()) throw std::runtime_error("cannot write " + path);
}

}  // namespace cohort
