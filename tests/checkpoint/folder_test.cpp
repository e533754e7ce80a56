// Names of checkpoints in a run's directory, which of them is the newest, and which are kept.
#include "checkpoint/folder.h"

#include <fstream>

#include "base/error.h"
#include "catch.h"
#include "checkpoint/manifest.h"
#include "temp_folder.h"

using namespace trainctl;

namespace {

namespace fs = std::filesystem;

void touch(const fs::path& path) {
  fs::create_directories(path.parent_path());
  std::ofstream(path) << "x";
}

/// The manifest of a checkpoint of a session, as far as its beginning.
void make_manifest(const fs::path& checkpoint, std::int64_t session) {
  touch(checkpoint / "manifest.json");
  Manifest manifest;
  manifest.session = session;
  std::ofstream(checkpoint / "manifest.json") << manifest_text(manifest);
}

std::vector<std::string> names_of(const std::vector<CheckpointFolder::Entry>& entries) {
  std::vector<std::string> names;
  for (const auto& entry : entries) names.push_back(entry.path.filename().string());
  return names;
}

std::vector<std::string> removed(const CheckpointConfig& rule,
                                 const std::vector<CheckpointFolder::Entry>& all) {
  std::vector<std::string> names;
  for (const fs::path& path : to_remove(rule, all)) names.push_back(path.string());
  return names;
}

using Names = std::vector<std::string>;

}  // namespace

TEST_CASE("only directories with a manifest are checkpoints, the newest first", "[folder]") {
  const TempFolder temp;
  const CheckpointFolder folder(temp.path());
  CHECK(folder.complete().empty());
  CHECK(folder.incomplete().empty());
  touch(folder.of(5) / "manifest.json");
  touch(folder.of(123456789) / "manifest.json");
  touch(folder.of(40) / "rank-00000.safetensors");
  touch(folder.partial(60, 7) / "manifest.json");
  touch(folder.path() / "notes" / "manifest.json");
  touch(folder.path() / "step-7" / "manifest.json");  // not how a step is written
  touch(folder.path() / "step-00000007.x" / "manifest.json");
  touch(folder.path() / "step-00000007.damaged" / "manifest.json");
  const auto complete = folder.complete();
  REQUIRE(complete.size() == 2);
  CHECK(complete[0].step == 123456789);
  CHECK(complete[1].step == 5);
  CHECK(complete[1].path == temp.path() / "checkpoints" / "step-00000005");
  const auto incomplete = folder.incomplete();
  REQUIRE(incomplete.size() == 2);
  CHECK(incomplete[0] == folder.of(40));
  CHECK(incomplete[1] == folder.partial(60, 7));
  CHECK(folder.partial(60, 7).filename() == "step-00000060.7.partial");
}

TEST_CASE("the newest checkpoint is that of the highest session, then of the highest step",
          "[folder]") {
  const TempFolder temp;
  const CheckpointFolder folder(temp.path());
  make_manifest(folder.of(500), 3);
  make_manifest(folder.of(400), 12);
  make_manifest(folder.path() / "step-00000500.12", 12);
  make_manifest(folder.of(900), 0);  // of an earlier version
  CHECK(names_of(folder.complete()) ==
        Names{"step-00000500.12", "step-00000400", "step-00000500", "step-00000900"});
  CHECK(folder.complete().front().step == 500);
  CHECK(folder.highest_session() == 12);
  // A file that cannot be read as a manifest says no session.
  touch(folder.of(901) / "manifest.json");
  CHECK(folder.complete().back().path.filename() == "step-00000900");
  CHECK(session_of(folder.of(901)) == 0);
}

TEST_CASE("the session of a manifest is found in its beginning alone", "[folder]") {
  const TempFolder temp;
  const fs::path checkpoint = temp.path();
  const auto session = [&](const std::string& text) {
    std::ofstream(checkpoint / "manifest.json") << text;
    return session_of(checkpoint);
  };
  CHECK(session(R"({"manifest": {"format": "x", "session": 9876543210, "state")") == 9876543210);
  CHECK(session(R"({"manifest": {"state": {"session": 4}, "tensors": [], "session": 5}})") == 0);
  CHECK(session(R"({"session": 4, "manifest": {"a": [[[{"session": 7}]]]}})") == 0);
  CHECK(session(R"({"manifest": {"session": -4}})") == 0);
  CHECK(session(R"({"manifest": {"session": "4"}})") == 0);
  CHECK(session(R"({"manifest": {"session": 12345678901}})") == 0);
  CHECK(session("") == 0);
  CHECK(session(std::string(1 << 20, '[')) == 0);
}

TEST_CASE("a directory gets its name when it is published and loses it first when removed",
          "[folder]") {
  const TempFolder temp;
  const CheckpointFolder folder(temp.path());
  CHECK_THROWS_AS(folder.publish(3), Error);
  touch(folder.partial(3, 0) / "manifest.json");
  CHECK(folder.publish(3) == folder.of(3));
  CHECK(folder.complete().size() == 1);
  const auto retired = CheckpointFolder::retire(folder.of(3), Fence{8, {}});
  CHECK(retired.filename() == "step-00000003.retired.8.partial");
  CHECK(folder.complete().empty());
  CHECK(folder.incomplete() == std::vector{retired});
  CHECK(remove_directory(retired).empty());
  CHECK(folder.incomplete().empty());
}

TEST_CASE("a published checkpoint replaces nothing", "[folder]") {
  const TempFolder temp;
  const CheckpointFolder folder(temp.path());
  touch(folder.of(3) / "mine");
  fs::create_directories(folder.of(4));  // an empty directory could be replaced by a rename
  for (const std::int64_t step : {3, 4}) {
    make_manifest(folder.partial(step, 8), 8);
    const fs::path published = folder.publish(step, Fence{8, {}});
    CHECK(published == folder.of(step).string() + ".8");
    CHECK(session_of(published) == 8);
  }
  CHECK(fs::exists(folder.of(3) / "mine"));
  CHECK(fs::is_empty(folder.of(4)));
}

TEST_CASE("a session that another one has followed publishes nothing", "[folder]") {
  const TempFolder temp;
  const CheckpointFolder folder(temp.path());
  // The fence fails.
  make_manifest(folder.partial(3, 8), 8);
  const Fence lost{8, [] { throw Error(ExitCode::taken, "lost"); }};
  CHECK_THROWS_WITH(folder.publish(3, lost), "lost");
  CHECK(folder.complete().empty());
  // The other one comes between the fence and the rename, and takes the directory away.
  const Fence late{8, [&] { fs::rename(folder.partial(3, 8), folder.partial(3, 9)); }};
  try {
    folder.publish(3, late);
    FAIL("published");
  } catch (const Error& error) {
    CHECK(error.code() == ExitCode::taken);
  }
  CHECK(folder.complete().empty());
}

TEST_CASE("the newest, the multiples and the best are kept", "[folder]") {
  const auto kept = [](std::int64_t step, std::optional<double> loss) {
    return CheckpointFolder::Entry{1, step, std::to_string(step), loss};
  };
  const std::vector<CheckpointFolder::Entry> all{kept(50, 1.75), kept(40, std::nullopt),
                                                 kept(30, 2.0), kept(20, 1.5), kept(10, 3.0)};
  CHECK(removed({.keep = 0}, all).empty());
  CHECK(removed({.keep = 9}, all).empty());
  CHECK(removed({.keep = 2}, all) == Names{"30", "20", "10"});
  CHECK(removed({.keep = 1, .keep_every = 20}, all) == Names{"30", "10"});
  CHECK(removed({.keep = 1, .keep_best = true}, all) == Names{"40", "30", "10"});
  CHECK(removed({.keep = 1, .keep_every = 30, .keep_best = true}, all) == Names{"40", "10"});
}
