// SPDX-License-Identifier: Apache-2.0
// "HOST:PORT", "[::1]:80", ":80" (every interface).
#pragma once
#include <charconv>
#include <string>

#include "base/status.h"

namespace cohort {

struct HostPort {
  std::string host;
  int port = 0;
};

inline Result<HostPort> parse_host_port(const std::string& text) {
  const size_t colon = text.rfind(':');
  HostPort out;
  const char* begin = text.data() + (colon == std::string::npos ? text.size() : colon + 1);
  const char* end = text.data() + text.size();
  const auto parsed = std::from_chars(begin, end, out.port);
  if (parsed.ec != std::errc() || parsed.ptr != end || out.port < 0 || out.port > 65535)
    return invalid_argument("'" + text + "' is not an address: write HOST:PORT");
  out.host = text.substr(0, colon);
  if (out.host.size() > 2 && out.host.front() == '[' && out.host.back() == ']')
    out.host = out.host.substr(1, out.host.size() - 2);
  if (out.host.empty()) out.host = "0.0.0.0";
  return out;
}

}  // namespace cohort
