// SPDX-License-Identifier: Apache-2.0
#include "model/families.h"
#include "model/gguf.h"
#include "model/mapped_checkpoint.h"

namespace cohort {
namespace {

std::vector<StoredTensor> stored_tensors(const GgufFile& file) {
  std::vector<StoredTensor> stored;
  stored.reserve(file.tensors().size());
  for (const GgufTensor& tensor : file.tensors())
    stored.push_back({tensor.name,
                      std::string(name(tensor.dtype)),
                      tensor.dtype,
                      tensor.shape,
                      {tensor.data, size_t(tensor.bytes)}});
  return stored;
}

Result<MappedCheckpoint::Parts> parts_of(std::shared_ptr<const GgufFile> file) {
  COHORT_ASSIGN_OR_RETURN(KnownModel known, recognise(*file));
  MappedCheckpoint::Parts parts;
  COHORT_ASSIGN_OR_RETURN(parts.weights, bind_weights(*known.family, known.config, FileFormat::gguf,
                                                      stored_tensors(*file)));
  parts.path = file->path();
  parts.format = concat("GGUF v", file->version());
  parts.config = std::move(known.config);
  parts.load_tokenizer = [file] { return Tokenizer::from_gguf(*file); };
  parts.files = std::move(file);
  return parts;
}

}  // namespace

Result<std::unique_ptr<Checkpoint>> open_gguf_checkpoint(const std::string& path) {
  COHORT_ASSIGN_OR_RETURN(std::shared_ptr<const GgufFile> file, GgufFile::open(path));
  Result<MappedCheckpoint::Parts> parts = parts_of(std::move(file));
  if (!parts.ok()) return parts.status().annotate(path);
  return std::unique_ptr<Checkpoint>(std::make_unique<MappedCheckpoint>(*std::move(parts)));
}

}  // namespace cohort
