// SPDX-License-Identifier: Apache-2.0
#include "comm/cuda_solo.h"

#include <mutex>
#include <utility>

#include "base/check.h"
#include "kernels/cuda/tree_sum.h"

namespace cohort {
namespace {

class CudaSoloCommunicator : public Communicator {
 public:
  CudaSoloCommunicator(std::shared_ptr<CudaDevice> device, const std::string& label, bool ordered)
      : device_(std::move(device)), name_("solo " + label + " group"), ordered_(ordered) {}

  int rank() const override { return 0; }
  int size() const override { return 1; }
  const std::string& name() const override { return name_; }
  bool ordered() const override { return ordered_; }

  Status all_reduce(const TreePlan& plan, float* pieces, float* out, int64_t count) override {
    COHORT_CHECK_EQ(plan.ranks(), 1);
    COHORT_RETURN_IF_ERROR(status());
    try {
      cuda::add_pieces(device_->compute(), plan, pieces, out, count);
    } catch (const Failure& failure) {
      return failure.status().annotate(name_);
    }
    return {};
  }

  Status add_up(const void* in, void* out, int64_t count, DType dtype) override {
    return copy(in, out, bytes_of(dtype, count));
  }

  Status all_gather(const void* in, void* out, std::span<const int64_t> bytes) override {
    COHORT_CHECK_EQ(bytes.size(), size_t(1));
    return copy(in, out, bytes[0]);
  }

  Status all_to_all(const void* in, std::span<const int64_t> to, void* out,
                    std::span<const int64_t> from) override {
    COHORT_CHECK_EQ(from.size(), size_t(1));
    COHORT_CHECK_EQ(to[0], from[0]);
    return all_gather(in, out, to);
  }

  Status broadcast(void*, int64_t, int root) override {
    COHORT_CHECK_EQ(root, 0);
    return status();
  }
  Status send(const void*, int64_t, int) override { return no_peer(); }
  Status recv(void*, int64_t, int) override { return no_peer(); }
  Status barrier() override { return status(); }

  Status status() const override {
    const std::lock_guard lock(mutex_);
    return aborted_;
  }
  void abort(const Status& why) override {
    const std::lock_guard lock(mutex_);
    if (aborted_.ok()) aborted_ = why;
  }

 private:
  Status copy(const void* in, void* out, int64_t bytes) {
    COHORT_RETURN_IF_ERROR(status());
    if (in == out || bytes == 0) return {};
    return cuda_status(cudaMemcpyAsync(out, in, size_t(bytes), cudaMemcpyDeviceToDevice,
                                       device_->compute()),
                       "cudaMemcpyAsync")
        .annotate(name_);
  }
  Status no_peer() const { return invalid_argument(name_ + ": a group of one has no peers"); }

  const std::shared_ptr<CudaDevice> device_;
  const std::string name_;
  const bool ordered_;
  mutable std::mutex mutex_;
  Status aborted_;
};

}  // namespace

std::unique_ptr<Communicator> make_cuda_solo_communicator(std::shared_ptr<CudaDevice> device,
                                                          const std::string& label, bool ordered) {
  return std::make_unique<CudaSoloCommunicator>(std::move(device), label, ordered);
}

}  // namespace cohort
