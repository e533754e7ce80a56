// Layouts compared over MPI, with mistakes that the program itself does not make. Each process
// prints what it got; the tests count the lines.
#include <cstdio>
#include <string>

#include "base/error.h"
#include "comm/world.h"
#include "config/read/read.h"
#include "plan/prepare/make_plan.h"
#include "sample_run.h"
#include "verify/layouts.h"
#include "verify/ranks.h"
#include "verify/verify.h"

using namespace trainctl;

namespace {

/// A gradient that only one rank has wrong.
Faults wrong_gradient() {
  return {.gradients = [](int rank, std::int64_t step, ParamStore& store) {
    if (rank == 1 && step == 2) store.gradient(0).as<float>()[3] += 0.5F;
  }};
}

/// A rank that fails while the others wait for it.
Faults failing() {
  return {.parameters = [](int rank, std::int64_t step, ParamStore&) {
    if (rank == 1 && step == 1) throw Error(ExitCode::internal, "planted");
  }};
}

void compare(World& job, const Faults& faults) {
  const ReadResult read = read_config_text(sample_yaml(), "sample.yaml", {});
  const Verification verification(read.config, 2);
  for (const char* name : {"dp2", "dp1"}) {
    const LayoutChoice choice = parse_layouts(name, 0).front();
    const Config config = with_layout(read.config, choice);
    Diagnostics diagnostics;
    const Plan plan = make_plan(
        config, {.world_size = choice.ranks(), .ranks_per_host = choice.ranks()}, {}, diagnostics);
    const VerifiedLayout layout{config, plan, 30, &job};
    const LayoutVerdict verdict = verification.compare(layout, faults);
    const LayoutVerdict free = verification.run_freely(layout);
    const std::string first = verdict.first ? verdict.first->text() : "equal";
    std::printf("%s on rank %d: %s; freely %s\n", name, job.rank(), first.c_str(),
                free.equal ? "equal" : "different");
  }
}

}  // namespace

int main(int, char** argv) {
  const std::string kind = argv[1];
  run_mpi_world({.deadline_seconds = 30, .report_hangs = true}, [&](World& job) {
    compare(job, kind == "gradient" ? wrong_gradient() : kind == "fails" ? failing() : Faults{});
  });
}
