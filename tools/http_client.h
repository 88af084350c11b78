// SPDX-License-Identifier: Apache-2.0
// A small blocking client for the event streams of the cluster's own API: one request per
// connection, plain TCP.
#pragma once
#include <functional>
#include <string>

#include "base/clock.h"
#include "base/status.h"

namespace cohort {

class HttpClient {
 public:
  // address: "HOST:PORT" or "http://HOST:PORT"; silence: how long the server may say nothing.
  explicit HttpClient(const std::string& address, Duration silence = std::chrono::seconds(120));

  // Posts json and calls event for the data of each server-sent event until it returns false or the
  // stream ends. A reply that is no event stream is an error with the server's message.
  Status stream(const std::string& path, const std::string& json,
                const std::function<bool(const std::string& data)>& event) const;

 private:
  std::string host_, port_;
  Duration silence_;
};

}  // namespace cohort
