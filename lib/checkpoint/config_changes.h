// How a configuration differs from that of the run that wrote a checkpoint, and which differences
// a run can go on with.
#pragma once

#include <string>
#include <vector>

#include "config/schema/config.h"

namespace trainctl {

struct ConfigChange {
  std::string path;
  std::string saved;
  std::string now;
  bool allowed = false;  // the run can go on with it
};

/// Values that differ. The model and the tokenizer must stay; rates, batch, optimizer, layout,
/// precision and length of the run may change. Keys that only concern files, messages and
/// checkpoints are left out.
std::vector<ConfigChange> config_changes(const Config& saved, const Config& now);

/// "model.hidden_size: 768 in the checkpoint, 1024 now", one line for each with `allowed` as given.
std::string list_changes(const std::vector<ConfigChange>& changes, bool allowed);

}  // namespace trainctl
