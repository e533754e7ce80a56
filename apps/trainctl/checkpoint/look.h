// The subcommands of `trainctl checkpoint` that look at checkpoints and change nothing.
#pragma once

#include "arguments.h"

namespace trainctl {

int run_checkpoint_ls(const Arguments& arguments);
int run_checkpoint_inspect(const Arguments& arguments);
int run_checkpoint_verify(const Arguments& arguments);
int run_checkpoint_diff(const Arguments& arguments);

}  // namespace trainctl
