// Addresses of interfaces and their subnets.
#include "comm/this_host.h"

#include "catch.h"

using namespace trainctl;

TEST_CASE("the subnet of an interface, and what is in it") {
  const Interface eth0{"eth0", 0x0a4d0002, 24};
  CHECK(eth0.subnet() == "10.77.0.0/24");
  CHECK(eth0.holds(0x0a4d00fe));
  CHECK_FALSE(eth0.holds(0x0a4d0102));
  const Interface wide{"ib0", 0xac110101, 12};
  CHECK(wide.subnet() == "172.16.0.0/12");
  const Interface alone{"tun0", 0x0a000001, 32};
  CHECK(alone.subnet() == "10.0.0.1/32");
  CHECK_FALSE(alone.holds(0x0a000000));
  const Interface everything{"any", 0x0a000001, 0};
  CHECK(everything.subnet() == "0.0.0.0/0");
  CHECK(everything.holds(0xffffffff));
}

TEST_CASE("interfaces by their subnet, and as text without the loopback") {
  const std::vector<Interface> all = {
      {"lo", 0x7f000001, 8, true}, {"eth0", 0x0a4d0002, 24}, {"docker0", 0xac110001, 16}};
  CHECK(addresses_text(all) == "eth0 10.77.0.2/24, docker0 172.17.0.1/16");
  CHECK(addresses_text({all.front()}) == "none");
  CHECK(interface_in(all, "10.77.0.0/24") == "eth0");
  // Texts that a user may have set instead of a subnet.
  for (const char* other : {"", "eth0", "10.77.0.0/16", "10.77.0.0/24,172.17.0.0/16"}) {
    CHECK_FALSE(interface_in(all, other));
  }
}

TEST_CASE("this host has its loopback") {
  bool found = false;
  for (const Interface& one : interfaces()) {
    found = found || (one.loopback && one.subnet() == "127.0.0.0/8");
  }
  CHECK(found);
}
