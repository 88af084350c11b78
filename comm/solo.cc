// SPDX-License-Identifier: Apache-2.0
// A group of one: verbs at most copy (or add up this rank's own pieces).
#include <cstring>
#include <mutex>

#include "base/check.h"
#include "comm/communicator.h"
#include "comm/tree_sum.h"

namespace cohort {
namespace {

class SoloCommunicator : public Communicator {
 public:
  explicit SoloCommunicator(const std::string& label) : name_("solo " + label + " group") {}

  int rank() const override { return 0; }
  int size() const override { return 1; }
  const std::string& name() const override { return name_; }

  Status all_reduce(const TreePlan& plan, float* pieces, float* out, int64_t count) override {
    COHORT_CHECK_EQ(plan.ranks(), 1);
    COHORT_RETURN_IF_ERROR(aborted());
    sources_.clear();
    for (int p = 0; p < plan.total_pieces(); p++) sources_.push_back(pieces + p * count);
    tree_sum_.run(plan, sources_, out, count);
    return {};
  }

  Status all_gather(const void* in, void* out, std::span<const int64_t> bytes) override {
    COHORT_CHECK_EQ(bytes.size(), size_t(1));
    COHORT_RETURN_IF_ERROR(aborted());
    if (bytes[0] > 0) std::memmove(out, in, size_t(bytes[0]));
    return {};
  }

  Status all_to_all(const void* in, std::span<const int64_t> to, void* out,
                    std::span<const int64_t> from) override {
    COHORT_CHECK_EQ(from.size(), size_t(1));
    COHORT_CHECK_EQ(to[0], from[0]);
    return all_gather(in, out, to);
  }

  Status broadcast(void*, int64_t, int root) override {
    COHORT_CHECK_EQ(root, 0);
    return aborted();
  }
  Status add_up(const void* in, void* out, int64_t count, DType dtype) override {
    if (in != out) std::memcpy(out, in, size_t(bytes_of(dtype, count)));
    return aborted();
  }
  Status send(const void*, int64_t, int) override { return no_peer(); }
  Status recv(void*, int64_t, int) override { return no_peer(); }
  Status barrier() override { return aborted(); }

  void abort(const Status& why) override {
    const std::lock_guard lock(mutex_);
    if (abort_status_.ok()) abort_status_ = why;
  }

 private:
  Status aborted() const {
    const std::lock_guard lock(mutex_);
    return abort_status_;
  }
  Status no_peer() const { return invalid_argument(name_ + ": a group of one has no peers"); }

  const std::string name_;
  TreeSum tree_sum_;
  std::vector<const float*> sources_;
  mutable std::mutex mutex_;
  Status abort_status_;
};

}  // namespace

std::unique_ptr<Communicator> make_solo_communicator(const std::string& label) {
  return std::make_unique<SoloCommunicator>(label);
}

}  // namespace cohort
