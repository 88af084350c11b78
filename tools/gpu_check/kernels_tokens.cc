// SPDX-License-Identifier: Apache-2.0
// The token table, and sums in the order of the tree: both are exact.
#include "kernels/cuda/tokens.h"

#include "kernels/cuda/tree_sum.h"
#include "tools/gpu_check/arrays.h"
#include "tools/gpu_check/kernel_checks.h"

namespace cohort::gpu_check {
namespace {

using Ints = std::vector<int32_t>;

void check_table(const Bench& bench) {
  constexpr int kSlots = 4, kPositions = 1000;
  Stream stream(bench.device, DType::bf16, 1, true);
  const cuda::TokenTable table(stream, kSlots, kPositions);
  Ints expected(size_t(kSlots * kPositions));
  for (size_t i = 0; i < expected.size(); i++) expected[i] = int32_t(i) + 50;
  bench.device->upload(table.data(), expected.data(), expected.size() * sizeof(int32_t));
  const auto at = [](int slot, int position) { return size_t(slot * kPositions + position); };
  const Array sampled(*bench.device, Ints{7, 8, 9}), slots(*bench.device, Ints{1, -1, 2}),
      positions(*bench.device, Ints{0, 5, 500});
  cuda::store_tokens(stream, table, sampled.list(), slots.list(), positions.list());
  expected[at(1, 0)] = 7;
  expected[at(2, 500)] = 9;
  const Array from(*bench.device, Ints{3, 0, 1, 2}), where(*bench.device, Ints{301, 999, -1, 500}),
      ids(*bench.device, DType::i32, 4);
  cuda::look_up_tokens(stream, table, ids.list(), from.list(), where.list());
  Ints got(expected.size());
  bench.device->download(got.data(), table.data(), got.size() * sizeof(int32_t));
  bench.report.pass("tokens, store", "4 slots", got == expected, "is exact");
  bench.report.pass("tokens, look up", "4 rows", ids.ints() == Ints{3351, 1049, 0, 9}, "is exact");
}

void check_tree(const Bench& bench, int units, int64_t count) {
  const TreePlan plan(units, {{0, units / 3}, {units / 3, units}});
  const int pieces = plan.total_pieces();
  const std::vector<float> values = reference::random_floats(pieces * count, bench.random);
  const Array in(*bench.device, DType::f32, values), out(*bench.device, DType::f32, count);
  cuda::add_pieces(bench.device->compute(), plan, in.list().f32(), out.list().f32(), count);
  std::vector<float> sums = values;
  std::vector<float*> pointers;
  for (int p = 0; p < pieces; p++) pointers.push_back(&sums[size_t(p * count)]);
  plan.add_up(pointers.data(), count);
  sums.resize(size_t(count));
  bench.report.pass("add_pieces", concat(units, " units, ", count, " floats"), out.floats() == sums,
                    "is exact");
}

void check_units(const Bench& bench, int units, int64_t count) {
  Stream stream(bench.device, DType::bf16, 1, true);
  const std::vector<float> values = reference::random_floats(units * count, bench.random);
  const Array in(*bench.device, DType::f32, values), out(*bench.device, DType::f32, count);
  const std::vector<UnitRange> whole = {{0, units}};
  cuda::add_units(stream, in.list().f32(), out.list().f32(), count, whole);
  std::vector<UnitRange> owned;
  for (int u = 0; u < units; u++) owned.push_back({u, u + 1});
  const TreePlan plan(units, owned);
  std::vector<float> sums = values;
  std::vector<float*> pointers;
  for (int u = 0; u < units; u++) pointers.push_back(&sums[size_t(u * count)]);
  plan.add_up(pointers.data(), count);
  sums.resize(size_t(count));
  bench.report.pass("add_units", concat(units, " units, ", count, " floats"), out.floats() == sums,
                    "is exact");
}

}  // namespace

void check_tokens(const Bench& bench) {
  bench.report.guarded("tokens", "", [&] { check_table(bench); });
  for (const int units : {1, 3, 8, 13})
    for (const int64_t count : {int64_t(37), int64_t(bench.report.tiny() ? 520 : 40960)})
      bench.report.guarded("tree sums", "", [&] {
        check_tree(bench, units, count);
        check_units(bench, units, count);
      });
}

}  // namespace cohort::gpu_check
