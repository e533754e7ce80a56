// Every element of every parameter is updated by the number of ranks that the plan says, and its
// gradient is complete where it is updated, whatever the rule and the order of ranks.
#include "plan/ownership/ownership.h"

#include <algorithm>
#include <map>
#include <set>

#include "catch.h"
#include "sample.h"
#include "thorough.h"

using namespace trainctl;

namespace {

struct Case {
  std::string name;
  std::int64_t ranks = 4;
  Config config;
};

Config sharded(std::int64_t tp = 1, std::int64_t shard_size = -1) {
  Config config = small_config();
  config.train.global_batch_size = 24;
  config.parallel.parallel_mode = ParallelMode::hybrid_parallel;
  config.parallel.tensor_parallel = tp;
  config.parallel.parallel_optimizer.enable = true;
  config.parallel.parallel_optimizer.threshold = 0;
  config.parallel.parallel_optimizer.weight_shard_size = shard_size;
  return config;
}

std::vector<Case> cases() {
  std::vector<Case> all;
  const auto add = [&](const std::string& name, std::int64_t ranks, const Config& config) {
    all.push_back({name, ranks, config});
  };
  for (const std::int64_t size : {-1, 2, 4}) {
    for (const std::int64_t tp : {1, 2, 4}) {
      add("rows", 8, sharded(tp, size));
      if (size != 2 && !thorough()) continue;
      Config reordered = sharded(tp, size);
      reordered.parallel.rank_order = "dp-tp-cp-ep-pp";
      add("rows, dp first", 8, reordered);
      Config dp = sharded(tp, size);
      dp.parallel.vocab_emb_dp = true;
      add("rows, whole vocabulary", 8, dp);
    }
  }
  Config copies = sharded(4, 2);
  copies.model.family = "llama";
  copies.model.num_query_groups = 2;
  add("rows with copies of keys", 8, copies);
  add("rows with slices that do not lie even", 12, sharded(2, 3));
  Config stages = sharded(2);
  stages.parallel.pipeline_stages = 2;
  add("rows of stages", 8, stages);
  Config slices = sharded(2);
  slices.parallel.bucket_rule = BucketRule::megatron;
  add("slices", 8, slices);
  slices.parallel.pipeline_stages = 2;
  add("slices of stages", 8, slices);
  Config dealt = sharded();
  dealt.parallel.parallel_mode = ParallelMode::data_parallel;
  add("dealt", 4, dealt);
  add("plain", 4, small_config());
  return all;
}

/// Per parameter of a stage and element, over the ranks that hold the same shard of it.
using Counts = std::vector<std::int64_t>;

bool has(const std::vector<int>& ranks, int rank) {
  return std::binary_search(ranks.begin(), ranks.end(), rank);
}

}  // namespace

TEST_CASE("each element is counted once and updated where its sum is", "[ownership]") {
  for (const Case& one : cases()) {
    const Plan plan = plan_of(one.config, one.ranks);
    CAPTURE(one.name, one.ranks, one.config.parallel.tensor_parallel,
            one.config.parallel.parallel_optimizer.weight_shard_size);
    std::map<std::string, Counts> counted;  // by name and shard
    std::map<std::string, Counts> updated;
    std::map<std::string, std::int64_t> updates;
    for (int rank = 0; rank < one.ranks; ++rank) {
      const StagePlan& stage = plan.stage_of(rank);
      const OwnershipTable table = make_ownership(plan, rank);
      REQUIRE(table.parameters.size() == stage.parameters.size());
      for (std::size_t i = 0; i < stage.parameters.size(); ++i) {
        const ParamSpec& row = stage.parameters[i];
        const Ownership& own = table.parameters[i];
        const auto tp = static_cast<std::size_t>(Axis::tp);
        const std::int64_t shard =
            row.split_dim[tp] < 0 ? 0 : plan.mesh.coordinate(rank, Axis::tp) / row.tp_copies;
        const std::string key = row.name + (row.second_home ? "'" : "") + std::to_string(shard);
        Counts& count = counted[key];
        Counts& update = updated[key];
        count.resize(static_cast<std::size_t>(row.shape.numel()));
        update.resize(count.size());
        const OptimizerShard& cut = stage.shards[i];
        const std::int64_t replicas = replicas_of(row, plan.mesh);
        updates[key] = cut.kind == ShardKind::dealt   ? 1
                       : cut.kind == ShardKind::whole ? replicas
                                                      : replicas / cut.ranks;
        if (own.owned.begin == own.owned.end) continue;
        CHECK(own.summed.begin <= own.owned.begin);
        CHECK(own.owned.end <= own.summed.end);
        CHECK(own.state >= 0);
        CHECK(own.state + own.owned.end - own.owned.begin <= table.state_length);
        for (auto at = static_cast<std::size_t>(own.owned.begin);
             at < static_cast<std::size_t>(own.owned.end); ++at) {
          count[at] += own.counts ? 1 : 0;
          ++update[at];
        }
      }
    }
    for (const auto& [key, count] : counted) {
      CAPTURE(key);
      const bool second = key.find('\'') != std::string::npos;
      const std::int64_t times = second ? 0 : 1;
      CHECK(std::count(count.begin(), count.end(), times) == std::ssize(count));
      const Counts& update = updated[key];
      CHECK(std::count(update.begin(), update.end(), updates[key]) == std::ssize(update));
    }
  }
}

TEST_CASE("the ranks together write each element of the model once", "[ownership]") {
  for (const Case& one : cases()) {
    const Plan plan = plan_of(one.config, one.ranks);
    CAPTURE(one.name, one.ranks, one.config.parallel.tensor_parallel);
    std::map<std::string, Counts> written;
    std::map<std::string, Shape> shapes;
    std::vector<std::int64_t> bytes;
    for (int rank = 0; rank < one.ranks; ++rank) {
      const StagePlan& stage = plan.stage_of(rank);
      for (const ParamSpec& row : stage.parameters) shapes[row.name] = saved_shape(row, plan.model);
      const OwnershipTable table = make_ownership(plan, rank);
      const std::vector<std::vector<Box>> parts = saved_parts(plan, table, rank);
      bytes.push_back(saved_bytes(parts, stage.parameters, one.config.optimizer));
      for (std::size_t number = 0; number < parts.size(); ++number) {
        const ParamSpec& row = stage.parameters[number];
        const Slice owned = table.parameters[number].owned;
        const Shape whole = saved_shape(row, plan.model);
        Counts& counts = written[row.name];
        counts.resize(static_cast<std::size_t>(whole.numel()));
        for (const Box& box : parts[number]) {
          const std::int64_t first = index_in(shard_box(row, plan.mesh, rank), box);
          CHECK(owned.begin <= first);
          CHECK(first + box.numel() <= owned.end);
          for (const BoxRun& run : runs_between(box, box, whole_box(whole))) {
            for (std::int64_t i = run.to; i < run.to + run.length; ++i) {
              ++counts[static_cast<std::size_t>(i)];
            }
          }
        }
      }
    }
    for (const auto& [name, shape] : shapes) {
      CAPTURE(name);
      const Counts& counts = written[name];
      CHECK(std::ssize(counts) == shape.numel());
      CHECK(std::count(counts.begin(), counts.end(), 1) == std::ssize(counts));
    }
    // Nobody writes much more than others, where whole parameters are not dealt out.
    if (one.config.parallel.pipeline_stages == 1 && one.name != "dealt") {
      const auto [least, most] = std::minmax_element(bytes.begin(), bytes.end());
      CHECK(static_cast<double>(*most) < 2.5 * static_cast<double>(*least));
    }
  }
}

TEST_CASE("the groups of a route give complete sums and whole parameters", "[ownership]") {
  for (const Case& one : cases()) {
    const Plan plan = plan_of(one.config, one.ranks);
    CAPTURE(one.name, one.config.parallel.tensor_parallel,
            one.config.parallel.parallel_optimizer.weight_shard_size);
    std::vector<OwnershipTable> tables;
    for (int rank = 0; rank < one.ranks; ++rank) tables.push_back(make_ownership(plan, rank));
    for (int rank = 0; rank < one.ranks; ++rank) {
      const auto& mine = tables[static_cast<std::size_t>(rank)];
      for (std::size_t i = 0; i < mine.parameters.size(); ++i) {
        const Ownership& own = mine.parameters[i];
        if (own.route < 0) continue;
        const ShardRoute& route = mine.routes[static_cast<std::size_t>(own.route)];
        std::set<int> summed;
        for (const int other : route.scatter) {
          const auto& theirs = tables[static_cast<std::size_t>(other)];
          const ShardRoute& same = theirs.routes[static_cast<std::size_t>(own.route)];
          REQUIRE(same.scatter == route.scatter);
          CHECK(theirs.parameters[i].scattered.begin == own.scattered.begin);
          CHECK(theirs.parameters[i].scattered.end == own.scattered.end);
        }
        for (const int other : route.mirror) {
          const auto& theirs = tables[static_cast<std::size_t>(other)];
          const ShardRoute& same = theirs.routes[static_cast<std::size_t>(own.route)];
          REQUIRE(same.mirror == route.mirror);
          CHECK(theirs.parameters[i].summed.begin == own.summed.begin);
          CHECK(theirs.parameters[i].summed.end == own.summed.end);
          summed.insert(same.scatter.begin(), same.scatter.end());
        }
        // Every rank with other data is in the sum exactly once.
        CHECK(std::ssize(summed) == plan.mesh.dp);
        CHECK(std::ssize(route.scatter) * std::ssize(route.mirror) == plan.mesh.dp);
        std::int64_t end = 0;
        for (const int other : route.gather) {
          const Ownership& part = tables[static_cast<std::size_t>(other)].parameters[i];
          CHECK(part.owned.begin == end);
          end = part.owned.end;
        }
        CHECK(end == plan.stage_of(rank).parameters[i].shape.numel());
        CHECK(has(route.gather, rank));
      }
    }
  }
}

TEST_CASE("shard groups are neighbours, mirror groups lie across", "[ownership]") {
  using Ranks = std::vector<int>;
  const auto route = [](const Config& config, int rank) {
    return make_ownership(plan_of(config, 8), rank).routes.front();
  };
  const ShardRoute five = route(sharded(1, 2), 5);
  CHECK(five.gather == Ranks{4, 5});
  CHECK(five.scatter == Ranks{4, 5});
  CHECK(five.mirror == Ranks{1, 3, 5, 7});
  CHECK(name_of(five.scatter_kind) == "dp shard");
  CHECK(name_of(five.mirror_kind) == "dp mirror");
  CHECK(five.slice == 1);
  const ShardRoute all = route(sharded(), 5);
  CHECK(all.gather.size() == 8);
  CHECK(all.mirror == Ranks{5});
  CHECK(name_of(all.scatter_kind) == "dp");
  // The embedding is the first with a route: whole over tensor ranks, which then share it.
  Config whole = sharded(2, 2);
  whole.parallel.vocab_emb_dp = true;
  const ShardRoute pair = route(whole, 5);
  CHECK(pair.gather == Ranks{4, 5});
  CHECK(pair.scatter == Ranks{5});
  CHECK(pair.mirror == Ranks{1, 3, 5, 7});
  CHECK(name_of(pair.gather_kind) == "tp-dp shard");
}

TEST_CASE("state of slices keeps the padding, so that all ranks hold as much", "[ownership]") {
  Config config = sharded(2);
  config.parallel.bucket_rule = BucketRule::megatron;
  const Plan plan = plan_of(config, 8);
  for (int rank = 0; rank < 8; ++rank) {
    CHECK(make_ownership(plan, rank).state_length == plan.stages[0].flat.length / 4);
    CHECK(make_ownership(plan, rank).state_length * 8 == plan.stages[0].memory.optimizer);
  }
}

TEST_CASE("many ranks cost no time", "[ownership]") {
  const Plan plan = plan_of(llama3_8b());
  Plan large = plan;
  large.mesh.dp = 2048;
  for (OptimizerShard& shard : large.stages[0].shards) {
    shard.kind = ShardKind::rows;
    shard.ranks = 2048;
  }
  CHECK(make_ownership(large, 77).routes.size() == 1);
}
