// Settings of NCCL where ranks that are processes share a device.
#include "comm/nccl/device_world.h"

#include <map>
#include <string>

#include "catch.h"

using namespace trainctl;

namespace {

std::string value_of(const std::map<std::string, std::string>& entries, const std::string& name) {
  const auto found = entries.find(name);
  return found == entries.end() ? "(none)" : found->second;
}

}  // namespace

TEST_CASE("NCCL is told that ranks share a device in the words of its version") {
  const auto since = environment_to_share(23003, "node7", 3);  // 2.30.3
  CHECK(value_of(since, "NCCL_MULTI_RANK_GPU_ENABLE") == "1");
  CHECK(value_of(since, "NCCL_HOSTID") == "(none)");
  const auto before = environment_to_share(23002, "node7", 3);
  CHECK(value_of(before, "NCCL_MULTI_RANK_GPU_ENABLE") == "(none)");
  CHECK(value_of(before, "NCCL_HOSTID") == "node7-3");
  CHECK(environment_to_share(22807, "node7", 2) != environment_to_share(22807, "node7", 3));
  for (const auto& entries : {since, before}) {
    CHECK(value_of(entries, "NCCL_MAX_NCHANNELS") == "1");
    CHECK(value_of(entries, "NCCL_SOCKET_IFNAME") == "lo");
  }
}
