// Copies that drift apart are found in every group of ranks that should hold the same values.
#include "engine/parameters/param_store.h"

#include <mutex>

#include "base/error.h"
#include "catch.h"
#include "sample_run.h"

using namespace trainctl;

namespace {

using Options = std::vector<std::string>;

struct Drift {
  std::string name;
  Options layout;
  int ranks = 2;
  int rank = 0;           // whose copy drifts
  std::string parameter;  // of it
  std::string found;      // in the message
};

/// The message of the check after one element of one rank's copy was changed.
std::string found_after(const Drift& drift) {
  SampleRun run{.set_options = drift.layout, .ranks = drift.ranks, .steps = 2, .world = {}};
  run.inspect = [&](Engine& engine, const Plan&, World& world) {
    engine.check_replicas();  // equal so far
    ParamStore& store = engine.parameters();
    if (world.rank() == drift.rank) {
      store.master(store.index_of(drift.parameter)).as<float>()[1] += 1e-6F;
    }
    engine.check_replicas();
  };
  try {
    train_sample(run);
  } catch (const Error& error) {
    CHECK(error.code() == ExitCode::peer);
    return error.what();
  }
  return "";
}

const std::string tp2 = "parallel.tensor_parallel=2";
const std::string tp4 = "parallel.tensor_parallel=4";
const std::string pp2 = "parallel.pipeline_stages=2";
const std::string sp = "parallel.sequence_parallel=true";
const std::string vocab_dp = "parallel.vocab_emb_dp=true";

}  // namespace

TEST_CASE("a copy that drifts is named with its ranks, in every kind of group", "[threads]") {
  const std::vector<Drift> drifts{
      {"replicas",
       {},
       2,
       1,
       "layers.1.mlp.up.weight",
       "rank(s) 1 do not hold the values of rank 0"},
      {"the first replica",
       {},
       4,
       0,
       "final_norm.bias",
       "rank(s) 1, 2, 3 do not hold the values of rank 0"},
      {"a norm under tensor parallelism",
       {tp2},
       2,
       1,
       "layers.0.norm1.weight",
       "rank(s) 1 do not hold the values of rank 0"},
      {"with sequence parallelism",
       {tp2, sp},
       4,
       3,
       "layers.1.norm2.bias",
       "rank(s) 3 do not hold the values of rank 0"},
      {"a bias that no tensor rank cuts",
       {tp2},
       2,
       1,
       "layers.0.mlp.down.bias",
       "rank(s) 1 do not hold the values of rank 0"},
      {"a shard",
       {tp2},
       4,
       3,
       "layers.0.mlp.up.weight",
       "rank(s) 3 do not hold the values of rank 1"},
      {"an embedding that no tensor rank cuts",
       {tp2, vocab_dp},
       2,
       1,
       "embedding.token.weight",
       "rank(s) 1 do not hold the values of rank 0"},
      {"key heads shared by tensor ranks",
       {tp4, "model.family=llama", "model.num_query_groups=2"},
       4,
       3,
       "layers.0.attention.k.weight",
       "rank(s) 3 do not hold the values of rank 2"},
      {"the second home of a tied embedding",
       {pp2},
       2,
       1,
       "embedding.token.weight",
       "rank(s) 1 do not hold the values of rank 0"},
      {"the same, cut over tensor ranks",
       {pp2, tp2},
       4,
       3,
       "embedding.token.weight",
       "rank(s) 3 do not hold the values of rank 1"},
      {"stages with replicas",
       {pp2},
       4,
       3,
       "layers.1.mlp.up.weight",
       "rank(s) 3 do not hold the values of rank 2"},
      {"the parallel optimizer",
       {"parallel.parallel_optimizer=true", "parallel.parallel_optimizer.threshold=0", tp2},
       4,
       2,
       "layers.0.norm1.weight",
       "rank(s) 2 do not hold the values of rank 0"},
  };
  for (const Drift& drift : drifts) {
    INFO(drift.name);
    const std::string found = found_after(drift);
    INFO(found);
    CHECK(found.find("after step 2 the replicas of " + drift.parameter + " differ") == 0);
    CHECK(found.find(drift.found) != std::string::npos);
  }
}
