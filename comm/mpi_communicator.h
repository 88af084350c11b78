// SPDX-License-Identifier: Apache-2.0
// A communicator over MPI messages between the members, with tags of its own: for rounds, for send
// and recv, and for the text of a rank that gives up. Each message is a header and a bounded chunk.
#pragma once
#include <atomic>
#include <memory>
#include <vector>

#include "base/buffer.h"
#include "comm/mpi_transport.h"
#include "comm/rounds.h"

namespace cohort {

class MpiCommunicator : public RoundCommunicator {
 public:
  static constexpr int kTags = 3;
  static constexpr int64_t kHeaderBytes = 64;  // keeps chunks aligned

  MpiCommunicator(GroupInfo info, std::shared_ptr<MpiTransport> transport, int first_tag);
  ~MpiCommunicator() override;

 protected:
  std::byte* outgoing() override;
  Status exchange(const RoundTag& tag, std::span<const Part> to,
                  std::span<const Part> from) override;
  const std::byte* incoming(int peer) const override;
  Status send_bytes(const std::byte* data, int64_t bytes, int peer) override;
  Status recv_bytes(std::byte* data, int64_t bytes, int peer) override;
  void give_up(const Status& why) override;

 private:
  // A short message that may be under way while this rank goes on. MPI promises no memory for what
  // is not received yet, so it is ours. One that the library does not send at once goes on whenever
  // this rank is in a verb of any group.
  struct Held {
    Buffer message = Buffer(size_t(kHeaderBytes + kHeldBytes));
    MPI_Request request = MPI_REQUEST_NULL;
  };
  struct Buffers {
    Buffer out;              // header, chunk
    std::vector<Buffer> to;  // by peer: header, a part that does not lie behind the header of `out`
    std::vector<Buffer> in;  // by peer: header, chunk
    Buffer message;          // of recv, and of send where it waits
    std::vector<std::vector<Held>> held;  // by peer: none, or kHeldMessages used in turn
  };
  Status send_held(const std::byte* data, int64_t bytes, int peer);
  Status start_send(const std::byte* message, int64_t bytes, int peer, int tag);
  Status start_receive(std::byte* message, int peer, int tag);
  // Until all that was started is done. The statuses of receives are in statuses_.
  Status finish(const char* verb);
  Status check_notice(int peer) const;
  Status look_around(int& looks, std::span<const int> peers) const;
  Status timed_out(const char* verb);
  Status check_round(const RoundTag& tag, std::span<const Part> from);

  const std::shared_ptr<MpiTransport> transport_;
  const int round_tag_, message_tag_, notice_tag_;
  std::atomic<bool> told_{false};
  std::unique_ptr<Buffers> buffers_;
  std::vector<MPI_Request> requests_;  // receives of a round first
  std::vector<MPI_Status> statuses_;
  std::vector<int> request_peer_;
  std::vector<size_t> held_sent_;  // by peer
  size_t receives_ = 0;
};

}  // namespace cohort
