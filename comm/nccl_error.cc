// SPDX-License-Identifier: Apache-2.0
#include "comm/nccl_error.h"

#include <cstring>

#include "base/log.h"

namespace cohort {
namespace {

Code code_of(ncclResult_t result) {
  switch (result) {
    case ncclSystemError:  // sockets and shared memory, mostly
    case ncclRemoteError:
      return Code::kUnavailable;
    case ncclInvalidArgument:
    case ncclInvalidUsage:
      return Code::kFailedPrecondition;
    default:
      return Code::kInternal;
  }
}

}  // namespace

Status nccl_status(ncclResult_t result, const char* call, ncclComm_t comm) {
  if (result == ncclSuccess || result == ncclInProgress) return {};
  std::string text = concat(call, ": ", ncclGetErrorString(result));
  const char* detail = ncclGetLastError(comm);
  if (detail != nullptr && std::strlen(detail) > 0) text += concat(": ", detail);
  return Status(code_of(result), std::move(text));
}

void nccl_release(ncclResult_t result, const char* call) {
  if (const Status status = nccl_status(result, call, nullptr); !status.ok())
    log_debug(status.message());
}

}  // namespace cohort
