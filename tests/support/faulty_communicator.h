// SPDX-License-Identifier: Apache-2.0
// A communicator that misbehaves as told: its n-th verb fails, comes late, or never takes part.
#pragma once
#include <functional>
#include <memory>
#include <optional>
#include <thread>
#include <utility>

#include "comm/communicator.h"

namespace cohort {

struct Faults {
  std::optional<int64_t> fail_call;  // this verb (from 0) and all later ones fail with `failure`
  Status failure = unavailable("injected failure");
  std::optional<int64_t> delay_call;  // this verb starts late by `delay`
  Duration delay = std::chrono::milliseconds(10);
  // This verb does not take part: it waits for the timeout and says so; its peers miss it.
  std::optional<int64_t> drop_call;
};

class FaultyCommunicator : public Communicator {
 public:
  FaultyCommunicator(std::unique_ptr<Communicator> inner, Faults faults)
      : inner_(std::move(inner)), faults_(std::move(faults)) {
    set_timeout(inner_->timeout());
  }

  int64_t calls() const { return calls_; }

  int rank() const override { return inner_->rank(); }
  int size() const override { return inner_->size(); }
  const std::string& name() const override { return inner_->name(); }
  Status all_reduce(const TreePlan& plan, float* pieces, float* out, int64_t count) override {
    return call([&] { return inner_->all_reduce(plan, pieces, out, count); });
  }
  Status all_gather(const void* in, void* out, std::span<const int64_t> bytes) override {
    return call([&] { return inner_->all_gather(in, out, bytes); });
  }
  Status all_to_all(const void* in, std::span<const int64_t> to, void* out,
                    std::span<const int64_t> from) override {
    return call([&] { return inner_->all_to_all(in, to, out, from); });
  }
  Status broadcast(void* data, int64_t bytes, int root) override {
    return call([&] { return inner_->broadcast(data, bytes, root); });
  }
  Status send(const void* data, int64_t bytes, int peer) override {
    return call([&] { return inner_->send(data, bytes, peer); });
  }
  Status recv(void* data, int64_t bytes, int peer) override {
    return call([&] { return inner_->recv(data, bytes, peer); });
  }
  Status barrier() override {
    return call([&] { return inner_->barrier(); });
  }
  Traffic traffic() const override { return inner_->traffic(); }
  bool shares_host(int peer) const override { return inner_->shares_host(peer); }
  void abort(const Status& why) override { inner_->abort(why); }

 private:
  template <class Verb>
  Status call(const Verb& verb) {
    const int64_t number = calls_++;
    inner_->set_timeout(timeout());
    inner_->set_mark(mark());
    inner_->set_place_text(place_text());
    if (faults_.fail_call && number >= *faults_.fail_call) return faults_.failure;
    if (faults_.drop_call == number) {
      std::this_thread::sleep_for(timeout());
      return deadline_exceeded("injected drop");
    }
    if (faults_.delay_call == number) std::this_thread::sleep_for(faults_.delay);
    return verb();
  }

  const std::unique_ptr<Communicator> inner_;
  const Faults faults_;
  int64_t calls_ = 0;
};

}  // namespace cohort
