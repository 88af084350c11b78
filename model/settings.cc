// SPDX-License-Identifier: Apache-2.0
#include "model/settings.h"

#include <limits>
#include <nlohmann/json.hpp>

namespace cohort {
namespace {

using nlohmann::json;

Status wrong_kind(std::string_view key, const char* expected) {
  return invalid_argument(concat("setting '", key, "' is not ", expected));
}

class GgufSettings : public Settings {
 public:
  GgufSettings(const GgufFile& file, std::string prefix)
      : file_(file), prefix_(std::move(prefix)) {}
  FileFormat format() const override { return FileFormat::gguf; }

  Result<std::optional<int64_t>> integer(std::string_view key) const override {
    return found(key, file_.integer(prefix_ + std::string(key)), "a whole number");
  }
  Result<std::optional<double>> number(std::string_view key) const override {
    return found(key, file_.number(prefix_ + std::string(key)), "a number");
  }
  Result<std::optional<bool>> boolean(std::string_view key) const override {
    return found(key, file_.boolean(prefix_ + std::string(key)), "true or false");
  }
  Result<std::optional<std::string>> text(std::string_view key) const override {
    std::optional<std::string> value;
    if (const auto view = file_.string(prefix_ + std::string(key))) value = std::string(*view);
    return found(key, std::move(value), "a string");
  }

 private:
  template <class T>
  Result<std::optional<T>> found(std::string_view key, std::optional<T> value,
                                 const char* expected) const {
    const std::string full = prefix_ + std::string(key);
    if (!value && file_.metadata().contains(full)) return wrong_kind(full, expected);
    return value;
  }

  const GgufFile& file_;
  const std::string prefix_;
};

class JsonSettings : public Settings {
 public:
  explicit JsonSettings(const json& object) : object_(object) {}
  FileFormat format() const override { return FileFormat::safetensors; }

  Result<std::optional<int64_t>> integer(std::string_view key) const override {
    const json* value = find(key);
    if (!value) return std::optional<int64_t>();
    // Unsigned values past 2^63 would wrap around.
    const bool fits = value->is_number_integer() &&
                      (!value->is_number_unsigned() ||
                       value->get<uint64_t>() <= uint64_t(std::numeric_limits<int64_t>::max()));
    if (!fits) return wrong_kind(key, "a whole number");
    return std::optional(value->get<int64_t>());
  }
  Result<std::optional<double>> number(std::string_view key) const override {
    const json* value = find(key);
    if (!value) return std::optional<double>();
    if (!value->is_number()) return wrong_kind(key, "a number");
    return std::optional(value->get<double>());
  }
  Result<std::optional<bool>> boolean(std::string_view key) const override {
    const json* value = find(key);
    if (!value) return std::optional<bool>();
    if (!value->is_boolean()) return wrong_kind(key, "true or false");
    return std::optional(value->get<bool>());
  }
  Result<std::optional<std::string>> text(std::string_view key) const override {
    const json* value = find(key);
    if (!value) return std::optional<std::string>();
    if (!value->is_string()) return wrong_kind(key, "a string");
    return std::optional(value->get<std::string>());
  }

 private:
  const json* find(std::string_view key) const {
    if (!object_.is_object()) return nullptr;
    const auto found = object_.find(std::string(key));
    return found == object_.end() || found->is_null() ? nullptr : &*found;
  }

  const json& object_;
};

}  // namespace

std::unique_ptr<Settings> gguf_settings(const GgufFile& file, std::string prefix) {
  return std::make_unique<GgufSettings>(file, std::move(prefix));
}

std::unique_ptr<Settings> json_settings(const json& object) {
  return std::make_unique<JsonSettings>(object);
}

Status read_integers(const Settings& settings, std::span<const IntegerField> fields,
                     ModelConfig& config) {
  for (const IntegerField& field : fields) {
    const std::string_view key =
        settings.format() == FileFormat::gguf ? field.gguf : field.safetensors;
    if (key.empty()) continue;
    COHORT_ASSIGN_OR_RETURN(const std::optional<int64_t> value, settings.integer(key));
    if (!value && field.required) return invalid_argument(concat("setting '", key, "' is missing"));
    if (!value) continue;
    if (*value < 1 || *value > field.most)
      return invalid_argument(
          concat("setting '", key, "' is ", *value, ", not within 1 and ", field.most));
    config.*field.member = *value;
  }
  return {};
}

}  // namespace cohort
