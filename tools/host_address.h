// SPDX-License-Identifier: Apache-2.0
// Addresses (IPv4) of this machine and of others.
#pragma once
#include <string>
#include <vector>

#include "base/status.h"

namespace cohort {

// One address of this machine.
struct Interface {
  std::string name;     // "eth0"
  std::string address;  // "10.0.0.1"
  int prefix = 0;       // 24
  bool loopback = false;
  std::string network() const;  // "10.0.0.0/24"
};

std::vector<Interface> interfaces();  // that are up

// Errors name the host.
Result<std::string> resolve_host(const std::string& name);

// Whether a name (with the address that it resolves to) is that of this machine.
bool is_this_machine(const std::string& name, const std::string& address);

// Whether text is "10.0.0.0/24" or the like, with that address in it.
bool network_contains(const std::string& network, const std::string& address);

// The interface whose name this is, or which has an address in this network.
Result<Interface> find_interface(const std::string& network);

// The interface from which packets to the address leave.
Result<Interface> interface_towards(const std::string& address);

}  // namespace cohort
