#include "plan/tables/mesh.h"

#include <set>

#include "catch.h"

using namespace trainctl;

namespace {

constexpr Axis dense_axes[] = {Axis::tp, Axis::cp, Axis::dp, Axis::pp};
constexpr Axis expert_axes[] = {Axis::etp, Axis::ep, Axis::edp, Axis::pp};

std::vector<int> ranks(std::initializer_list<int> list) { return list; }

/// Every rank is in exactly one group of the axis, and sees the same group as its members.
void check_partition(const Mesh& mesh, Axis axis) {
  std::set<std::vector<int>> groups;
  for (std::int64_t rank = 0; rank < mesh.world_size(); ++rank) {
    const std::vector<int> group = mesh.group(rank, axis);
    REQUIRE(static_cast<std::int64_t>(group.size()) == mesh.size(axis));
    REQUIRE(group[static_cast<std::size_t>(mesh.coordinate(rank, axis))] == rank);
    groups.insert(group);
  }
  std::set<int> seen;
  for (const auto& group : groups) seen.insert(group.begin(), group.end());
  CHECK(static_cast<std::int64_t>(groups.size()) == mesh.world_size() / mesh.size(axis));
  CHECK(static_cast<std::int64_t>(seen.size()) == mesh.world_size());
}

}  // namespace

TEST_CASE("groups of tp 2, dp 2, pp 2 by hand", "[mesh]") {
  const Mesh mesh{.tp = 2, .cp = 1, .dp = 2, .pp = 2, .etp = 1, .ep = 2, .edp = 2};
  CHECK(mesh.world_size() == 8);
  CHECK(mesh.group(5, Axis::tp) == ranks({4, 5}));
  CHECK(mesh.group(5, Axis::dp) == ranks({5, 7}));
  CHECK(mesh.group(5, Axis::pp) == ranks({1, 5}));
  CHECK(mesh.group(5, Axis::cp) == ranks({5}));
  CHECK(mesh.group(6, Axis::ep) == ranks({6, 7}));
  CHECK(mesh.group(6, Axis::edp) == ranks({4, 6}));
  CHECK(mesh.group(6, {Axis::tp, Axis::dp}) == ranks({4, 5, 6, 7}));
  CHECK(mesh.group(6, {Axis::pp, Axis::tp}) == ranks({2, 3, 6, 7}));
  CHECK(mesh.coordinate(6, Axis::tp) == 0);
  CHECK(mesh.coordinate(6, Axis::dp) == 1);
  CHECK(mesh.coordinate(6, Axis::pp) == 1);
}

TEST_CASE("both factorisations partition the world", "[mesh]") {
  for (std::int64_t tp : {1, 2, 3}) {
    for (std::int64_t cp : {1, 2}) {
      for (std::int64_t dp : {1, 4}) {
        for (std::int64_t pp : {1, 3}) {
          Mesh mesh{.tp = tp, .cp = cp, .dp = dp, .pp = pp, .etp = tp, .ep = dp, .edp = cp};
          for (Axis axis : dense_axes) check_partition(mesh, axis);
          for (Axis axis : expert_axes) check_partition(mesh, axis);
          for (std::int64_t rank = 0; rank < mesh.world_size(); ++rank) {
            std::int64_t dense = 0;
            std::int64_t expert = 0;
            for (Axis axis : dense_axes) dense += mesh.coordinate(rank, axis) * mesh.stride(axis);
            for (Axis axis : expert_axes) {
              const std::int64_t stride = axis == Axis::pp ? tp * cp * dp : mesh.stride(axis);
              expert += mesh.coordinate(rank, axis) * stride;
            }
            REQUIRE(dense == rank);
            REQUIRE(expert == rank);
          }
        }
      }
    }
  }
}

TEST_CASE("axes have their names", "[mesh]") {
  CHECK(name_of(Axis::tp) == "tp");
  CHECK(name_of(Axis::edp) == "edp");
}

TEST_CASE("rank orders", "[mesh]") {
  std::vector<Axis> appended;
  CHECK(parse_order("tp-cp-ep-dp-pp", appended) == usual_order);
  CHECK(appended.empty());
  const auto megatron = parse_order("TP-PP-dp", appended);
  REQUIRE(megatron.has_value());
  CHECK(*megatron == RankOrder{Axis::tp, Axis::pp, Axis::dp, Axis::ep, Axis::cp});
  CHECK(appended == std::vector<Axis>{Axis::ep, Axis::cp});
  for (const char* wrong : {"tp-tp", "tp-xp", "tp-", "-tp", "tp--dp", "tp dp", "etp"}) {
    INFO(wrong);
    CHECK_FALSE(parse_order(wrong, appended).has_value());
  }
}

TEST_CASE("the leftmost axis of the order has the smallest stride", "[mesh]") {
  std::vector<Axis> appended;
  Mesh mesh{.tp = 2, .cp = 1, .dp = 3, .pp = 4, .etp = 1, .ep = 2, .edp = 3};
  mesh.order = parse_order("tp-pp-dp-ep-cp", appended).value();
  CHECK(mesh.stride(Axis::pp) == 2);
  CHECK(mesh.stride(Axis::dp) == 8);
  CHECK(mesh.stride(Axis::edp) == 4);
  CHECK(mesh.stride(Axis::ep) == 12);
  CHECK(mesh.group(3, Axis::pp) == ranks({1, 3, 5, 7}));
  CHECK(mesh.group(3, Axis::dp) == ranks({3, 11, 19}));
}
