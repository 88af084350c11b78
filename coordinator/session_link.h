// SPDX-License-Identifier: Apache-2.0
// One open stream to a leader, and what comes out of it. Kept apart from gRPC so that tests can
// play a leader without a socket.
#pragma once
#include <cstdint>
#include <memory>
#include <string>

#include "comm/wire/replica.pb.h"

namespace cohort {

// Thread-safe; no call blocks.
class SessionLink {
 public:
  virtual ~SessionLink() = default;
  virtual void send(replica::v1::CoordinatorMessage message) = 0;
  // Ends the stream at once; closed() follows.
  virtual void close() = 0;
  // Tells the leader why, then ends the stream.
  virtual void reject(const std::string& reason) = 0;
};

// Called by the threads of the server; per session: opened, received in order, closed.
class SessionEvents {
 public:
  virtual ~SessionEvents() = default;
  virtual void opened(uint64_t session, std::shared_ptr<SessionLink> link) = 0;
  virtual void received(uint64_t session, replica::v1::LeaderMessage message) = 0;
  virtual void closed(uint64_t session) = 0;
};

}  // namespace cohort
