// Whether a run's attention is cuDNN's, for all ranks alike.
#pragma once

#include <string>

#include "comm/group.h"
#include "comm/world.h"
#include "config/schema/choices.h"
#include "plan/plan.h"
#include "run/agreement.h"

namespace trainctl {

struct CudnnChoice {
  bool taken = false;  // Site::cudnn
  std::string why;     // one line, for people; empty where nobody asks
};

/// Whether parallel.attention_backend: auto may take cuDNN for all ranks: where every rank's device
/// is of the kind, and every rank's cuDNN at least of the version, whose plans were checked, and
/// all versions are the same. Looks only if auto asks for it on CUDA devices. Does not create
/// anything on a device. Collective.
CudnnChoice agree_on_cudnn(AttentionBackend asked, const DeviceChoice& device, const World& world,
                           Group& everyone);
/// The same as far as this machine's first device knows; opens the CUDA module.
CudnnChoice cudnn_here(AttentionBackend asked, DeviceKind device);

/// Makes cuDNN's plans for a plan that chose it. Returns the first rank's reason why it could not,
/// empty if all could. Collective, of ranks with the same plan.
std::string refusal_of_cudnn(const Plan& plan, const World& world, Group& everyone);

}  // namespace trainctl
