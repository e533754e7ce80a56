// Mistakes in what ranks exchange: collectives of the layers, sums of gradients, messages between
// stages, the statistics of the loss. Each must be caught, and named where it is.

#include "catch.h"
#include "sample_faults.h"
#include "sample_verify.h"

using namespace trainctl;

namespace {

using enum GroupOperation;

void add_one(const Tensor& values) {
  for (std::int64_t i = 0; i < values.numel(); ++i) values.as<float>()[i] += 1;
}

/// Without sequence parallelism a step has, over tp: the sum of the embedding, then of attention
/// and MLP of each of four layers; backwards that of the head, then of MLP and attention.
std::vector<FaultRow> invariant_faults() {
  const FaultAction skip = left_out();
  const FaultAction twice = made_twice();
  Options bf16 = small_gpt;
  bf16.push_back("precision.compute=bf16");
  return {
      {"partial to invariant skipped", small_gpt, "tp2", on_all(2, layers_tp(all_reduce, 4, skip)),
       "activation", "layers.1"},
      {"partial to invariant twice", small_gpt, "tp2", on_all(2, layers_tp(all_reduce, 5, twice)),
       "activation", "layers.1"},
      {"the sum of the embedding skipped", small_gpt, "tp2",
       on_all(2, layers_tp(all_reduce, 1, skip)), "activation", "embedding"},
      {"the sum of an MLP skipped, a step later", small_gpt, "tp2",
       on_all(2, layers_tp(all_reduce, 25, skip)), "activation", "layers.2", -1, 2},
      {"the sum of an MLP skipped in 16 bits", bf16, "tp2",
       on_all(2, layers_tp(all_reduce, 7, skip)), "activation", "layers.2"},
      {"backward of invariant to replicated skipped: MLP", small_gpt, "tp2",
       on_all(2, layers_tp(all_reduce, 13, skip)), "gradient", "layers.2.norm2"},
      {"backward of invariant to replicated twice: attention", small_gpt, "tp2",
       on_all(2, layers_tp(all_reduce, 14, twice)), "gradient", "layers.2.norm1"},
      {"one rank adds nothing", small_gpt, "tp2",
       on_one({1, "layers tp", all_reduce, 11, with_input(clear)}), "gradient", "layers.3.norm2"},
      {"the head's gradient of its input not summed", small_gpt, "tp2",
       on_all(2, layers_tp(all_reduce, 10, skip)), "gradient", "final_norm"},
      {"a step later", small_gpt, "tp2", on_all(2, layers_tp(all_reduce, 33, skip)), "gradient",
       "layers.1.norm2", -1, 2},
  };
}

/// With it the sums are reduce-scatters, each with a gather on the other side of the product.
std::vector<FaultRow> sequence_faults() {
  const FaultAction skip = left_out();
  const FaultAction swapped = with_output(swap_halves);
  return {
      {"partial to tokens skipped", small_gpt, "tp2sp",
       on_all(2, layers_tp(reduce_scatter, 3, skip)), "activation", "layers.0"},
      {"partial to tokens: the other part", small_gpt, "tp2sp",
       on_one({1, "layers tp", reduce_scatter, 3, swapped}), "activation", "layers.0", 1},
      {"tokens to replicated: wrong order", small_gpt, "tp2sp",
       on_one({1, "layers tp", all_gather, 4, swapped}), "activation", "layers.1"},
      {"backward of partial to tokens skipped", small_gpt, "tp2sp",
       on_all(2, layers_tp(all_gather, 16, skip)), "gradient", "layers.2.mlp.down"},
      {"backward of tokens to replicated skipped", small_gpt, "tp2sp",
       on_all(2, layers_tp(reduce_scatter, 13, skip)), "gradient", "layers.2.norm2"},
      {"the input of a weight gradient gathered in the wrong order", small_gpt, "tp2sp",
       on_one({1, "layers tp", all_gather, 18, swapped}), "gradient", "layers.2.mlp.up", 1},
      {"the gradient of the embedding gathered in the wrong order", small_gpt, "tp2sp",
       on_one({0, "layers tp", all_gather, 28, swapped}), "gradient", "embedding.", 0},
  };
}

std::vector<FaultRow> loss_faults() {
  const FaultAction skip = left_out();
  return {
      {"another largest logit on one rank", small_gpt, "tp2",
       on_one({0, "layers tp", all_gather, 1, with_output(add_one)}), "loss", ""},
      {"the vocabulary's sums of another step", small_gpt, "tp2",
       on_all(2, layers_tp(all_gather, 4, skip)), "loss", "", -1, 2},
      {"one rank counts too few weights", small_gpt, "dp2",
       on_one({1, "scalars world", all_gather, 1,
               with_output([](const Tensor& all) { all.as<double>()[0] *= 0.5; })}),
       "scalar", "loss_factor", 1},
      {"one rank's loss left out of the mean", small_gpt, "dp2",
       on_one({0, "scalars world", all_gather, 3,
               with_output([](const Tensor& all) { all.as<double>()[2] = 0; })}),
       "loss", "", 0},
      {"the norm over one axis only", small_gpt, "tp2+pp2",
       on_one({2, "scalars world", all_gather, 2,
               with_output([](const Tensor& all) { all.as<double>()[0] = 0; })}),
       "grad norm", "", 2},
  };
}

std::vector<FaultRow> gradient_faults() {
  const FaultAction skip = left_out();
  const auto sum = [&](const char* over, int occurrence, const FaultAction& act) {
    return GroupFault{.group = over, .operation = all_reduce, .occurrence = occurrence, .act = act};
  };
  return {
      {"the replicas' sum skipped", small_gpt, "dp2", on_all(2, sum("gradients dp", 3, skip)),
       "gradient", "layers.3."},
      {"the replicas' sum twice", small_gpt, "dp2", on_all(2, sum("gradients dp", 1, made_twice())),
       "gradient", ""},
      {"norms not summed over tp", small_gpt, "tp2sp", on_all(2, sum("gradients tp", 1, skip)),
       "gradient", "final_norm"},
      {"q/k norms not summed over heads", small_llama, "tp2",
       on_all(2, sum("gradients tp", 1, skip)), "gradient", "layers.3.attention."},
      {"copies of keys and values not summed", small_llama, "tp4",
       on_all(4, sum("gradients kv", 1, skip)), "gradient", "layers.3.attention."},
      {"the tied embedding not summed", small_gpt, "pp2",
       on_all(2, sum("gradients embedding", 1, skip)), "gradient", "embedding.token.weight"},
      {"slices of a gradient not summed", small_gpt, "tp2+dp2+zero1",
       on_all(4,
              {.group = "gradients dp", .operation = reduce_scatter, .occurrence = 2, .act = skip}),
       "gradient", ""},
  };
}

/// An output that goes wrong on its way is named by the unit that gave it and the rank it came to.
std::vector<FaultRow> message_faults() {
  return {
      {"an output that is damaged on its way", small_gpt, "pp2+m2",
       on_one({0, "messages pp", send, 1, with_input(swap_halves)}), "activation", "layers.1", 1},
      {"a received output that is overwritten", small_gpt, "pp2+m2",
       on_one({1, "messages pp", receive, 2, with_output(clear)}), "activation", "layers.1", 1},
      {"a message whose receive was posted ahead", small_gpt, "pp2+gpipe+overlapped+deallocated+m4",
       on_one({1, "messages pp", receive, 3, with_output(clear)}), "activation", "layers.1", 1},
      {"a received output that is overwritten before it is cast", small_gpt, "pp2+send_bf16+m2",
       on_one({1, "messages pp", receive, 2, with_output(clear)}), "activation", "layers.1", 1},
      {"a gradient that is lost before it is cast", small_gpt, "pp2+send_bf16+m2",
       on_one({0, "messages pp", receive, 1, with_output(clear)}), "gradient", "layers.1.", 0},
      {"a gradient that is lost on its way", small_gpt, "pp2+m2",
       on_one({0, "messages pp", receive, 1, with_output(clear)}), "gradient", "layers.1.", 0},
      {"a gradient of other tokens", small_gpt, "pp2+gpipe+m2",
       on_one({1, "messages pp", send, 2, with_input(swap_halves)}), "gradient", "layers.1.", 0},
  };
}

}  // namespace

TEST_CASE("mistakes in collectives of layers are named") { check_faults(invariant_faults()); }

TEST_CASE("mistakes in collectives of sequence parallelism are named") {
  check_faults(sequence_faults());
}

TEST_CASE("mistakes in the loss and the norm are caught and named") { check_faults(loss_faults()); }

TEST_CASE("gradients that are not summed are named") { check_faults(gradient_faults()); }

TEST_CASE("mistakes in messages between stages are named") { check_faults(message_faults()); }
