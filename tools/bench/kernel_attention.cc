// SPDX-License-Identifier: Apache-2.0
// Attention of one layer: decode of some sequences, and a chunk of a prompt. Layers follow each
// other, so that a decode's keys and values come from main memory.
#include <cstring>

#include "kernels/ops.h"
#include "tools/bench/kernel_case.h"
#include "tools/bench/layer_shape.h"

namespace cohort::bench {
namespace {

// `count` queries each of `sequences`, behind `keys` - `count` positions.
struct AttentionSize {
  int sequences, keys, count;
};
constexpr AttentionSize kSizes[] = {{1, 128, 1},   {1, 1024, 1},  {1, 4096, 1},   {8, 1024, 1},
                                    {32, 1024, 1}, {1, 256, 256}, {1, 2048, 256}, {1, 4096, 256}};

// bf16: in that arithmetic, and over a cache of that type; else over one of f16.
std::string case_name(const LayerShape& shape, const AttentionSize& size, bool bf16) {
  return size.count == 1 ? concat("attention decode ", shape.name, " sequences ", size.sequences,
                                  " keys ", size.keys)
                         : concat("attention prefill ", bf16 ? "bf16 " : "", shape.name, " rows ",
                                  size.count, " keys ", size.keys);
}

class AttentionLayers {
 public:
  AttentionLayers(const CaseSetting& setting, const LayerShape& shape, const AttentionSize& size,
                  bool bf16)
      : stream_(setting.stream),
        geometry_{int(shape.heads), int(shape.kv_heads), int(shape.dim),
                  bf16 ? DType::bf16 : DType::f16, bf16},
        size_(size) {
    const int per_sequence = (size.keys + kBlockTokens - 1) / kBlockTokens;
    for (int i = size.sequences * per_sequence; i-- > 0;) blocks_.push_back(i);
    const size_t bytes = blocks_.size() * geometry_.block_bytes();
    const size_t layers = std::max<size_t>(1, size_t(setting.cold_bytes) / bytes);
    for (size_t i = 0; i < layers; i++) {
      // Halves of 0x3c3c: ordinary numbers, 1.06 in f16 and 0.01 in bf16. Pages that nobody wrote
      // would all be the same one.
      std::memset(layers_.emplace_back(bytes).data(), 0x3c, bytes);
    }
    std::vector<AttentionEntry> entries;
    for (int s = 0; s < size.sequences; s++)
      entries.push_back({blocks_.data() + s * per_sequence, int64_t(s) * size.count,
                         size.keys - size.count, size.count});
    batch_.emplace(geometry_, std::move(entries), stream_.threads().size());
    q_.assign(size_t(rows() * width()), 0.1f);
    out_.resize(q_.size());
  }

  void attend() {
    const KvLayer layer{layers_[next_].data(), geometry_};
    next_ = (next_ + 1) % layers_.size();
    ops::attention(stream_, Tensor(out_.data(), DType::f32, {rows(), width()}),
                   Tensor(q_.data(), DType::f32, {rows(), width()}), layer, *batch_);
  }

  Demand demand() const {
    // Query i of a sequence sees keys - count + i + 1 positions.
    const double seen =
        double(size_.count) * (size_.keys - (size_.count - 1) / 2.0) * size_.sequences;
    const double cached = double(size_.sequences) * size_.keys * double(geometry_.block_bytes());
    const double operations = 4 * seen * geometry_.heads * geometry_.dim;
    return {.memory_bytes = cached / kBlockTokens,
            .bf16_operations = geometry_.bf16_arithmetic ? operations : 0,
            .fma_operations = geometry_.bf16_arithmetic ? 0 : operations};
  }

 private:
  int64_t rows() const { return int64_t(size_.sequences) * size_.count; }
  int64_t width() const { return int64_t(geometry_.heads) * geometry_.dim; }

  Stream& stream_;
  const KvGeometry geometry_;
  const AttentionSize size_;
  std::vector<int32_t> blocks_;
  std::vector<Buffer> layers_;
  size_t next_ = 0;
  std::optional<AttentionBatch> batch_;
  std::vector<float> q_, out_;
};

}  // namespace

std::vector<CaseGroup> attention_cases(const CaseSetting& setting) {
  std::vector<CaseGroup> groups;
  const auto add = [&](const LayerShape& shape, const AttentionSize& size, bool bf16) {
    const std::string name = case_name(shape, size, bf16);
    groups.push_back(
        {{name}, [setting, shape, size, bf16, name] {
           const auto layers = std::make_shared<AttentionLayers>(setting, shape, size, bf16);
           return std::vector<KernelCase>{{name, layers->demand(), [layers] { layers->attend(); }}};
         }});
  };
  for (const LayerShape& shape : kLayerShapes)
    for (const AttentionSize& size : kSizes) {
      add(shape, size, false);
      if (size.count > 1) add(shape, size, true);
    }
  return groups;
}

}  // namespace cohort::bench
