// SPDX-License-Identifier: Apache-2.0
// Where leaders connect: gRPC, one stream each, with a reader and a writer thread per stream.
// Keepalive pings notice a leader that is gone without a word within 3 s.
#pragma once
#include <memory>
#include <string>

#include "base/status.h"
#include "coordinator/session_link.h"

namespace cohort {

class SessionServer {
 public:
  // address: HOST:PORT, port 0 for a free one. events must outlive the server.
  static Result<std::unique_ptr<SessionServer>> start(const std::string& address,
                                                      SessionEvents& events);
  virtual ~SessionServer() = default;
  virtual int port() const = 0;
  // Ends every session; closed() has been called for each when it returns.
  virtual void stop() = 0;
};

}  // namespace cohort
