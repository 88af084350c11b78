// SPDX-License-Identifier: Apache-2.0
#include "tools/host_address.h"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <memory>
#include <optional>

#include "base/check.h"
#include "base/file_descriptor.h"

namespace cohort {
namespace {

std::string to_text(in_addr address) {
  char text[INET_ADDRSTRLEN] = "";
  ::inet_ntop(AF_INET, &address, text, sizeof text);
  return text;
}

std::optional<uint32_t> to_number(const std::string& address) {
  in_addr parsed{};
  if (::inet_pton(AF_INET, address.c_str(), &parsed) != 1) return std::nullopt;
  return ntohl(parsed.s_addr);
}

uint32_t mask(int prefix) { return prefix == 0 ? 0 : ~uint32_t{0} << (32 - prefix); }

struct Network {
  uint32_t base = 0;
  int prefix = 0;
};

std::optional<Network> parse_network(const std::string& text) {
  const size_t slash = text.find('/');
  if (slash == std::string::npos) return std::nullopt;
  const auto base = to_number(text.substr(0, slash));
  Network network;
  const char *begin = text.data() + slash + 1, *end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(begin, end, network.prefix);
  if (!base || error != std::errc{} || stop != end || network.prefix < 0 || network.prefix > 32)
    return std::nullopt;
  network.base = *base & mask(network.prefix);
  return network;
}

const in_addr& address_of(const sockaddr* address) {
  return reinterpret_cast<const sockaddr_in*>(address)->sin_addr;
}

}  // namespace

std::string Interface::network() const {
  const in_addr base{htonl(to_number(address).value_or(0) & mask(prefix))};
  return concat(to_text(base), "/", prefix);
}

std::vector<Interface> interfaces() {
  std::vector<Interface> found;
  ifaddrs* list = nullptr;
  if (::getifaddrs(&list) != 0) return found;
  const std::unique_ptr<ifaddrs, void (*)(ifaddrs*)> owner(list, ::freeifaddrs);
  for (const ifaddrs* i = list; i != nullptr; i = i->ifa_next) {
    if (i->ifa_addr == nullptr || i->ifa_addr->sa_family != AF_INET || !(i->ifa_flags & IFF_UP))
      continue;
    const int prefix =
        i->ifa_netmask == nullptr ? 32 : std::popcount(address_of(i->ifa_netmask).s_addr);
    found.push_back({.name = i->ifa_name,
                     .address = to_text(address_of(i->ifa_addr)),
                     .prefix = prefix,
                     .loopback = (i->ifa_flags & IFF_LOOPBACK) != 0});
  }
  return found;
}

Result<std::string> resolve_host(const std::string& name) {
  addrinfo hints{}, *found = nullptr;
  hints.ai_family = AF_INET;
  hints.ai_socktype = SOCK_STREAM;
  if (const int error = ::getaddrinfo(name.c_str(), nullptr, &hints, &found); error != 0)
    return not_found("host '" + name + "': " + ::gai_strerror(error) +
                     "; --hosts takes names and IPv4 addresses that this machine can resolve");
  const std::string address = to_text(address_of(found->ai_addr));
  ::freeaddrinfo(found);
  return address;
}

bool is_this_machine(const std::string& name, const std::string& address) {
  std::array<char, 256> own{};
  if (::gethostname(own.data(), own.size() - 1) == 0 && name == own.data()) return true;
  return address.starts_with("127.") ||
         std::ranges::any_of(interfaces(), [&](const auto& i) { return i.address == address; });
}

bool network_contains(const std::string& network, const std::string& address) {
  const auto parsed = parse_network(network);
  const auto number = to_number(address);
  return parsed && number && (*number & mask(parsed->prefix)) == parsed->base;
}

Result<Interface> find_interface(const std::string& network) {
  std::string all;
  for (const Interface& i : interfaces()) {
    if (i.name == network || network_contains(network, i.address)) return i;
    all += concat(all.empty() ? "" : ", ", i.name, " (", i.address, "/", i.prefix, ")");
  }
  return invalid_argument("--network " + network + ": this machine has no such interface, and " +
                          "no address in such a network; it has " + (all.empty() ? "none" : all));
}

Result<Interface> interface_towards(const std::string& address) {
  // Connecting a UDP socket sends nothing; it only asks for the route.
  const FileDescriptor socket(::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  sockaddr_in there{}, here{};
  there.sin_family = AF_INET;
  there.sin_port = htons(9);
  there.sin_addr.s_addr = htonl(to_number(address).value_or(0));
  socklen_t size = sizeof here;
  if (!socket.valid() ||
      ::connect(socket.get(), reinterpret_cast<sockaddr*>(&there), sizeof there) != 0 ||
      ::getsockname(socket.get(), reinterpret_cast<sockaddr*>(&here), &size) != 0)
    return unavailable("no route leads to " + address + ": " + std::strerror(errno));
  const std::string own = to_text(here.sin_addr);
  for (const Interface& i : interfaces())
    if (i.address == own) return i;
  return internal_error("no interface has the address " + own);
}

}  // namespace cohort
