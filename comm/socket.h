// SPDX-License-Identifier: Apache-2.0
// TCP sockets (IPv4) of the control channel: nonblocking, closed on exec, without Nagle's delay.
#pragma once
#include <string>

#include "base/clock.h"
#include "base/file_descriptor.h"
#include "base/status.h"

namespace cohort {

struct Listener {
  FileDescriptor socket;
  std::string host;  // that peers can reach
  int port = 0;
};
// host: a name or address of this host; "" for all its interfaces, of which the first IPv4 address
// that is not loopback is told to peers (127.0.0.1 if there is none).
Result<Listener> listen_tcp(const std::string& host);

// Tries again until the deadline: the other end may not listen yet.
Result<FileDescriptor> connect_tcp(const std::string& host, int port, Deadline deadline);

// An accepted connection, or an invalid descriptor if none waits.
FileDescriptor accept_tcp(int listener);

// A descriptor that poll() finds readable after wake(); drained by drain().
class WakeUp {
 public:
  WakeUp();
  int fd() const { return event_.get(); }
  void wake();
  void drain();

 private:
  FileDescriptor event_;
};

// For secrets: characters of [0-9a-f], two per byte of the system's random numbers.
std::string random_hex(int bytes);

}  // namespace cohort
