// SPDX-License-Identifier: Apache-2.0
// The scalar settings of a checkpoint, read in one way from GGUF metadata and from config.json.
#pragma once
#include <cstdint>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "base/status.h"
#include "model/config.h"
#include "model/gguf.h"

namespace cohort {

enum class FileFormat { gguf, safetensors };

class Settings {
 public:
  virtual ~Settings() = default;
  virtual FileFormat format() const = 0;
  // nullopt where the key is absent or null; an error that names the key where its value is of
  // another kind. number() also takes whole numbers.
  virtual Result<std::optional<int64_t>> integer(std::string_view key) const = 0;
  virtual Result<std::optional<double>> number(std::string_view key) const = 0;
  virtual Result<std::optional<bool>> boolean(std::string_view key) const = 0;
  virtual Result<std::optional<std::string>> text(std::string_view key) const = 0;
};

// Keys are looked up as prefix + key ("llama." + "block_count"). `file` must outlive the result.
std::unique_ptr<Settings> gguf_settings(const GgufFile& file, std::string prefix);
// `object` must outlive the result. Anything but an object has no keys.
std::unique_ptr<Settings> json_settings(const nlohmann::json& object);

// Where a count of ModelConfig is found in each format.
struct IntegerField {
  int64_t ModelConfig::*member;
  std::string_view gguf;         // empty: not in this format
  std::string_view safetensors;  // key of config.json
  int64_t most;                  // larger values are refused as absurd
  bool required = true;          // else the member keeps its value
};
Status read_integers(const Settings& settings, std::span<const IntegerField> fields,
                     ModelConfig& config);

}  // namespace cohort
