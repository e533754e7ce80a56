// Muon on emulated devices: from equal gradients the same bits on one and on several.
#include "../engine/equal_gradients.h"
#include "catch.h"

using namespace trainctl;

namespace {

using Options = std::vector<std::string>;

struct MuonRanks {
  int ranks;
  Options options;
};

const Options small_too{"parallel.parallel_optimizer.enable=true",
                        "parallel.parallel_optimizer.threshold=0"};

}  // namespace

TEST_CASE("from equal gradients muon makes the same bits on one device and on several") {
  const Options muon{"optimizer.type=muon", "optimizer.weight_decay=0.1", "lr_schedule.max_lr=0.01",
                     "parallel.device=cuda"};
  const Options models[] = {
      {},
      {"model.family=llama", "model.num_query_groups=2", "optimizer.muon.items=[gate_up, heads]",
       "optimizer.muon.ns_dtype=bf16"}};
  const MuonRanks layouts[] = {
      {2, {}},
      {2, {"parallel.tensor_parallel=2", "parallel.sequence_parallel=true"}},
      {2, {"parallel.pipeline_stages=2", "train.micro_batch_size=2"}},
      {4, with(small_too, {"parallel.tensor_parallel=2"})}};
  for (const Options& model : models) {
    const Options options = with(muon, model);
    const Tensors alone = after_equal_steps({.options = options});
    for (const MuonRanks& layout : layouts) {
      CAPTURE(model, layout.options);
      // Other products than Muon's leave a multiprocessor to collectives.
      const Tensors found = after_equal_steps(
          {.options = with(with(options, layout.options), {"parallel.product_sm_margin=1"}),
           .ranks = layout.ranks});
      CHECK(found.size() == alone.size());
      CHECK(different_bits(found, alone).empty());
    }
  }
}
