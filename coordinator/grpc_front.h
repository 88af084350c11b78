// SPDX-License-Identifier: Apache-2.0
// cohort.v1.Inference on top of the request service, with grpc.health.v1 and reflection beside it.
// Deadline and cancellation are those of the call.
#pragma once
#include <memory>
#include <string>

#include "base/clock.h"
#include "base/status.h"
#include "coordinator/request_service.h"

namespace cohort {

class GrpcFront {
 public:
  // address: HOST:PORT, port 0 for a free one. service must outlive the front.
  static Result<std::unique_ptr<GrpcFront>> start(const std::string& address,
                                                  RequestService& service);
  virtual ~GrpcFront() = default;
  virtual int port() const = 0;
  // What grpc.health.v1 says of cohort.v1.Inference; the server itself ("") is always serving.
  virtual void set_ready(bool ready) = 0;
  // Takes no new calls, gives open ones `grace`, then cancels them.
  virtual void stop(Duration grace) = 0;
};

}  // namespace cohort
