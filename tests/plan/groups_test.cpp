#include "plan/tables/mesh.h"

#include <algorithm>
#include <array>
#include <map>

#include "base/error.h"
#include "catch.h"
#include "thorough.h"

using namespace trainctl;

namespace {

/// The groups of a kind by plain nested loops over the words of the order, the rightmost outermost.
struct BruteForce {
  Mesh mesh;

  RankLists list(std::string kind) const {
    const bool expert = kind.rfind("expert:", 0) == 0;
    if (expert) kind.erase(0, 7);
    std::array<std::int64_t, 5> sizes{};
    for (std::size_t i = 0; i < 5; ++i) sizes[i] = size_of(mesh.order[i], expert);
    // For each rank its coordinates; the key is what the kind does not select.
    std::map<std::vector<std::int64_t>, std::vector<int>> groups;
    int rank = 0;
    for (std::int64_t e = 0; e < sizes[4]; ++e) {
      for (std::int64_t d = 0; d < sizes[3]; ++d) {
        for (std::int64_t c = 0; c < sizes[2]; ++c) {
          for (std::int64_t b = 0; b < sizes[1]; ++b) {
            for (std::int64_t a = 0; a < sizes[0]; ++a) {
              std::vector<std::int64_t> key;  // the slowest first, so that the map sorts them right
              const std::int64_t at[] = {a, b, c, d, e};
              for (std::size_t i = 5; i-- > 0;) {
                if (!selects(kind, mesh.order[i])) key.push_back(at[i]);
              }
              groups[key].push_back(rank++);
            }
          }
        }
      }
    }
    RankLists lists;
    for (const auto& [key, group] : groups) lists.push_back(group);
    return lists;
  }

 private:
  std::int64_t size_of(Axis word, bool expert) const {
    if (word == Axis::tp) return expert ? mesh.etp : mesh.tp;
    if (word == Axis::cp) return expert ? 1 : mesh.cp;
    if (word == Axis::ep) return expert ? mesh.ep : 1;
    if (word == Axis::dp) return expert ? mesh.edp : mesh.dp;
    return mesh.pp;
  }
  static bool selects(const std::string& kind, Axis word) {
    return ("-" + kind + "-").find("-" + std::string(name_of(word)) + "-") != std::string::npos;
  }
};

Mesh mesh_of(std::int64_t tp, std::int64_t cp, std::int64_t dp, std::int64_t pp,
             std::int64_t etp = 1, std::int64_t ep = 1, const char* order = "tp-cp-ep-dp-pp") {
  Mesh mesh{tp, cp, dp, pp, etp, ep, tp * cp * dp / (etp * ep)};
  std::vector<Axis> appended;
  mesh.order = parse_order(order, appended).value();
  return mesh;
}

constexpr const char* orders[] = {"tp-cp-ep-dp-pp", "tp-cp-pp-ep-dp", "pp-dp-ep-cp-tp",
                                  "ep-tp-dp-pp-cp", "dp-pp-tp-ep-cp", "tp-pp-dp",
                                  "cp-tp-pp-dp-ep", "tp-ep-dp-pp"};

/// Sizes of the axes that multiply to the world; experts where they fit.
std::vector<Mesh> meshes() {
  std::vector<Mesh> all;
  for (std::int64_t tp : {1, 2, 8}) {
    for (std::int64_t cp : {1, 3}) {
      for (std::int64_t dp : {1, 8}) {
        for (std::int64_t pp : {1, 2, 6}) {
          for (std::int64_t ep : {1, 2, 4}) {
            for (std::int64_t etp : {std::int64_t{1}, tp}) {
              if (tp * cp * dp % (ep * etp) != 0) continue;
              for (const char* order : orders) {
                all.push_back(mesh_of(tp, cp, dp, pp, etp, ep, order));
              }
            }
          }
        }
      }
    }
  }
  all.push_back(mesh_of(8, 2, 16, 16, 2, 8));
  all.push_back(mesh_of(4, 1, 64, 16, 1, 64, "tp-pp-ep-dp-cp"));
  return all;
}

}  // namespace

TEST_CASE("groups equal nested loops for many meshes and orders", "[groups]") {
  int compared = 0;
  const std::vector<Mesh> all = meshes();
  // 13 divides no length of the loops that made them, so that each of their values comes by.
  const auto step = static_cast<std::size_t>(stride(13));
  for (std::size_t i = all.size(); i-- > 0;) {
    if ((all.size() - 1 - i) % step != 0) continue;
    const Mesh& mesh = all[i];
    const BruteForce brute{mesh};
    for (const std::string_view kind : group_kinds()) {
      if (kind.find("embedding") != std::string_view::npos) continue;
      const RankLists groups = list_groups(mesh, kind);
      if (groups != brute.list(std::string(kind))) {
        FAIL("kind " << kind << " of world " << mesh.world_size());
      }
      ++compared;
    }
  }
  CHECK(compared > tries(200, 3000));
}

TEST_CASE("the groups of a rank are those that hold it", "[groups]") {
  for (const char* order : orders) {
    const Mesh mesh = mesh_of(2, 3, 4, 2, 1, 6, order);
    for (const std::string_view kind : group_kinds()) {
      const RankLists all = list_groups(mesh, kind);
      for (int rank = 0; rank < mesh.world_size(); ++rank) {
        RankLists holding;
        for (const auto& group : all) {
          if (std::find(group.begin(), group.end(), rank) != group.end()) holding.push_back(group);
        }
        REQUIRE(groups_with(mesh, kind, rank) == holding);
      }
      REQUIRE(group_size(mesh, group_kind(kind)) == std::ssize(all.front()));
    }
  }
}

TEST_CASE("Megatron's default order by hand", "[groups]") {
  const Mesh mesh = mesh_of(2, 1, 4, 2, 1, 4);  // 16 ranks
  CHECK(list_groups(mesh, "tp")[3] == std::vector<int>{6, 7});
  CHECK(list_groups(mesh, "dp")[1] == std::vector<int>{1, 3, 5, 7});
  CHECK(list_groups(mesh, "pp")[5] == std::vector<int>{5, 13});
  CHECK(list_groups(mesh, "tp-pp")[1] == std::vector<int>{2, 3, 10, 11});
  CHECK(list_groups(mesh, "expert:ep")[1] == std::vector<int>{4, 5, 6, 7});
  CHECK(list_groups(mesh, "expert:dp")[0] == std::vector<int>{0, 4});
  CHECK(list_groups(mesh, "expert:tp").size() == 16);
}

TEST_CASE("embedding groups are the ends of the pipelines", "[groups]") {
  const Mesh mesh = mesh_of(2, 1, 1, 4);
  CHECK(list_groups(mesh, "embedding") == RankLists{{0, 6}, {1, 7}});
  CHECK(list_groups(mesh, "position_embedding") == RankLists{{0}, {1}});
  CHECK(groups_with(mesh, "embedding", 7) == RankLists{{1, 7}});
  CHECK(groups_with(mesh, "embedding", 2).empty());
  CHECK(list_groups(mesh_of(2, 1, 1, 1), "embedding") == RankLists{{0}, {1}});
}

TEST_CASE("levels of the context-parallel groups", "[groups]") {
  const Mesh mesh = mesh_of(1, 8, 1, 1);
  const auto levels = hierarchical_groups(mesh, {2, 4});
  REQUIRE(levels.size() == 2);
  CHECK(levels[0] == RankLists{{0, 1}, {2, 3}, {4, 5}, {6, 7}});
  CHECK(levels[1] == RankLists{{0, 2, 4, 6}, {1, 3, 5, 7}});
  const auto strided = hierarchical_groups(mesh_of(2, 4, 1, 1), {2, 2});
  CHECK(strided[0] == RankLists{{0, 2}, {4, 6}, {1, 3}, {5, 7}});
  CHECK(strided[1] == RankLists{{0, 4}, {2, 6}, {1, 5}, {3, 7}});
  const auto three = hierarchical_groups(mesh, {2, 2, 2});
  CHECK(three[1] == RankLists{{0, 2}, {1, 3}, {4, 6}, {5, 7}});
  CHECK_THROWS_AS(hierarchical_groups(mesh, {2, 2}), Error);
}

TEST_CASE("kinds and ranks that are none are refused", "[groups]") {
  CHECK_THROWS_AS(list_groups(Mesh{}, "ep"), Error);
  CHECK_THROWS_AS(groups_with(Mesh{}, "tp", 1), Error);
}

TEST_CASE("16,384 ranks, every kind", "[groups]") {
  const Mesh mesh = mesh_of(8, 2, 64, 16, 1, 64);
  for (const std::string_view kind : group_kinds()) {
    std::size_t members = 0;
    for (const auto& group : list_groups(mesh, kind)) members += group.size();
    const bool ends = kind.find("embedding") != std::string_view::npos;
    CHECK(members == (!ends ? 16384U : kind == "embedding" ? 2048U : 1024U));
  }
}
