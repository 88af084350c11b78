// SPDX-License-Identifier: Apache-2.0
#include "worker/workspace.h"

#include <algorithm>

namespace cohort {

Workspace::Workspace(const WorkspaceShape& s)
    : h(s.rows, s.hidden),
      qkv(s.rows, s.qkv),
      q(s.rows, s.q),
      mixed(s.rows, s.q),
      gate_up(s.rows, 2 * s.ffn),
      ffn(s.rows, s.ffn),
      linear(s.rows, std::max({s.hidden, s.q, s.ffn}), s.mode, s.pieces * s.rows * s.hidden) {}

}  // namespace cohort
