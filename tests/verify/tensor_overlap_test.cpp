// Overlap of products with collectives of tensor-parallel ranks, and weight gradients behind the
// message of their B: against a single rank, against the usual order, and with mistakes.
#include <chrono>
#include <thread>

#include "catch.h"
#include "sample_faults.h"
#include "sample_run.h"
#include "sample_verify.h"

using namespace trainctl;

namespace {

using enum GroupOperation;

const Options ranks2{"parallel.tensor_parallel=2", "parallel.sequence_parallel=true"};

Options overlap(const std::string& more = "") {
  return {"parallel.tp_comm_overlap={enable: true" + (more.empty() ? "" : ", " + more) + "}"};
}

std::vector<StepReport> reports(const Options& options) {
  return train_sample({.set_options = options, .ranks = 4, .steps = 4, .world = {}});
}

void check_same_bits(const std::vector<StepReport>& found,
                     const std::vector<StepReport>& expected) {
  REQUIRE(found.size() == expected.size());
  for (std::size_t i = 0; i < found.size(); ++i) {
    CHECK(found[i].loss == expected[i].loss);
    CHECK(found[i].grad_norm == expected[i].grad_norm);
  }
}

GroupFault in_layers(GroupOperation operation, int occurrence, const FaultAction& act) {
  return {.group = "layers tp", .operation = operation, .occurrence = occurrence, .act = act};
}

/// The rows of the last rank have what was there before.
void clear_last_half(const Tensor& values) {
  clear(values.slice(values.shape[0] / 2, values.shape[0]));
}

/// On each rank the first call is made after the second.
Faults made_late(int ranks, const GroupFault& first, const GroupFault& second) {
  std::vector<GroupFault> all;
  for (int rank = 0; rank < ranks; ++rank) {
    GroupFault one = first;
    GroupFault other = second;
    one.rank = other.rank = rank;
    for (GroupFault& fault : exchanged(one, other)) all.push_back(std::move(fault));
  }
  return {.world = [all](World& world) { return faulty_world(world, all); }};
}

}  // namespace

TEST_CASE("layouts whose collectives overlap products equal a single rank", "[threads]") {
  check_equal(small_gpt, {"tp2sp+tpoverlap", "tp2sp+tpoverlap_dgrad", "tp4sp+m2+tpoverlap",
                          "tp2sp+pp2+zb-h1+m4+tpoverlap", "tp2sp+pp2+m4+tpoverlap+delayw",
                          "tp2sp+cp2+a2a+tpoverlap"});
  check_equal(small_llama, {"tp2sp+dp2+zero2+tpoverlap", "tp2sp+recompute+tpoverlap",
                            "tp2sp+kept_sums+tpoverlap_dgrad", "tp2sp+cp2+p2p+tpoverlap",
                            "tp2sp+pp2+dp2+vp2+m2+tpoverlap_dgrad+delayw"});
}

TEST_CASE("they send what the plan says") {
  check_free(small_gpt, {"tp2sp+tpoverlap", "tp4sp+m2+recompute+tpoverlap_dgrad",
                         "tp2sp+pp2+m4+kept_sums+tpoverlap"});
  check_free(small_llama, {"tp2sp+dp2+selective+tpoverlap"});
}

TEST_CASE("they equal a single rank in 16 bits, with sums in fp32 too") {
  Options wide = with(small_gpt, in_bf16);
  wide.emplace_back("parallel.force_fp32_communication=true");
  check_equal(with(small_gpt, in_bf16), {"tp2sp+tpoverlap"});
  check_equal(wide, {"tp2sp+tpoverlap", "tp2sp+tpoverlap_dgrad"});
}

TEST_CASE("each overlap by itself keeps every bit") {
  const auto usual = reports(ranks2);
  const std::string none = "ag: false, rs: false, bulk_dgrad: false, bulk_wgrad: false";
  for (const std::string& more :
       {std::string(), std::string("rs_dgrad: true"), none, std::string("ag: false"),
        std::string("rs: false"), std::string("bulk_dgrad: false"),
        std::string("bulk_wgrad: false"), std::string("rs_dgrad: true, disable_qkv: true"),
        std::string("rs_dgrad: true, disable_fc1: true")}) {
    INFO(more);
    check_same_bits(reports(with(ranks2, overlap(more))), usual);
  }
}

TEST_CASE("late weight gradients keep every bit") {
  for (const Options& schedule :
       {Options{}, Options{"parallel.pipeline.scheduler=gpipe"},
        Options{"parallel.virtual_pipeline_stages=2", "parallel.pipeline.overlap_p2p_comm=true",
                "model.num_layers=4"}}) {
    const Options stages =
        with({"parallel.pipeline_stages=2", "train.micro_batch_size=1"}, schedule);
    check_same_bits(reports(with(stages, {"parallel.delay_wgrad_compute=true"})), reports(stages));
  }
}

/// A step has in F, over tp, the sum of the embedding, then for each of four layers those of
/// attention and MLP in four chunks each; gathers of inputs likewise, before them. In B the sums
/// come in one piece.
TEST_CASE("mistakes in chunks are named") {
  const FaultAction skip = left_out();
  check_faults({
      {"a chunk summed before its product is done", small_gpt, "tp2sp+tpoverlap",
       on_one({0, "layers tp", reduce_scatter, 4, with_input(clear_last_half)}), "activation",
       "layers.0", 1},
      {"a chunk in another's place", small_gpt, "tp2sp+tpoverlap",
       on_one({1, "layers tp", all_gather, 10, with_output(swap_halves)}), "activation",
       "layers.1"},
      {"a product of a chunk that has not come", small_gpt, "tp2sp+tpoverlap",
       made_late(2, in_layers(all_gather, 10, {}), in_layers(all_gather, 11, {})), "activation",
       "layers.1"},
      {"a chunk of an input's gradient left out", small_gpt, "tp2sp+tpoverlap_dgrad",
       on_all(2, in_layers(reduce_scatter, 36, skip)), "gradient", "layers.3.norm2"},
      {"the sum during weight gradients left out", small_gpt, "tp2sp+tpoverlap",
       on_all(2, in_layers(reduce_scatter, 37, skip)), "gradient", "layers.2.norm2"},
  });
}

TEST_CASE("who does not come to a chunk is named", "[threads]") {
  const auto sleep = [] { std::this_thread::sleep_for(std::chrono::seconds(2)); };
  const LayoutVerdict verdict = compare_sample(
      small_gpt, "tp2sp+tpoverlap", on_one({1, "layers tp", all_gather, 6, after(sleep)}), 0.5);
  INFO(told(verdict));
  CHECK_FALSE(verdict.equal);
  CHECK(verdict.failure.find("all_gather 'layers tp' waited 0.5 s for rank 1") !=
        std::string::npos);
}
