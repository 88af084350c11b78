// SPDX-License-Identifier: Apache-2.0
// A group whose members stand on several hosts, some of them together. The members of a host meet
// in shared memory, and only what other hosts need crosses between hosts, once per pair of hosts:
//
//   all_reduce   host a: ranks 0, 1        host b: ranks 2, 3
//     gather     rank 0 adds up slice 0 of the host's pieces, rank 1 slice 1      (shared memory)
//     rails      0 <-> 2: slice 0            1 <-> 3: slice 1                     (between hosts)
//     spread     everyone gets the slices that the other members of its host have (shared memory)
//
// The bits are those of the tree: a host adds its members' pieces up to the maximal subtrees of the
// units that they own together, and those are the pieces of the reduction between hosts.
//
// The members of a host must be neighbours in the group. Waits are longer from one stage to the
// next, so that the first to give up is the one who knows whom it has missed; it tells the others.
#pragma once
#include <atomic>
#include <memory>
#include <string>
#include <vector>

#include "base/function_ref.h"
#include "comm/host_map.h"
#include "comm/rounds.h"

namespace cohort {

class HierarchicalCommunicator : public Communicator {
 public:
  struct Parts {
    std::unique_ptr<RoundCommunicator> local;   // this host's members; null for one alone
    std::unique_ptr<RoundCommunicator> rail;    // one of each host; null where this rank has none
    std::unique_ptr<RoundCommunicator> direct;  // all members, between hosts
  };
  HierarchicalCommunicator(GroupInfo info, HostMap hosts, Parts parts);

  int rank() const override { return info_.rank; }
  int size() const override { return info_.size(); }
  const std::string& name() const override { return info_.name; }

  Status all_reduce(const TreePlan& plan, float* pieces, float* out, int64_t count) override;
  Status all_gather(const void* in, void* out, std::span<const int64_t> bytes) override;
  Status all_to_all(const void* in, std::span<const int64_t> to, void* out,
                    std::span<const int64_t> from) override;
  Status broadcast(void* data, int64_t bytes, int root) override;
  Status send(const void* data, int64_t bytes, int peer) override;
  Status recv(void* data, int64_t bytes, int peer) override;
  Status barrier() override;

  Traffic traffic() const override;
  bool shares_host(int peer) const override { return hosts_.host_of(peer) == host_; }
  void abort(const Status& why) override;

 private:
  // Stages of a verb, in the order of who waits for whom.
  enum class Stage { gather, rails, spread };
  RoundCommunicator& local(Stage stage);
  RoundCommunicator& rail();
  RoundCommunicator& direct(Stage stage);
  Status run(Verb verb, int64_t bytes, uint64_t detail, FunctionRef<Status()> body);
  Status run_message(FunctionRef<Status()> body);
  Status keep(const Status& status);

  // Elements [begin(i), begin(i + 1)) go by rail i; of no rail that is not used.
  struct Slices {
    int64_t count;
    int rails;
    int64_t align;
    int64_t begin(int i) const;
    int64_t size(int i) const { return begin(i + 1) - begin(i); }
  };
  Slices slices(int64_t count, int64_t element_bytes) const;
  bool carries(const Slices& cut) const { return member_ < cut.rails; }

  HostReduction& reduction_of(const TreePlan& plan);
  Status gather_pieces(const TreePlan& plan, const Slices& cut, const float* pieces);
  Status reduce_by_rail(HostReduction& reduction, const Slices& cut, float* out);
  Status gather_by_rail(std::span<const int64_t> bytes, const std::byte* out);
  Status spread_gathered(std::span<const int64_t> bytes, std::byte* out);
  // Everyone on this host gets the slices of `data` that its members have.
  Status spread(void* data, const Slices& cut, int64_t element_bytes);
  int64_t host_bytes(std::span<const int64_t> bytes, int host) const;

  const GroupInfo info_;
  const HostMap hosts_;
  const int host_, member_;  // of this rank; its number within the host
  const Parts parts_;
  CollectiveCounter counter_;
  Status failure_;

  std::vector<std::unique_ptr<HostReduction>> reductions_;  // of the plans seen, the latest first
  std::vector<float> packed_, gathered_, host_pieces_;
  std::vector<const float*> sources_;
  std::vector<std::byte> by_rail_, by_members_;
  std::vector<OutgoingRun> outgoing_;
  std::vector<IncomingRun> incoming_;
  std::vector<int64_t> sizes_;
};

// Makes a communicator of some members of the group (group ranks, this one among them), called by
// all of them alike.
using MemberGroup =
    FunctionRef<Result<std::unique_ptr<RoundCommunicator>>(const std::vector<int>& members)>;

// Called by all members alike. local: makes groups within hosts; between: among any.
Result<std::unique_ptr<Communicator>> make_hierarchical_communicator(GroupInfo info,
                                                                     const HostMap& hosts,
                                                                     MemberGroup local,
                                                                     MemberGroup between);

}  // namespace cohort
