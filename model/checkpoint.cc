// SPDX-License-Identifier: Apache-2.0
#include "model/checkpoint.h"

#include <filesystem>
#include <fstream>

#include "model/mapped_checkpoint.h"

namespace cohort {
namespace {

namespace fs = std::filesystem;

bool is_file(const fs::path& path) {
  std::error_code ignored;
  return fs::is_regular_file(path, ignored);
}

bool starts_with_gguf(const std::string& path) {
  char magic[4] = {};
  std::ifstream(path, std::ios::binary).read(magic, sizeof magic);
  return std::string_view(magic, sizeof magic) == "GGUF";
}

Result<std::unique_ptr<Checkpoint>> open_folder(const std::string& path) {
  const fs::path folder(path);
  if (!is_file(folder / "config.json"))
    return not_found(path +
                     ": a folder without config.json; give the folder of a safetensors "
                     "checkpoint or a .gguf file");
  for (const char* name : {"model.safetensors", "model.safetensors.index.json"})
    if (is_file(folder / name))
      return open_safetensors_checkpoint(path, path, (folder / name).string());
  return not_found(path +
                   ": neither model.safetensors nor model.safetensors.index.json is there; "
                   "other weight formats (.bin, .pth) must be converted first");
}

}  // namespace

const WeightInfo* Checkpoint::find(std::string_view name) const {
  for (const WeightInfo& weight : weights())
    if (weight.name == name) return &weight;
  return nullptr;
}

Result<std::unique_ptr<Checkpoint>> Checkpoint::open(const std::string& path) {
  std::error_code error;
  const fs::file_status status = fs::status(path, error);
  if (!fs::exists(status)) return not_found(path + ": no such file or folder");
  if (fs::is_directory(status)) return open_folder(path);
  if (!fs::is_regular_file(status)) return invalid_argument(path + ": not a regular file");
  if (path.ends_with(".gguf") || starts_with_gguf(path)) return open_gguf_checkpoint(path);
  const bool weights = path.ends_with(".safetensors");
  if (!weights && !path.ends_with(".safetensors.index.json"))
    return invalid_argument(path + ": neither a .gguf nor a .safetensors file");
  const fs::path parent = fs::path(path).parent_path();
  return open_safetensors_checkpoint(path, parent.empty() ? "." : parent.string(), path);
}

}  // namespace cohort
