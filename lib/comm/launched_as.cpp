#include <cstdlib>
#include <string>

#include "comm/world.h"

namespace trainctl {

namespace {

/// A whole non-negative number from the environment, or -1.
int number_from(const char* variable) {
  const char* text = std::getenv(variable);
  if (text == nullptr || *text == '\0') return -1;
  char* end = nullptr;
  const long value = std::strtol(text, &end, 10);
  return *end == '\0' && value >= 0 && value < 1 << 30 ? static_cast<int>(value) : -1;
}

struct Launcher {
  const char* name;
  const char* rank;
  const char* size;
};

// mpirun inside a Slurm job sees Slurm's variables as well, hence the order. The number of tasks
// of a job step is more exact than that of the whole job.
constexpr Launcher launchers[] = {
    {"Open MPI", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"},
    {"MPICH", "PMI_RANK", "PMI_SIZE"},
    {"Slurm", "SLURM_PROCID", "SLURM_STEP_NUM_TASKS"},
    {"Slurm", "SLURM_PROCID", "SLURM_NTASKS"},
};

}  // namespace

LaunchedAs launched_as() {
  for (const Launcher& launcher : launchers) {
    const int rank = number_from(launcher.rank);
    const int size = number_from(launcher.size);
    if (rank >= 0 && size >= 1 && rank < size) return {rank, size, launcher.name};
  }
  return {};
}

}  // namespace trainctl
