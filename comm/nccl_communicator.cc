// SPDX-License-Identifier: Apache-2.0
#include "comm/nccl_communicator.h"

#include <algorithm>
#include <mutex>
#include <numeric>
#include <utility>
#include <vector>

#include "base/check.h"
#include "comm/cuda_solo.h"
#include "comm/nccl_error.h"
#include "comm/nccl_link.h"
#include "comm/nccl_memory.h"
#include "comm/round_tag.h"
#include "kernels/cuda/tree_sum.h"

namespace cohort {
namespace {

ncclDataType_t nccl_type(DType dtype) {
  COHORT_CHECK(dtype == DType::f32 || dtype == DType::f16 || dtype == DType::bf16);
  return dtype == DType::f32 ? ncclFloat32 : dtype == DType::f16 ? ncclFloat16 : ncclBfloat16;
}

cudaStream_t stream_of(const CudaDevice& device, NcclQueue queue) {
  switch (queue) {
    case NcclQueue::comm:
      return device.comm();
    case NcclQueue::pipe:
      return device.pipe();
    case NcclQueue::tokens:
      break;
  }
  return device.tokens();
}

class NcclCommunicator : public Communicator {
 public:
  NcclCommunicator(std::shared_ptr<CudaDevice> device, const Communicator& meeting,
                   const std::string& label, const NcclOptions& options)
      : rank_(meeting.rank()),
        size_(meeting.size()),
        options_(options),
        name_(concat("nccl ", label, " group, rank ", rank_, " of ", size_)),
        device_(std::move(device)),
        queue_(stream_of(*device_, options.queue)),
        link_(name_),
        memory_(device_, link_, name_),
        gathered_bytes_(size_t(size_)) {
    for (int r = 0; r < size_; r++) same_host_.push_back(meeting.shares_host(r));
  }

  Status start(const ncclUniqueId& id, int64_t max_gather_floats);

  int rank() const override { return rank_; }
  int size() const override { return size_; }
  const std::string& name() const override { return name_; }
  bool ordered() const override { return options_.ordered; }

  Status all_reduce(const TreePlan& plan, float* pieces, float* out, int64_t count) override;
  Status add_up(const void* in, void* out, int64_t count, DType dtype) override;
  Status all_gather(const void* in, void* out, std::span<const int64_t> bytes) override;
  Status all_to_all(const void* in, std::span<const int64_t> to, void* out,
                    std::span<const int64_t> from) override;
  Status broadcast(void* data, int64_t bytes, int root) override;
  Status send(const void* data, int64_t bytes, int peer) override;
  Status recv(void* data, int64_t bytes, int peer) override;
  Status barrier() override;

  Traffic traffic() const override {
    const std::lock_guard lock(mutex_);
    return traffic_;
  }
  bool shares_host(int peer) const override { return same_host_[size_t(peer)]; }
  Buffer allocate(Device& device, size_t bytes) override;
  Status status() const override { return named(link_.status()); }
  void abort(const Status& why) override { link_.abort(why); }

 private:
  // The latest verb, for texts.
  struct Verb {
    const char* name = nullptr;
    uint64_t number = 0;  // counted over all verbs of the group within a step
    int64_t bytes = 0;
    Mark mark;
  };
  enum class Back { ordered, detached };
  using Call = std::function<ncclResult_t(ncclComm_t)>;

  // Puts the call on the queue, after what is on compute; unless detached, compute goes on after
  // it.
  Status enqueue(const char* verb, int64_t bytes, const Call& call, Back back = Back::ordered);
  ncclResult_t gather(const void* in, void* out, std::span<const int64_t> bytes, ncclComm_t comm);
  ncclResult_t swap(const void* in, std::span<const int64_t> to, void* out,
                    std::span<const int64_t> from, ncclComm_t comm);
  Status named(const Status& status) const;
  // What the verb means to a peer; NCCL itself may take other ways.
  void count(int peer, int64_t sent, int64_t received);
  void count_gather(std::span<const int64_t> bytes);

  const int rank_, size_;
  const NcclOptions options_;
  const std::string name_;
  const std::shared_ptr<CudaDevice> device_;
  const cudaStream_t queue_;
  NcclLink link_;
  NcclMemory memory_;  // ends before the link
  Buffer gather_, token_;
  std::vector<int64_t> gathered_bytes_;  // of all_reduce, by rank
  std::vector<bool> same_host_;          // by rank
  mutable std::mutex mutex_;
  Verb latest_;
  Traffic traffic_;
};

Status NcclCommunicator::start(const ncclUniqueId& id, int64_t max_gather_floats) {
  device_->use();
  COHORT_RETURN_IF_ERROR(named(link_.start(id, rank_, size_, options_.start_timeout)));
  try {
    gather_ = memory_.allocate(size_t(max_gather_floats) * sizeof(float), options_.start_timeout);
    token_ = device_->allocate(sizeof(float));
  } catch (const Failure& failure) {
    return named(failure.status());
  } catch (const OutOfMemory& error) {
    return named(error.status());
  }
  return {};
}

Status NcclCommunicator::named(const Status& status) const {
  if (status.ok()) return {};
  const std::lock_guard lock(mutex_);
  if (latest_.name == nullptr) return status.annotate(name_);
  return Status(status.code(), concat(name_, ": ", status.message(), " (the latest verb was ",
                                      describe_verb(latest_.name, latest_.number, latest_.mark,
                                                    place_text(), concat(latest_.bytes, " bytes")),
                                      ")"));
}

Status NcclCommunicator::enqueue(const char* verb, int64_t bytes, const Call& call, Back back) {
  {
    const std::lock_guard lock(mutex_);
    const uint64_t before = latest_.mark.step == mark().step ? latest_.number : 0;
    latest_ = {verb, before + 1, bytes, mark()};
  }
  try {
    device_->order(device_->compute(), queue_);
    COHORT_RETURN_IF_ERROR(named(link_.call(verb, timeout(), call)));
    if (back == Back::ordered) device_->order(queue_, device_->compute());
  } catch (const Failure& failure) {
    return named(failure.status());
  }
  return {};
}

void NcclCommunicator::count(int peer, int64_t sent, int64_t received) {
  if (peer == rank_) return;
  const std::lock_guard lock(mutex_);
  const bool within = shares_host(peer);
  (within ? traffic_.sent_within : traffic_.sent_between) += sent;
  (within ? traffic_.received_within : traffic_.received_between) += received;
}

void NcclCommunicator::count_gather(std::span<const int64_t> bytes) {
  for (int r = 0; r < size_; r++) count(r, bytes[size_t(rank_)], bytes[size_t(r)]);
}

ncclResult_t NcclCommunicator::gather(const void* in, void* out, std::span<const int64_t> bytes,
                                      ncclComm_t comm) {
  const bool even =
      std::all_of(bytes.begin(), bytes.end(), [&](int64_t size) { return size == bytes.front(); });
  if (even) return ncclAllGather(in, out, size_t(bytes.front()), ncclUint8, comm, queue_);
  return nccl_group([&] {
    auto* to = static_cast<std::byte*>(out);
    for (int r = 0; r < size_; to += bytes[size_t(r)], r++) {
      if (bytes[size_t(r)] == 0) continue;
      const ncclResult_t result = ncclBroadcast(r == rank_ ? in : to, to, size_t(bytes[size_t(r)]),
                                                ncclUint8, r, comm, queue_);
      if (result != ncclSuccess && result != ncclInProgress) return result;
    }
    return ncclSuccess;
  });
}

Status NcclCommunicator::all_reduce(const TreePlan& plan, float* pieces, float* out,
                                    int64_t count) {
  COHORT_CHECK_EQ(plan.ranks(), size_);
  const int64_t floats = plan.total_pieces() * count;
  COHORT_CHECK_LE(size_t(floats) * sizeof(float), gather_.size());
  for (int r = 0; r < size_; r++)
    gathered_bytes_[size_t(r)] = int64_t(plan.pieces(r).size()) * count * int64_t(sizeof(float));
  if (floats > 0)
    COHORT_RETURN_IF_ERROR(enqueue(
        "all_reduce", floats * int64_t(sizeof(float)),
        [&](ncclComm_t comm) { return gather(pieces, gather_.data(), gathered_bytes_, comm); }));
  count_gather(gathered_bytes_);
  try {
    cuda::add_pieces(device_->compute(), plan, gather_.as<float>(), out, count);
  } catch (const Failure& failure) {
    return named(failure.status());
  }
  return {};
}

Status NcclCommunicator::add_up(const void* in, void* out, int64_t count, DType dtype) {
  COHORT_CHECK(!options_.ordered);
  if (count == 0) return {};
  // A ring: every rank sends a slice to its neighbour 2 (n - 1) times.
  const int64_t passed = bytes_of(dtype, count) * 2 * (size_ - 1) / size_;
  this->count((rank_ + 1) % size_, passed, 0);
  this->count((rank_ + size_ - 1) % size_, 0, passed);
  return enqueue("add_up", bytes_of(dtype, count), [&](ncclComm_t comm) {
    return ncclAllReduce(in, out, size_t(count), nccl_type(dtype), ncclSum, comm, queue_);
  });
}

Status NcclCommunicator::all_gather(const void* in, void* out, std::span<const int64_t> bytes) {
  COHORT_CHECK_EQ(bytes.size(), size_t(size_));
  const int64_t total = std::accumulate(bytes.begin(), bytes.end(), int64_t(0));
  if (total == 0) return {};
  count_gather(bytes);
  return enqueue("all_gather", total,
                 [&](ncclComm_t comm) { return gather(in, out, bytes, comm); });
}

// Sends and receives in pairs of ranks, all in one group call: none of them waits for another.
Status NcclCommunicator::all_to_all(const void* in, std::span<const int64_t> to, void* out,
                                    std::span<const int64_t> from) {
  COHORT_CHECK_EQ(to.size(), size_t(size_));
  COHORT_CHECK_EQ(from.size(), size_t(size_));
  COHORT_CHECK_EQ(to[size_t(rank_)], from[size_t(rank_)]);
  const int64_t sent = std::accumulate(to.begin(), to.end(), int64_t(0));
  const int64_t received = std::accumulate(from.begin(), from.end(), int64_t(0));
  if (sent + received == 0) return {};
  for (int r = 0; r < size_; r++) count(r, to[size_t(r)], from[size_t(r)]);
  return enqueue("all_to_all", sent + received, [&](ncclComm_t comm) {
    return nccl_group([&] { return swap(in, to, out, from, comm); });
  });
}

ncclResult_t NcclCommunicator::swap(const void* in, std::span<const int64_t> to, void* out,
                                    std::span<const int64_t> from, ncclComm_t comm) {
  const auto* source = static_cast<const std::byte*>(in);
  auto* target = static_cast<std::byte*>(out);
  const auto failed = [](ncclResult_t result) {
    return result != ncclSuccess && result != ncclInProgress;
  };
  for (int r = 0; r < size_; r++) {
    const int64_t outgoing = to[size_t(r)], incoming = from[size_t(r)];
    if (outgoing > 0)
      if (const ncclResult_t result =
              ncclSend(source, size_t(outgoing), ncclUint8, r, comm, queue_);
          failed(result))
        return result;
    if (incoming > 0)
      if (const ncclResult_t result =
              ncclRecv(target, size_t(incoming), ncclUint8, r, comm, queue_);
          failed(result))
        return result;
    source += outgoing;
    target += incoming;
  }
  return ncclSuccess;
}

Status NcclCommunicator::broadcast(void* data, int64_t bytes, int root) {
  if (bytes == 0) return {};
  for (int r = 0; r < size_; r++) count(r, rank_ == root ? bytes : 0, r == root ? bytes : 0);
  return enqueue("broadcast", bytes, [&](ncclComm_t comm) {
    return ncclBroadcast(data, data, size_t(bytes), ncclUint8, root, comm, queue_);
  });
}

Status NcclCommunicator::send(const void* data, int64_t bytes, int peer) {
  if (bytes == 0) return {};
  count(peer, bytes, 0);
  return enqueue(
      "send", bytes,
      [&](ncclComm_t comm) { return ncclSend(data, size_t(bytes), ncclUint8, peer, comm, queue_); },
      options_.detached_send ? Back::detached : Back::ordered);
}

Status NcclCommunicator::recv(void* data, int64_t bytes, int peer) {
  if (bytes == 0) return {};
  count(peer, 0, bytes);
  return enqueue("recv", bytes, [&](ncclComm_t comm) {
    return ncclRecv(data, size_t(bytes), ncclUint8, peer, comm, queue_);
  });
}

Status NcclCommunicator::barrier() {
  return enqueue("barrier", int64_t(sizeof(float)), [&](ncclComm_t comm) {
    return ncclAllReduce(token_.data(), token_.data(), 1, ncclFloat32, ncclSum, comm, queue_);
  });
}

Buffer NcclCommunicator::allocate(Device& device, size_t bytes) {
  COHORT_CHECK(&device == device_.get());
  return memory_.allocate(bytes, timeout());
}

// The group's id, from its first rank to all.
Result<ncclUniqueId> exchange_id(Communicator& meeting) {
  struct Invitation {
    ncclUniqueId id{};
    int32_t result = ncclSuccess;
  } invitation;
  if (meeting.rank() == 0) invitation.result = ncclGetUniqueId(&invitation.id);
  COHORT_RETURN_IF_ERROR(meeting.broadcast(&invitation, sizeof invitation, 0));
  COHORT_RETURN_IF_ERROR(nccl_status(ncclResult_t(invitation.result), "ncclGetUniqueId", nullptr));
  return invitation.id;
}

}  // namespace

Result<std::unique_ptr<Communicator>> make_nccl_communicator(std::shared_ptr<CudaDevice> device,
                                                             Communicator& meeting,
                                                             const std::string& label,
                                                             const NcclOptions& options,
                                                             int64_t max_gather_floats) {
  if (meeting.size() == 1) return make_cuda_solo_communicator(device, label, options.ordered);
  auto made = std::make_unique<NcclCommunicator>(std::move(device), meeting, label, options);
  Result<ncclUniqueId> id = exchange_id(meeting);
  if (!id.ok()) return id.status().annotate(made->name());
  COHORT_RETURN_IF_ERROR(made->start(*id, max_gather_floats));
  return std::unique_ptr<Communicator>(std::move(made));
}

}  // namespace cohort
