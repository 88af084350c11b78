// SPDX-License-Identifier: Apache-2.0
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>

#include "base/mapped_file.h"
#include "model/families.h"
#include "model/json_file.h"
#include "model/mapped_checkpoint.h"
#include "model/safetensors.h"

namespace cohort {
namespace {

using nlohmann::json;
namespace fs = std::filesystem;

constexpr size_t kMostFiles = 4096;

// The files of a checkpoint and the tensors in them.
struct Shards {
  std::vector<std::unique_ptr<MappedFile>> files;
  std::vector<StoredTensor> tensors;
};

Result<std::vector<StoredTensor>> add_file(const std::string& path, Shards& shards) {
  COHORT_ASSIGN_OR_RETURN(std::unique_ptr<MappedFile> file, MappedFile::open(path));
  shards.files.push_back(std::move(file));
  return parse_safetensors(shards.files.back()->bytes(), path);
}

// An index names files beside itself; anything else could reach out of the folder.
bool is_plain_file_name(const std::string& name) {
  return name.ends_with(".safetensors") && name.find('/') == std::string::npos &&
         name.find('\0') == std::string::npos;
}

// file -> the tensors that the index expects in it
using WeightMap = std::map<std::string, std::map<std::string, bool>>;

Result<WeightMap> read_index(const std::string& path) {
  COHORT_ASSIGN_OR_RETURN(const json index, read_json_file(path));
  const auto found = index.is_object() ? index.find("weight_map") : index.end();
  if (found == index.end() || !found->is_object())
    return invalid_argument(path + ": has no object 'weight_map'");
  WeightMap map;
  for (const auto& [tensor, file] : found->items()) {
    if (!file.is_string() || !is_plain_file_name(file.get<std::string>()))
      return invalid_argument(concat(path, ": tensor '", tensor,
                                     "' is not in a .safetensors file of the same folder: ",
                                     file.dump(-1, ' ', false, json::error_handler_t::replace)));
    map[file.get<std::string>()][tensor] = false;
  }
  if (map.empty() || map.size() > kMostFiles)
    return invalid_argument(
        concat(path, ": names ", map.size(), " files; at least 1 and at most ", kMostFiles));
  return map;
}

Status add_indexed_file(const std::string& path, std::map<std::string, bool>& expected,
                        Shards& shards) {
  COHORT_ASSIGN_OR_RETURN(std::vector<StoredTensor> tensors, add_file(path, shards));
  for (StoredTensor& tensor : tensors) {
    const auto found = expected.find(tensor.name);
    if (found == expected.end())
      return invalid_argument(
          concat(path, ": tensor '", tensor.name, "' is not there by the index"));
    found->second = true;
    shards.tensors.push_back(std::move(tensor));
  }
  for (const auto& [name, seen] : expected)
    if (!seen)
      return invalid_argument(
          concat(path, ": tensor '", name, "' is missing, which the index says is there"));
  return {};
}

Result<std::shared_ptr<Shards>> open_shards(const std::string& path) {
  auto shards = std::make_shared<Shards>();
  if (!path.ends_with(".json")) {
    COHORT_ASSIGN_OR_RETURN(shards->tensors, add_file(path, *shards));
    return shards;
  }
  COHORT_ASSIGN_OR_RETURN(WeightMap map, read_index(path));
  const fs::path folder = fs::path(path).parent_path();
  for (auto& [file, expected] : map)
    COHORT_RETURN_IF_ERROR(add_indexed_file((folder / file).string(), expected, *shards));
  return shards;
}

Result<std::unique_ptr<Tokenizer>> load_tokenizer(const std::string& folder) {
  const std::string path = (fs::path(folder) / "tokenizer.json").string();
  std::error_code ignored;
  if (!fs::exists(path, ignored))
    return not_found(concat(folder, ": no tokenizer.json; save the model's tokenizer there"));
  return Tokenizer::from_json_file(path);
}

}  // namespace

Result<std::unique_ptr<Checkpoint>> open_safetensors_checkpoint(const std::string& path,
                                                                const std::string& folder,
                                                                const std::string& file) {
  const std::string config_path = (fs::path(folder) / "config.json").string();
  COHORT_ASSIGN_OR_RETURN(const json settings, read_json_file(config_path));
  Result<KnownModel> known = recognise(settings);
  if (!known.ok()) return known.status().annotate(config_path);
  COHORT_ASSIGN_OR_RETURN(std::shared_ptr<Shards> shards, open_shards(file));
  Result<std::vector<BoundWeight>> weights =
      bind_weights(*known->family, known->config, FileFormat::safetensors, shards->tensors);
  if (!weights.ok()) return weights.status().annotate(file);

  MappedCheckpoint::Parts parts;
  parts.path = path;
  parts.format = "safetensors";
  parts.config = std::move(known->config);
  if (parts.config.name.empty()) {
    std::error_code ignored;
    parts.config.name = fs::weakly_canonical(folder, ignored).filename().string();
  }
  parts.weights = *std::move(weights);
  parts.files = std::move(shards);
  parts.load_tokenizer = [folder] { return load_tokenizer(folder); };
  return std::unique_ptr<Checkpoint>(std::make_unique<MappedCheckpoint>(std::move(parts)));
}

}  // namespace cohort
