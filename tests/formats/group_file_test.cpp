// Group files: their bytes by hand, the groups of a rank, and who holds the same parameters.
#include <algorithm>

#include "base/error.h"
#include "bytes.h"
#include "catch.h"
#include "formats/strategy/file.h"
#include "plan/sample.h"

using namespace trainctl;

namespace {

std::string why_refused(const std::string& text) {
  try {
    read_groups(text);
  } catch (const Error& failure) {
    CHECK(failure.code() == ExitCode::bad_data);
    return failure.what();
  }
  return "accepted";
}

std::vector<int> restore_of(const Config& config, std::int64_t ranks, std::int64_t rank) {
  return make_group_file(plan_of(config, ranks), config.parallel, rank).restore_ranks;
}

}  // namespace

TEST_CASE("a group file, byte for byte", "[groups]") {
  const GroupFile file{{{"2-7", {0, 300}}}, {0, 2}};
  const std::string text = bytes({0x0a, 12, 0x0a, 3}) + "2-7" +
                           bytes({0x12, 5, 0x08, 0, 0x08, 0xac, 0x02}) +
                           bytes({0x12, 4, 0x08, 0, 0x08, 2});
  CHECK(write_groups(file) == text);
  CHECK(read_groups(text) == file);
  CHECK(read_groups("") == GroupFile{});
  CHECK(why_refused("hello") == "expected a protobuf group file");
  CHECK(why_refused(bytes({0x0a, 0})) == "a group has no group_name");
  CHECK(why_refused(bytes({0x12, 6, 0x08, 0xff, 0xff, 0xff, 0xff, 0x0f})) ==
        "rank 4294967295 is too large");
}

TEST_CASE("a group's name is its size and a hash of its ranks", "[groups]") {
  // FNV-1a of "0-1", worked out by hand with 64-bit arithmetic.
  std::uint64_t hash = 0xcbf29ce484222325ULL;
  for (const char letter : {'0', '-', '1'}) {
    hash = (hash ^ static_cast<unsigned char>(letter)) * 0x100000001b3ULL;
  }
  CHECK(group_name({0, 1}) == "2-" + std::to_string(hash));
  CHECK(group_name({0, 1}) != group_name({0, 11}));
}

TEST_CASE("the groups of a rank, each once and none of one rank", "[groups]") {
  Config config = small_config();
  config.parallel.tensor_parallel = 2;
  config.parallel.pipeline_stages = 2;
  const GroupFile file = make_group_file(plan_of(config, 8), config.parallel, 5);
  std::vector<std::vector<int>> lists;
  for (const NamedGroup& group : file.groups) {
    CHECK(group.name == group_name(group.ranks));
    CHECK(group.ranks.size() > 1);
    CHECK(std::is_sorted(group.ranks.begin(), group.ranks.end()));
    CHECK(std::find(group.ranks.begin(), group.ranks.end(), 5) != group.ranks.end());
    CHECK(std::find(lists.begin(), lists.end(), group.ranks) == lists.end());
    lists.push_back(group.ranks);
  }
  for (const std::vector<int>& ranks : std::vector<std::vector<int>>{
           {4, 5}, {5, 7}, {1, 5}, {0, 1, 4, 5}, {4, 5, 6, 7}}) {  // tp dp pp tp-pp tp-dp
    CHECK(std::find(lists.begin(), lists.end(), ranks) != lists.end());
  }
  CHECK(file.restore_ranks == std::vector<int>{5, 7});
  CHECK_THROWS_AS(make_group_file(plan_of(config, 8), config.parallel, 8), Error);
  CHECK_THROWS_AS(make_group_file(plan_of(config, 8), config.parallel, -1), Error);
}

TEST_CASE("a lost rank is restored from those with the same slices", "[groups]") {
  Config config = small_config();
  CHECK(restore_of(config, 1, 0) == std::vector<int>{0});
  CHECK(restore_of(config, 4, 2) == std::vector<int>{0, 1, 2, 3});
  config.parallel.tensor_parallel = 2;
  CHECK(restore_of(config, 8, 3) == std::vector<int>{1, 3, 5, 7});
  config.parallel.parallel_optimizer.enable = true;
  config.parallel.parallel_optimizer.threshold = 0;
  CHECK(restore_of(config, 8, 3) == std::vector<int>{3});
  config.parallel.parallel_optimizer.weight_shard_size = 2;
  // Shard groups [1,3] and [5,7] of the slices over tp; but a whole norm's replicas are all eight
  // ranks, in shard groups of neighbours, so 3 is a second member there and so is 7.
  CHECK(restore_of(config, 8, 3) == std::vector<int>{3, 7});
}
