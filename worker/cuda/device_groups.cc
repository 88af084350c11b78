// SPDX-License-Identifier: Apache-2.0
#include "worker/device_groups.h"

#include "comm/nccl_communicator.h"

namespace cohort {

Result<DeviceGroups> make_device_groups(const std::shared_ptr<Device>& device, Communicator& tp,
                                        Communicator& pp, const DeviceGroupsOptions& options) {
  const auto cuda = std::static_pointer_cast<CudaDevice>(device);
  const NcclOptions collectives{
      .queue = NcclQueue::comm, .ordered = options.ordered, .start_timeout = options.timeout};
  // The senders keep what they send until it has gone (worker/cuda/outbox.h).
  const NcclOptions activations{
      .queue = NcclQueue::pipe, .detached_send = true, .start_timeout = options.timeout};
  const NcclOptions sampled{
      .queue = NcclQueue::tokens, .detached_send = true, .start_timeout = options.timeout};
  DeviceGroups groups;
  COHORT_ASSIGN_OR_RETURN(
      groups.tp, make_nccl_communicator(cuda, tp, "tp", collectives, options.max_gather_floats));
  COHORT_ASSIGN_OR_RETURN(groups.pp, make_nccl_communicator(cuda, pp, "pp", activations, 0));
  COHORT_ASSIGN_OR_RETURN(groups.tokens, make_nccl_communicator(cuda, pp, "tokens", sampled, 0));
  return groups;
}

}  // namespace cohort
