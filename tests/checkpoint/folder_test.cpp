// Names of checkpoints in a run's directory, and which of them are kept.
#include "checkpoint/folder.h"

#include <fstream>

#include "base/error.h"
#include "catch.h"
#include "temp_folder.h"

using namespace trainctl;

namespace {

void touch(const std::filesystem::path& path) {
  std::filesystem::create_directories(path.parent_path());
  std::ofstream(path) << "x";
}

std::vector<std::int64_t> removed(KeepRule rule, const std::vector<Kept>& all) {
  return steps_to_remove(rule, all);
}

}  // namespace

TEST_CASE("only directories with a manifest are checkpoints, the newest first", "[folder]") {
  const TempFolder temp;
  const CheckpointFolder folder(temp.path());
  CHECK(folder.complete().empty());
  CHECK(folder.incomplete().empty());
  touch(folder.of(5) / "manifest.json");
  touch(folder.of(123456789) / "manifest.json");
  touch(folder.of(40) / "rank-00000.safetensors");
  touch(folder.partial(60) / "manifest.json");
  touch(folder.path() / "notes" / "manifest.json");
  touch(folder.path() / "step-7" / "manifest.json");  // not how a step is written
  const auto complete = folder.complete();
  REQUIRE(complete.size() == 2);
  CHECK(complete[0].step == 123456789);
  CHECK(complete[1].step == 5);
  CHECK(complete[1].path == temp.path() / "checkpoints" / "step-00000005");
  const auto incomplete = folder.incomplete();
  REQUIRE(incomplete.size() == 2);
  CHECK(incomplete[0] == folder.of(40));
  CHECK(incomplete[1] == folder.partial(60));
}

TEST_CASE("a directory gets its name when it is published and loses it first when removed",
          "[folder]") {
  const TempFolder temp;
  const CheckpointFolder folder(temp.path());
  CHECK_THROWS_AS(folder.publish(3), Error);
  touch(folder.partial(3) / "manifest.json");
  folder.publish(3);
  CHECK(folder.complete().size() == 1);
  const auto retired = folder.retire(3);
  CHECK(folder.complete().empty());
  CHECK(folder.incomplete() == std::vector{retired});
  CHECK(remove_directory(retired).empty());
  CHECK(folder.incomplete().empty());
}

TEST_CASE("the newest, the multiples and the best are kept", "[folder]") {
  const std::vector<Kept> all{{10, 3.0}, {20, 1.5}, {30, 2.0}, {40, std::nullopt}, {50, 1.75}};
  CHECK(removed({.last = 0}, all).empty());
  CHECK(removed({.last = 9}, all).empty());
  CHECK(removed({.last = 2}, all) == std::vector<std::int64_t>{30, 20, 10});
  CHECK(removed({.last = 1, .every = 20}, all) == std::vector<std::int64_t>{30, 10});
  CHECK(removed({.last = 1, .best = true}, all) == std::vector<std::int64_t>{40, 30, 10});
  CHECK(removed({.last = 1, .every = 30, .best = true}, all) == std::vector<std::int64_t>{40, 10});
}
