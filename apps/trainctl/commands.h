// One function per command: takes the words after the command's name, returns the exit code,
// throws Error.
#pragma once

#include "arguments.h"

namespace trainctl {

int run_train(const Arguments& arguments);
int run_launch(const Arguments& arguments);
int run_validate(const Arguments& arguments);
int run_plan(const Arguments& arguments);
int run_report(const Arguments& arguments);
int run_data(const Arguments& arguments);
int run_checkpoint(const Arguments& arguments);
int run_generate(const Arguments& arguments);
int run_bench(const Arguments& arguments);
int run_devices(const Arguments& arguments);
int run_migrate(const Arguments& arguments);
int run_schema(const Arguments& arguments);
int run_explain(const Arguments& arguments);
int run_verify(const Arguments& arguments);
int run_completion(const Arguments& arguments);
int run_evaluate(const Arguments& arguments);
int run_watch(const Arguments& arguments);

/// Runs the command that the first word names, as on the command line.
int run_command(const Arguments& arguments);

}  // namespace trainctl
