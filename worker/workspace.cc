// SPDX-License-Identifier: Apache-2.0
#include "worker/workspace.h"

#include <algorithm>

namespace cohort {
namespace {

RowBuffer sum_buffer(Stream& stream, Group tp, const WorkspaceShape& s) {
  const DType dtype = tp.ordered() ? DType::f32 : stream.activations();
  const size_t bytes = size_t(bytes_of(dtype, s.rows * s.hidden));
  return RowBuffer(tp.allocate(stream.device(), bytes), dtype, s.rows, s.hidden);
}

}  // namespace

Workspace::Workspace(Stream& stream, Group tp, const WorkspaceShape& s)
    : h(stream.device(), stream.activations(), s.rows, s.hidden),
      sum(sum_buffer(stream, tp, s)),
      qkv(stream.device(), stream.activations(), s.rows, s.qkv),
      q(stream.device(), stream.activations(), s.rows, s.q),
      mixed(stream.device(), stream.activations(), s.rows, s.q),
      gate_up(stream.device(), stream.activations(), s.rows, 2 * s.ffn),
      ffn(stream.device(), stream.activations(), s.rows, s.ffn),
      linear(stream, tp, s.rows, std::max({s.hidden, s.q, s.ffn}), s.mode,
             tp.ordered() ? s.pieces * s.rows * s.hidden : 0) {}

}  // namespace cohort
