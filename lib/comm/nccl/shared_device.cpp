#include "comm/nccl/shared_device.h"

namespace trainctl {

std::vector<EnvironmentEntry> environment_to_share(int version, const std::string& host, int rank) {
  constexpr int first_that_shares = 23003;
  const EnvironmentEntry permission =
      version >= first_that_shares
          ? EnvironmentEntry{"NCCL_MULTI_RANK_GPU_ENABLE", "1"}
          : EnvironmentEntry{"NCCL_HOSTID", host + "-" + std::to_string(rank)};
  return {permission, {"NCCL_MAX_NCHANNELS", "1"}, {"NCCL_SOCKET_IFNAME", "lo"}};
}

}  // namespace trainctl
