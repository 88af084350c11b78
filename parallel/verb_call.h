// SPDX-License-Identifier: Apache-2.0
// A verb of a group as a value, so that another thread can run it later.
#pragma once
#include <cstdint>
#include <span>

#include "base/dtype.h"
#include "base/status.h"
#include "base/unit_tree.h"
#include "comm/communicator.h"

namespace cohort {

// Whom a group joins (parallel/mesh.h); tokens: where sampled tokens travel.
enum class GroupKind : uint8_t { tp, pp, dp, tokens };
inline constexpr int kGroupKinds = 4;
const char* name(GroupKind kind);

enum class VerbKind : uint8_t { all_reduce, add_up, all_gather, all_to_all, send, recv };
const char* name(VerbKind kind);

// Borrows everything that it points to, until it has run.
struct VerbCall {
  Communicator* communicator = nullptr;
  VerbKind kind = VerbKind::all_reduce;
  GroupKind group = GroupKind::tp;
  Mark mark;                       // of the caller, when it called
  DType dtype = DType::f32;        // add_up
  int peer = 0;                    // send, recv
  const TreePlan* plan = nullptr;  // all_reduce
  void* in = nullptr;              // send: what is sent
  void* out = nullptr;
  int64_t count = 0;                   // all_reduce, add_up: elements; send, recv: bytes
  std::span<const int64_t> to = {};    // all_gather: of every rank; all_to_all: for each rank
  std::span<const int64_t> from = {};  // all_to_all
};

// Runs it on the calling thread. What moves nothing on any rank of the group, as all ranks know,
// does not reach the communicator: a sub-batch without rows still walks through its layers.
Status perform(const VerbCall& call);
// Bytes that this rank sends to others.
int64_t bytes_sent(const VerbCall& call);

}  // namespace cohort
