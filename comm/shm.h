// SPDX-License-Identifier: Apache-2.0
// Groups of processes of one host. The members map one memory file that never has a name: nothing
// is left behind, however they end. They must see each other's /proc/<pid> (the same PID
// namespace and user).
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "base/function_ref.h"
#include "base/status.h"
#include "comm/rounds.h"

namespace cohort {

// Everybody's text in group rank order; bounded in time.
using TextExchange = FunctionRef<Result<std::vector<std::string>>(const std::string& text)>;

// Called by all members; `exchange` is called twice. It succeeds or fails on all of them.
Result<std::unique_ptr<Communicator>> make_shm_communicator(GroupInfo info, TextExchange exchange);
// The same, as a part of a larger group.
Result<std::unique_ptr<RoundCommunicator>> make_shm_part(GroupInfo info, TextExchange exchange);

// Equal for processes that can make a shm group: boot id and PID namespace. Different for every
// process where the system does not tell.
std::string host_identity();

}  // namespace cohort
