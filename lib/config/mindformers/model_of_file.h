// The model of a MindFormers file as far as several of its keys give one of ours.
#pragma once

#include "config/mindformers/file_report.h"

namespace trainctl {

/// The width of the MLP, RoPE's scaling and the experts in model.model_config. (Those of the
/// section moe_config are rows of upstream.h.) Called when the keys with one counterpart each have
/// been moved.
void derive_model(MindformersFile& file);

}  // namespace trainctl
