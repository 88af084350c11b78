// SPDX-License-Identifier: Apache-2.0
// A communicator over a slow link: every verb takes longer, by a fixed time and by the bytes that
// it moves. It sleeps, so that others can compute meanwhile.
#pragma once
#include <functional>
#include <memory>
#include <numeric>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "comm/communicator.h"

namespace cohort {

struct SlowLink {
  double call_seconds = 0, byte_seconds = 0;
};

class SlowCommunicator : public Communicator {
 public:
  SlowCommunicator(std::unique_ptr<Communicator> inner, SlowLink link)
      : inner_(std::move(inner)), link_(link) {
    set_timeout(inner_->timeout());
  }

  int rank() const override { return inner_->rank(); }
  int size() const override { return inner_->size(); }
  const std::string& name() const override { return inner_->name(); }
  Status all_reduce(const TreePlan& plan, float* pieces, float* out, int64_t count) override {
    delay(count * int64_t(sizeof(float)));
    return inner_->all_reduce(plan, pieces, out, count);
  }
  Status all_gather(const void* in, void* out, std::span<const int64_t> bytes) override {
    delay(std::accumulate(bytes.begin(), bytes.end(), int64_t{0}));
    return inner_->all_gather(in, out, bytes);
  }
  Status all_to_all(const void* in, std::span<const int64_t> to, void* out,
                    std::span<const int64_t> from) override {
    delay(std::accumulate(to.begin(), to.end(), int64_t{0}));
    return inner_->all_to_all(in, to, out, from);
  }
  Status broadcast(void* data, int64_t bytes, int root) override {
    delay(bytes);
    return inner_->broadcast(data, bytes, root);
  }
  Status send(const void* data, int64_t bytes, int peer) override {
    delay(bytes);
    return inner_->send(data, bytes, peer);
  }
  Status recv(void* data, int64_t bytes, int peer) override {
    delay(0);
    return inner_->recv(data, bytes, peer);
  }
  Status barrier() override {
    delay(0);
    return inner_->barrier();
  }
  void abort(const Status& why) override { inner_->abort(why); }

 private:
  void delay(int64_t bytes) {
    inner_->set_timeout(timeout());
    std::this_thread::sleep_for(
        std::chrono::duration<double>(link_.call_seconds + link_.byte_seconds * double(bytes)));
  }

  const std::unique_ptr<Communicator> inner_;
  const SlowLink link_;
};

// A world whose groups of several ranks are wrapped.
class WrappedWorld : public World {
 public:
  using Wrap = std::function<std::unique_ptr<Communicator>(std::unique_ptr<Communicator>,
                                                           const std::string& label)>;
  WrappedWorld(World& inner, Wrap wrap) : inner_(inner), wrap_(std::move(wrap)) {}

  int rank() const override { return inner_.rank(); }
  int size() const override { return inner_.size(); }
  const std::string& host() const override { return inner_.host(); }
  Result<std::vector<std::string>> exchange(const std::string& text, Duration timeout) override {
    return inner_.exchange(text, timeout);
  }
  Result<std::unique_ptr<Communicator>> group(const std::vector<int>& members,
                                              const std::string& label) override {
    COHORT_ASSIGN_OR_RETURN(auto made, inner_.group(members, label));
    return members.size() > 1 ? wrap_(std::move(made), label) : std::move(made);
  }

 private:
  World& inner_;
  const Wrap wrap_;
};

}  // namespace cohort
