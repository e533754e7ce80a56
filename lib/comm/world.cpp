#include "comm/world.h"

#include <exception>
#include <numeric>
#include <vector>

#include "base/error.h"
#include "base/log.h"

namespace trainctl {

std::unique_ptr<Group> World::everyone(const std::string& name) {
  std::vector<int> ranks(static_cast<std::size_t>(size()));
  std::iota(ranks.begin(), ranks.end(), 0);
  return group(name, ranks);
}

void run_mpi_world(const WorldOptions& options, const std::function<void(World&)>& body) {
  const std::unique_ptr<World> world = mpi_world(options);
  try {
    body(*world);
  } catch (const Error& error) {
    log_error(error.what());
    world->abort(static_cast<int>(error.code()));
  } catch (const std::exception& error) {
    log_error(std::string("unexpected: ") + error.what());
    world->abort(static_cast<int>(ExitCode::internal));
  }
}

}  // namespace trainctl
