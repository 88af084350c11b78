// SPDX-License-Identifier: Apache-2.0
// The kernels to be measured, as named cases that know what they move and compute.
#pragma once
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/stream.h"
#include "tools/bench/demand.h"

namespace cohort::bench {

struct KernelCase {
  std::string name;
  Demand demand;              // of one call
  std::function<void()> run;  // owns what it needs
};

// Cases that share data. It is made when they are measured, and gone afterwards.
struct CaseGroup {
  std::vector<std::string> names;
  // Of all names, in their order; the larger ones last. By the thread that uses the stream.
  std::function<std::vector<KernelCase>()> make;
};

// What cases are made for. Borrowed: the stream must outlive them.
struct CaseSetting {
  Stream& stream;
  int64_t cold_bytes = 0;  // so much data in turn comes from main memory, not from a cache
};

// Matrix products of a layer, for each type of weights: kernel_products.cc.
std::vector<CaseGroup> product_cases(const CaseSetting& setting);
// Attention: kernel_attention.cc.
std::vector<CaseGroup> attention_cases(const CaseSetting& setting);
// Norms, quantisation, activation function, rotation: kernel_rows.cc.
std::vector<CaseGroup> row_cases(const CaseSetting& setting);
// Sampling, and sums over two ranks: kernel_ends.cc.
std::vector<CaseGroup> end_cases(const CaseSetting& setting);

}  // namespace cohort::bench
