// The products of a block, counted by hand.
#include "catch.h"
#include "plan/model/block.h"
#include "sample.h"

using namespace trainctl;

namespace {

constexpr double all_tokens = 128;
constexpr double hidden = 256;

/// One dense layer, then one of four experts of width 128 with a gated shared one of 64: two heads
/// of 128, one of keys, sequences of 64.
ModelShape mixed_model() {
  Config config = small_config();
  config.model.family = "llama";
  config.model.num_layers = 2;
  config.model.hidden_size = 256;
  config.model.ffn_hidden_size = 1024;
  config.model.num_attention_heads = 2;
  config.model.num_query_groups = 1;
  config.model.seq_length = 64;
  config.moe.num_experts = 4;
  config.moe.router_topk = 2;
  config.moe.ffn_hidden_size = 128;
  config.moe.shared_expert_intermediate_size = 64;
  config.moe.shared_expert_gate = true;
  config.moe.first_dense_layers = 1;
  return model_shape(config.model, config.moe);
}

struct PartWork {
  double flops = 0;
  double elements = 0;
};

/// The products of `layer` on a rank that has all of it: those of one part, or those that are never
/// recomputed.
PartWork products_work(std::int64_t layer, std::optional<BlockPart> part) {
  const LayerForm form = layer_form(mixed_model(), layer);
  const auto all = static_cast<std::int64_t>(all_tokens);
  PartWork work;
  for (const Product& one : block_products(form, whole_shape(form, all))) {
    if (one.part != part) continue;
    work.flops += one.flops();
    work.elements += one.elements();
  }
  return work;
}

}  // namespace

TEST_CASE("a block has the products of its own kind of layer", "[products]") {
  for (const std::int64_t layer : {0, 1}) {
    CHECK(products_work(layer, BlockPart::norm1).elements == all_tokens * hidden);
    CHECK(products_work(layer, BlockPart::qkv).flops == 2 * all_tokens * hidden * (256 + 2 * 128));
    CHECK(products_work(layer, BlockPart::attention).flops == 4 * all_tokens * 256 * (64 + 1) / 2);
    CHECK(products_work(layer, BlockPart::projection).flops == 2 * all_tokens * 256 * hidden);
  }
  CHECK(products_work(0, BlockPart::mlp).flops == 2 * 2 * all_tokens * hidden * 1024);
  CHECK(products_work(0, BlockPart::mlp).elements == 2 * all_tokens * 1024);
  CHECK(products_work(0, BlockPart::activation).elements == all_tokens * 1024);
  CHECK(products_work(0, std::nullopt).flops == 2 * all_tokens * hidden * 1024);
  // Each token twice through experts, once through the shared ones.
  const double widths = 2 * 128 + 64;
  CHECK(products_work(1, BlockPart::mlp).flops == 2 * 2 * all_tokens * hidden * widths);
  CHECK(products_work(1, BlockPart::mlp).elements ==
        2 * all_tokens * hidden + 2 * all_tokens * widths);
  CHECK(products_work(1, BlockPart::activation).elements == all_tokens * widths);
  // The last products, the router's and the gate's.
  CHECK(products_work(1, std::nullopt).flops == 2 * all_tokens * hidden * (widths + 4 + 1));
}
