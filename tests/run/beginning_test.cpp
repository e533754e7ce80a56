// Ranks that agree on the directory of a run, or find that they do not share it.
#include "run/beginning.h"

#include <sched.h>
#include <unistd.h>

#include "catch.h"
#include "temp_folder.h"

using namespace trainctl;

namespace {

namespace fs = std::filesystem;

/// A rank that is the only one of its host.
class OwnHost : public World {
 public:
  explicit OwnHost(World& world) : world_(world) {}
  int rank() const override { return world_.rank(); }
  int size() const override { return world_.size(); }
  int local_rank() const override { return 0; }
  int local_size() const override { return 1; }
  const std::string& host() const override { return world_.host(); }
  Traffic& traffic() override { return world_.traffic(); }
  std::unique_ptr<Group> group(const std::string& name, std::span<const int> ranks) override {
    return world_.group(name, ranks);
  }
  void abort(int exit_code) noexcept override { world_.abort(exit_code); }

 private:
  World& world_;
};

/// Two ranks agree on the directory "run" in a working directory of each. Returns the error, or "".
std::string agreement(const fs::path& of_rank_0, const fs::path& of_rank_1) {
  try {
    run_thread_world(2, {}, [&](World& world) {
      // From here on, the working directory is this thread's own.
      const fs::path& mine = world.rank() == 0 ? of_rank_0 : of_rank_1;
      if (::unshare(CLONE_FS) != 0 || ::chdir(mine.c_str()) != 0) {
        throw Error(ExitCode::unavailable, "no working directory for a thread");
      }
      OwnHost host(world);
      const auto everyone = world.everyone("test");
      Config config;
      config.output.dir = "run";
      const Beginning beginning = agree_on_beginning(config, 4, "auto", host, *everyone);
      if (beginning.refused != ExitCode::ok) throw Error(beginning.refused, "refused");
    });
  } catch (const Error& error) {
    CHECK(error.code() == ExitCode::io);
    return error.what();
  }
  return "";
}

}  // namespace

TEST_CASE("hosts that do not share the directory of the run are found at the start", "[threads]") {
  const TempFolder one;
  const TempFolder other;
  CHECK(agreement(one.path(), one.path()).empty());
  CHECK_FALSE(fs::exists(one.path() / "run/shared-directory-check"));
  const std::string error = agreement(one.path(), other.path());
  CHECK_THAT(error, Catch::Matchers::Contains("is not the same directory on all hosts: rank(s) 1 "
                                              "do not see the file that rank 0 wrote there"));
}
