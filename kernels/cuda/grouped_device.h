// SPDX-License-Identifier: Apache-2.0
// What kernels of groups of quantised matrices share.
#pragma once
#include "kernels/cuda/grouped_product.h"
#include "kernels/cuda/portable.h"

namespace cohort::cuda {

// Of `rows` rows of one matrix. T: of x (which int8 kernels do not read) and y.
template <class T>
GPU_FN QuantProduct product_of(const GroupedProduct& g, int group, std::int64_t first,
                               std::int64_t rows) {
  QuantProduct p{};
  p.w = g.w;
  p.w.data = g.weights[group];
  p.x = static_cast<const T*>(g.x) + first * g.columns;
  p.y = static_cast<T*>(g.y) + first * g.y_stride;
  p.out = sizeof(T) == 4 ? DType::f32 : DType::f16;  // f32, or T
  p.n = g.n;
  p.rows = rows;
  p.columns = p.unit_columns = g.columns;
  p.y_stride = g.y_stride;
  return p;
}

}  // namespace cohort::cuda
