// SPDX-License-Identifier: Apache-2.0
// All matrix products of a layer: qkv, o, gate and up, down. Layers follow each other until their
// weights are more than the caches hold, as in a model.
#include <algorithm>
#include <cstring>
#include <random>

#include "kernels/ops.h"
#include "parallel/units.h"
#include "tools/bench/kernel_case.h"
#include "tools/bench/layer_shape.h"

namespace cohort::bench {
namespace {

constexpr int64_t kRows[] = {1, 8, 32, 128, 512};
constexpr DType kTypes[] = {DType::q4_0, DType::q4_1, DType::q5_0, DType::q5_1,
                            DType::q8_0, DType::q4_k, DType::q5_k, DType::q6_k,
                            DType::bf16, DType::f16,  DType::f32};

std::string case_name(DType type, const LayerShape& shape, int64_t rows) {
  return concat("matmul ", name(type), " ", shape.name, " rows ", rows);
}

// Small numbers in any type, of which blocks are copied: products are as fast with any others.
class StoredBytes {
 public:
  StoredBytes() : bytes_(size_t(1) << 20) {
    std::mt19937 random(1);
    for (std::byte& byte : bytes_) byte = std::byte(random() & 15);
  }
  void copy(int64_t bytes, std::byte* out) const {
    for (int64_t at = 0; at < bytes; at += int64_t(bytes_.size()))
      std::memcpy(out + at, bytes_.data(),
                  size_t(std::min<int64_t>(bytes - at, int64_t(bytes_.size()))));
  }

 private:
  std::vector<std::byte> bytes_;
};

// Units as a model of this shape has them.
ModelUnits units_of(const LayerShape& shape, DType type) {
  const int64_t block = column_block(type);
  auto units = model_units({.layers = 1,
                            .heads = shape.heads,
                            .kv_heads = shape.kv_heads,
                            .head_dim = shape.dim,
                            .ffn = shape.ffn,
                            .vocab = shape.vocab,
                            .o_block = block,
                            .down_block = block});
  COHORT_CHECK_MSG(units.ok(), units.status().to_string());
  return *units;
}

class Products {
 public:
  Products(const CaseSetting& setting, const LayerShape& shape, DType type)
      : stream_(setting.stream), shape_(shape), units_(units_of(shape, type)) {
    const StoredBytes stored;
    int64_t bytes = 0;
    do {
      Layer layer = make_layer(type, stored);
      for (const Matrix& w : layer.matrices) bytes += w.packed_bytes();
      layers_.push_back(std::move(layer));
    } while (bytes < setting.cold_bytes);
    layer_bytes_ = bytes / int64_t(layers_.size());
    const int64_t most = kRows[std::size(kRows) - 1];
    x_.assign(size_t(most * shape.ffn), 0.5f);
    y_.resize(size_t(most * widest_output()));
    for (const int64_t columns : {shape.hidden, shape.heads * shape.dim, shape.ffn})
      inputs_.emplace_back(stream_, most, columns, ActivationMode::int8);
  }

  // The next layer.
  void multiply(int64_t rows) {
    if (rows != prepared_) prepare(rows);
    const Layer& layer = layers_[next_];
    next_ = (next_ + 1) % layers_.size();
    for (size_t i = 0; i < layer.matrices.size(); i++) {
      const Matrix& w = layer.matrices[i];
      const UnitRange all{0, w.units()};
      ops::matmul(stream_, Tensor(y_.data(), DType::f32, {1, rows, w.rows()}), inputs_[input_of(i)],
                  w, {&all, 1});
    }
  }
  Demand demand(DType type, int64_t rows) const {
    double weights = 0;
    for (const Matrix& w : layers_[0].matrices) weights += double(w.rows() * w.columns());
    Demand demand{.memory_bytes = double(layer_bytes_)};
    const double operations = 2 * weights * double(rows);
    (is_quantized(type) ? demand.int8_operations : demand.fma_operations) = operations;
    return demand;
  }

 private:
  struct Layer {
    std::vector<Matrix> matrices;  // qkv, o, gate and up, down
  };
  static size_t input_of(size_t matrix) { return matrix == 1 ? 1 : matrix == 3 ? 2 : 0; }
  int64_t qkv_rows() const { return (shape_.heads + 2 * shape_.kv_heads) * shape_.dim; }
  int64_t widest_output() const { return std::max(2 * shape_.ffn, qkv_rows()); }

  Matrix make(DType type, int64_t rows, int64_t columns, int64_t unit, const StoredBytes& stored) {
    Matrix m(columns, unit);
    const Status added =
        m.add_part(stream_, type, rows, [&](int64_t begin, int64_t end, std::byte* out) {
          stored.copy(bytes_of(type, (end - begin) * columns), out);
          return Status();
        });
    COHORT_CHECK_MSG(added.ok(), added.to_string());
    return m;
  }
  Layer make_layer(DType type, const StoredBytes& stored) {
    const int64_t mixed = shape_.heads * shape_.dim;
    const int64_t o_unit = units_.heads_per_unit * shape_.dim;
    Layer layer;
    layer.matrices.push_back(make(type, qkv_rows(), shape_.hidden, 0, stored));
    layer.matrices.push_back(make(type, shape_.hidden, mixed, o_unit, stored));
    layer.matrices.push_back(make(type, 2 * shape_.ffn, shape_.hidden, 0, stored));
    layer.matrices.push_back(make(type, shape_.hidden, shape_.ffn, units_.ffn_columns, stored));
    return layer;
  }
  void prepare(int64_t rows) {
    for (Activations& input : inputs_)
      ops::prepare(stream_, input, Tensor(x_.data(), DType::f32, {rows, input.max_columns()}));
    prepared_ = rows;
  }

  Stream& stream_;
  const LayerShape shape_;
  const ModelUnits units_;
  std::vector<Layer> layers_;
  int64_t layer_bytes_ = 0, prepared_ = 0;
  size_t next_ = 0;
  std::vector<Activations> inputs_;  // as wide as hidden, the heads together, ffn
  std::vector<float> x_, y_;
};

// Blocks of 256 columns would be cut.
bool possible(DType type, const LayerShape& shape) {
  return shape.hidden % info(type).block_elements == 0;
}

}  // namespace

std::vector<CaseGroup> product_cases(const CaseSetting& setting) {
  std::vector<CaseGroup> groups;
  for (const LayerShape& shape : kLayerShapes)
    for (const DType type : kTypes) {
      if (!possible(type, shape)) continue;
      CaseGroup& group = groups.emplace_back();
      for (const int64_t rows : kRows) group.names.push_back(case_name(type, shape, rows));
      group.make = [setting, shape, type] {
        const auto products = std::make_shared<Products>(setting, shape, type);
        std::vector<KernelCase> cases;
        for (const int64_t rows : kRows)
          cases.push_back({case_name(type, shape, rows), products->demand(type, rows),
                           [products, rows] { products->multiply(rows); }});
        return cases;
      };
    }
  return groups;
}

}  // namespace cohort::bench
