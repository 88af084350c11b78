// SPDX-License-Identifier: Apache-2.0
// A communicator whose caller makes one mistake, as a rank does that runs another step or layer
// than its peers. It goes on after that as if nothing were wrong.
#pragma once
#include <algorithm>
#include <cstdint>
#include <cstring>
#include <memory>
#include <numeric>
#include <utility>
#include <vector>

#include "comm/communicator.h"

namespace cohort {

enum class Mistake { skipped, repeated, shrunk, other_verb };

struct Mistaken {
  Mistake mistake{};
  uint64_t step = 1;
  int64_t call = 0;  // of the verbs in that step, from 0
  // What came of it; read when the ranks have ended.
  bool made = false;
  Mark mark = {};
  const char* verb = "";
};

class MistakenCommunicator : public Communicator {
 public:
  // plan: borrowed.
  MistakenCommunicator(std::unique_ptr<Communicator> inner, Mistaken& plan)
      : inner_(std::move(inner)), plan_(plan) {
    set_timeout(inner_->timeout());
  }

  int rank() const override { return inner_->rank(); }
  int size() const override { return inner_->size(); }
  const std::string& name() const override { return inner_->name(); }

  Status all_reduce(const TreePlan& plan, float* pieces, float* out, int64_t count) override {
    return call(
        "all_reduce", [&] { return inner_->all_reduce(plan, pieces, out, count); },
        [&] { std::fill_n(out, count, 0.0f); },
        [&] { return inner_->all_reduce(plan, pieces, out, count - 1); });
  }
  Status all_gather(const void* in, void* out, std::span<const int64_t> bytes) override {
    return call(
        "all_gather", [&] { return inner_->all_gather(in, out, bytes); },
        [&] { clear(out, bytes); }, [&] { return inner_->all_gather(in, out, shorter(bytes)); });
  }
  Status all_to_all(const void* in, std::span<const int64_t> to, void* out,
                    std::span<const int64_t> from) override {
    return call(
        "all_to_all", [&] { return inner_->all_to_all(in, to, out, from); },
        [&] { clear(out, from); }, [&] { return inner_->all_to_all(in, shorter(to), out, from); });
  }
  Status broadcast(void* data, int64_t bytes, int root) override {
    ready();
    return inner_->broadcast(data, bytes, root);
  }
  Status send(const void* data, int64_t bytes, int peer) override {
    return call(
        "send", [&] { return inner_->send(data, bytes, peer); }, [] {},
        [&] { return inner_->send(data, bytes - 4, peer); });
  }
  Status recv(void* data, int64_t bytes, int peer) override {
    return call(
        "recv", [&] { return inner_->recv(data, bytes, peer); },
        [&] { std::memset(data, 0, size_t(bytes)); },
        [&] { return inner_->recv(data, bytes - 4, peer); });
  }
  Status barrier() override {
    ready();
    return inner_->barrier();
  }
  void abort(const Status& why) override { inner_->abort(why); }

 private:
  static void clear(void* out, std::span<const int64_t> bytes) {
    std::memset(out, 0, size_t(std::accumulate(bytes.begin(), bytes.end(), int64_t{0})));
  }
  // The last of those that are not empty gets less.
  std::span<const int64_t> shorter(std::span<const int64_t> bytes) {
    sizes_.assign(bytes.begin(), bytes.end());
    const auto last =
        std::find_if(sizes_.rbegin(), sizes_.rend(), [](int64_t size) { return size > 0; });
    if (last != sizes_.rend()) *last -= 4;
    return sizes_;
  }
  void ready() {
    inner_->set_timeout(timeout());
    inner_->set_mark(mark());
    inner_->set_place_text(place_text());
  }

  template <class Verb, class Skip, class Shrink>
  Status call(const char* name, const Verb& verb, const Skip& skip, const Shrink& shrink) {
    ready();
    if (mark().step != plan_.step || calls_++ != plan_.call) return verb();
    plan_.made = true;
    plan_.mark = mark();
    plan_.verb = name;
    switch (plan_.mistake) {
      case Mistake::skipped:
        skip();
        return {};
      case Mistake::repeated:
        if (Status first = verb(); !first.ok()) return first;
        return verb();
      case Mistake::shrunk:
        return shrink();
      case Mistake::other_verb:
        return inner_->barrier();
    }
    return {};
  }

  const std::unique_ptr<Communicator> inner_;
  Mistaken& plan_;
  int64_t calls_ = 0;
  std::vector<int64_t> sizes_;
};

}  // namespace cohort
