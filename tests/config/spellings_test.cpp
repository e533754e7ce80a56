// Several names for one key: which value counts, what is an error, what is only a warning.
#include "catch.h"
#include "config_text.h"

namespace trainctl::test {
namespace {

ReadResult parallel(const std::string& lines, const std::vector<std::string>& set = {}) {
  return read(good_text + "parallel:\n" + lines, set);
}

std::vector<std::string> no_messages() { return {}; }

}  // namespace

TEST_CASE("how context-parallel ranks share attention is a word, or one for each layer") {
  using enum CpCommType;
  const auto read_types = [](const std::string& text) {
    return parallel("  cp_comm_type: " + text + "\n").config.parallel.cp_comm_type.layers;
  };
  CHECK(read_types("a2a+p2p") == std::vector{a2a_p2p});
  CHECK(read_types("[p2p, a2a]") == std::vector{p2p, a2a});
  CHECK(read_types("[all_gather, a2a*2]") == std::vector{all_gather, a2a, a2a});
  CHECK(read_types("p2p*2, hybrid_cp") == std::vector{p2p, p2p, a2a_p2p});
  for (const char* text : {"[p2p, ring]", "ring", "p2p*0", "p2p*x", "[]", "{p2p: 1}"}) {
    INFO(text);
    const Diagnostic wrong = only(parallel(std::string("  cp_comm_type: ") + text + "\n"));
    CHECK(wrong.path == "parallel.cp_comm_type");
  }
}

TEST_CASE("two spellings with different values name both lines") {
  const Diagnostic wrong =
      only(parallel("  tensor_parallel: 2\n  micro_batch_num: 1\n  model_parallel: 4\n"));
  CHECK(wrong.code == "two-spellings");
  CHECK(wrong.path == "parallel.tensor_parallel");
  CHECK(wrong.message ==
        "model_parallel: 4 on line 8 contradicts tensor_parallel: 2 on line 6; both mean "
        "parallel.tensor_parallel");
  CHECK(wrong.help == "remove one of the two");
  CHECK(wrong.place.to_string() == "t.yaml:8:3");
}

TEST_CASE("the second is the one at fault, whichever name it has") {
  CHECK(only(parallel("  model_parallel: 4\n  tensor_parallel: 2\n")).message ==
        "tensor_parallel: 2 on line 7 contradicts model_parallel: 4 on line 6; both mean "
        "parallel.tensor_parallel");
  CHECK(found(parallel("  model_parallel: 4\n  tensor_model_parallel_size: 2\n"
                       "  tensor_parallel: 8\n")) ==
        std::vector<std::string>{"two-spellings parallel.tensor_parallel 7:3",
                                 "two-spellings parallel.tensor_parallel 8:3"});
}

TEST_CASE("two spellings with the same value are one value") {
  const ReadResult equal = parallel("  model_parallel: 0x4\n  tensor_parallel: 4\n");
  CHECK(found(equal) == no_messages());
  CHECK(equal.config.parallel.tensor_parallel == 4);
  CHECK(found(parallel("  bf16: true\n  params_dtype: torch.bfloat16\n")) == no_messages());
}

TEST_CASE("true and false among words have the spellings of YAML") {
  const auto graphs = [](const std::string& text) {
    return parallel("  cuda_graphs: " + text + "\n");
  };
  CHECK(graphs("True").config.parallel.cuda_graphs == GraphChoice("true"));
  CHECK(graphs("FALSE").config.parallel.cuda_graphs == GraphChoice("false"));
  CHECK(only(graphs("yes")).help == "write true");
  const Diagnostic quoted = only(graphs("\"true\""));
  CHECK(quoted.message == "must be auto, true or false, found the string \"true\"");
  CHECK(quoted.help == "write true without quotes");
  CHECK(only(parallel("  parallel_mode: '1'\n")).help == "write 1 without quotes");
}

TEST_CASE("the pairs of which upstream takes the last") {
  const auto refused = [](const std::string& lines) {
    const ReadResult result = parallel(lines);
    for (const Diagnostic& diagnostic : result.diagnostics.list()) {
      if (diagnostic.code == "two-spellings") return diagnostic.path;
    }
    return std::string();
  };
  CHECK(refused("  all_reduce_fusion_config: [3]\n"
                "  comm_fusion: {allreduce: {mode: index, config: [4]}}\n") ==
        "parallel.comm_fusion.allreduce.config");
  CHECK(refused("  all_reduce_fusion_config: [3]\n"
                "  comm_fusion: {allreduce: {mode: auto, config: [3]}}\n") ==
        "parallel.comm_fusion.allreduce.mode");
  CHECK(refused("  search_mode: recursive_programming\n"
                "  auto_parallel_search_mode: sharding_propagation\n") == "parallel.search_mode");
  CHECK(refused("  strategy_ckpt_load_file: a\n  strategy_ckpt_config: {load_file: b}\n") ==
        "parallel.strategy_ckpt_config.load_file");
  CHECK(refused("  strategy_ckpt_save_file: a\n  strategy_ckpt_config: {save_file: b}\n") ==
        "parallel.strategy_ckpt_config.save_file");
  CHECK(refused("  full_batch: true\n  dataset_strategy: [[2, 1]]\n") ==
        "parallel.dataset_strategy");
  CHECK(refused("  full_batch: false\n  dataset_strategy: full_batch\n") ==
        "parallel.dataset_strategy");
  CHECK(refused("  enable_parallel_optimizer: true\n  optimizer_shard: false\n") ==
        "parallel.parallel_optimizer.enable");
  CHECK(refused("  pipeline_stages: 2\n  pipeline_stage: 4\n") == "parallel.pipeline_stages");
  CHECK(refused("  fp16: true\n  bf16: true\n") == "precision.compute");
  CHECK(refused("  full_batch: false\n  dataset_strategy: [[2, 1]]\n") == "");
  CHECK(refused("  full_batch: true\n  dataset_strategy: full_batch\n") == "");
  CHECK(refused("  all_reduce_fusion_config: [3]\n"
                "  comm_fusion: {allreduce: {mode: index, config: [3]}}\n") == "");
}

TEST_CASE("splits win over full_batch: false") {
  const ReadResult result = parallel("  dataset_strategy: [[2, 1]]\n  full_batch: False\n");
  CHECK(result.config.parallel.dataset_strategy.splits == std::vector<IntList>{{2, 1}});
}

TEST_CASE("a section of ours and one of MindFormers are one section") {
  CHECK(found(read(good_text + "parallel: {tensor_parallel: 2}\n"
                               "parallel_config: {model_parallel: 4}\n")) ==
        std::vector<std::string>{"two-spellings parallel.tensor_parallel 6:19"});
  const ReadResult both = read(good_text +
                               "parallel: {pipeline_stages: 2}\n"
                               "parallel_config: {model_parallel: 4}\n");
  CHECK(found(both) == no_messages());
  CHECK(both.config.parallel.pipeline_stages == 2);
  CHECK(both.config.parallel.tensor_parallel == 4);
}

TEST_CASE("--set wins over the file in whatever spelling") {
  const auto size = [](const std::string& lines, const std::vector<std::string>& set) {
    const ReadResult result = parallel(lines, set);
    CHECK(found(result) == no_messages());
    return result.config.parallel.tensor_parallel;
  };
  CHECK(size("  tensor_parallel: 4\n", {"parallel.model_parallel=2"}) == 2);
  CHECK(size("  model_parallel: 4\n", {"parallel.tensor_parallel=2"}) == 2);
  CHECK(size("  model_parallel: 4\n", {"parallel_config.model_parallel=2"}) == 2);
  CHECK(size("  device_num: 4\n", {"parallel.tensor_model_parallel_size=2"}) == 2);
  CHECK(size("  device_num: 4\n", {"parallel.model_parallel=2", "parallel.tensor_parallel=8"}) ==
        8);
}

TEST_CASE("messages about an upstream spelling point at it and name it") {
  const ReadResult refused = parallel("  pipeline_config: {pipeline_scheduler: 2f2b}\n");
  const Diagnostic wrong = only(refused);
  CHECK(wrong.path == "parallel.pipeline.scheduler");
  CHECK(refused.diagnostics.written(wrong.path) == "parallel.pipeline_config.pipeline_scheduler");
  CHECK(wrong.message == "must be 1f1b, gpipe, zb-h1 or zb-v, found \"2f2b\"");
  CHECK(wrong.place.to_string() == "t.yaml:6:41");
  const ReadResult good = parallel("  model_parallel: 4\n");
  CHECK(good.sources.find("parallel.tensor_parallel").to_string() == "t.yaml:6:19");
}

TEST_CASE("deprecated keys are taken with a warning that names the replacement") {
  const Diagnostic old = only(parallel("  auto_parallel_search_mode: sharding_propagation\n"));
  CHECK(old.severity == Severity::warning);
  CHECK(old.code == "deprecated");
  CHECK(old.message == "auto_parallel_search_mode is deprecated");
  CHECK(old.help == "write search_mode");
  CHECK(old.place.to_string() == "t.yaml:6:3");
  for (const char* line :
       {"strategy_ckpt_load_file: a", "strategy_ckpt_save_file: a", "full_batch: true",
        "moe_extended_tp: false", "async_tensor_model_parallel_allreduce: true",
        "tp_comm_split_ag: true", "tp_comm_atomic_ag: false", "tp_comm_split_rs: true",
        "tp_comm_atomic_rs: false"}) {
    CAPTURE(line);
    CHECK(only(parallel("  " + std::string(line) + "\n")).code == "deprecated");
  }
}

TEST_CASE("a Python function cannot be given, and the message says what can") {
  const Diagnostic wrong = only(parallel("  no_sync_func: my_module.no_sync\n"));
  CHECK(wrong.path == "hooks.no_sync");
  CHECK(wrong.message == "no_sync_func is a Python function upstream; in YAML it must be null");
  CHECK(wrong.help == "YAML: hooks.no_sync last_microbatch or never.");
  CHECK(only(read(good_text + "offload: {context: true}\n")).message ==
        "trainctl sets this value itself; the configuration may only give null");
  CHECK(found(read(good_text + "offload: {context: null}\n")) == no_messages());
}

TEST_CASE("later upstream keys are not built, unless they ask for nothing") {
  const Diagnostic wrong = only(parallel("  seq_split_num: 4\n"));
  CHECK(wrong.code == "not-built");
  CHECK(wrong.message == "not built yet: seq_split_num");
  CHECK(wrong.help == "write parallel.context_parallel; the value 1 is accepted");
  CHECK(found(parallel("  seq_split_num: 1\n  auto_pipeline: False\n")) == no_messages());
  for (const char* line :
       {"optimizer_level: level1", "auto_pipeline: True", "mem_coeff: 4", "pipeline_segments: 4",
        "communi_parallel_mode: no_group_parallel", "dump_local_norm: true",
        "grad_accumulation_step: 4", "ulysses_degree_in_cp: 2"}) {
    CAPTURE(line);
    CHECK(only(parallel("  " + std::string(line) + "\n")).code == "not-built");
  }
  CHECK(only(read(good_text + "recompute_config: {recompute: true, select_recompute: true}\n"))
            .path == "recompute.select_recompute");
  CHECK(only(read(good_text + "moe_config: {shared_expert_num: 2}\n")).code == "not-built");
  CHECK(found(read(good_text + "moe_config: {router_dense_type: \"float32\"}\n")) == no_messages());
  CHECK(only(read(good_text + "moe_config: {router_dense_type: bfloat16}\n")).code == "not-built");
}

TEST_CASE("a section of ours whose name upstream has for a bool, in every section and form") {
  for (const char* section : {"parallel", "parallel_config"}) {
    CAPTURE(section);
    const auto given = [&](const std::string& value) {
      return read(good_text + section + ": {tp_comm_overlap: " + value + "}\n");
    };
    for (const char* nothing : {"null", "{}"}) {
      const ReadResult result = given(nothing);
      CHECK(found(result) == no_messages());
      CHECK_FALSE(result.config.parallel.tp_comm_overlap.enable);
    }
    CHECK(given("{enable: true}").config.parallel.tp_comm_overlap.enable);
    CHECK(given("true").config.parallel.tp_comm_overlap.enable);
    CHECK(only(given("{enabl: true}")).code == "unknown-key");
  }
}

TEST_CASE("sections of MindFormers' runner in a file of ours are not read, and said so") {
  for (const char* line :
       {"runner_config: {epochs: 2}", "train_dataset: {batch_size: 2}",
        "eval_dataset: {batch_size: 2}", "runner_wrapper: {use_clip_grad: true}"}) {
    CAPTURE(line);
    const Diagnostic one = only(read(good_text + line + "\n"));
    CHECK(one.code == "unknown-key");
    CHECK(one.severity == Severity::error);
    CHECK(!one.help.empty());
  }
  // A section that only --set gives makes no file ours.
  const std::string theirs = good_model + good_data + good_lr + "runner_config: {stop_step: 4}\n";
  CHECK(read(theirs, {"train.global_batch_size=4"}).config.train.steps == 4);
}

TEST_CASE("the rest of a MindFormers file is reported, one warning for each key") {
  const ReadResult result =
      read(good_text +
           "use_parallel: True\nseed: 0\ncontext: {mode: 0, device_target: Ascend}\n"
           "runner_config: {epochs: 2}\n");
  CHECK(found(result) == std::vector<std::string>{"not-carried context 7:1",
                                                  "not-carried runner_config.epochs 8:17"});
  CHECK(result.config.train.seed == 0);
  const Diagnostic& one = result.diagnostics.list()[1];
  CHECK(one.severity == Severity::warning);
  CHECK(one.message == "ignored: train.steps is given");
}

TEST_CASE("blocks of a MindFormers file for fine-tuning") {
  const ReadResult result = read(good_text + R"(parallel:
  parallel_mode: 1
  gradients_mean: False
  enable_alltoall: False
  full_batch: True
  search_mode: "sharding_propagation"
  enable_parallel_optimizer: True
  strategy_ckpt_save_file: "./ckpt_strategy.ckpt"
  parallel_optimizer_config:
    gradient_accumulation_shard: False
    parallel_optimizer_threshold: 64
parallel_config:
  data_parallel: 2
  model_parallel: 1
  pipeline_stage: 4
  use_seq_parallel: False
  micro_batch_num: 64
  vocab_emb_dp: False
  gradient_aggregation_group: 4
micro_batch_interleave_num: 1
recompute_config:
  recompute: [6, 3, 2, 3]
  select_recompute: False
  parallel_optimizer_comm_recompute: False
  mp_comm_recompute: True
  recompute_slice_activation: True
)");
  CHECK_FALSE(result.diagnostics.has_errors());
  const ParallelConfig& parallel = result.config.parallel;
  CHECK(parallel.parallel_mode == ParallelMode::semi_auto_parallel);
  CHECK(parallel.dataset_strategy.word == "full_batch");
  CHECK(parallel.parallel_optimizer.enable);
  CHECK_FALSE(parallel.parallel_optimizer.gradient_accumulation_shard);
  CHECK(parallel.data_parallel == 2);
  CHECK(parallel.pipeline_stages == 4);
  CHECK(parallel.vocab_emb_dp == false);
  CHECK(parallel.gradient_aggregation_group == 4);
  CHECK(result.config.train.micro_batch_num == 64);
  CHECK(result.config.recompute.layers_per_stage == IntList{6, 3, 2, 3});
  CHECK(result.config.recompute.enable);
  CHECK(result.config.recompute.slice_activation);
  for (const Diagnostic& diagnostic : result.diagnostics.list()) {
    CHECK((diagnostic.code == "deprecated" || diagnostic.code == "not-carried"));
  }
}

TEST_CASE("blocks of a MindFormers file for pretraining, with anchors") {
  const ReadResult result = read(good_text + R"(parallel_config:
  data_parallel: &dp 1
  model_parallel: 4
  pipeline_stage: 4
  micro_batch_num: 4
  gradient_aggregation_group: 1
parallel:
  parallel_mode: 1
  full_batch: False
  dataset_strategy: [[*dp, 1], [*dp, 1], [*dp, 1], [*dp, 1], [*dp, 1, 1, 1]]
  enable_alltoall: True
  enable_parallel_optimizer: False
  strategy_ckpt_config: {save_file: "./ckpt_strategy.ckpt", only_trainable_params: False}
recompute_config:
  recompute: True
  parallel_optimizer_comm_recompute: True
moe_config:
  expert_num: 1
)");
  CHECK(found(result) == std::vector<std::string>{"deprecated parallel.dataset_strategy 13:3"});
  const ParallelConfig& parallel = result.config.parallel;
  CHECK(parallel.tensor_parallel == 4);
  CHECK(parallel.dataset_strategy.splits ==
        std::vector<IntList>{{1, 1}, {1, 1}, {1, 1}, {1, 1}, {1, 1, 1, 1}});
  CHECK_FALSE(parallel.strategy_ckpt_config.only_trainable_params);
  CHECK(result.config.recompute.parallel_optimizer_comm_recompute);
}

TEST_CASE("a map that aliases share is rewritten in one place only") {
  const ReadResult result =
      read(good_text + "parallel: &p {model_parallel: 2}\nparallel_config: *p\n");
  CHECK(found(result) == no_messages());
  CHECK(result.config.parallel.tensor_parallel == 2);
}

TEST_CASE("an upstream section of the wrong type") {
  CHECK(found(read(good_text + "parallel_config: 5\n")) ==
        std::vector<std::string>{"wrong-type parallel_config 5:18"});
  CHECK(found(read(good_text + "parallel_config:\nmoe_config: ~\n")) == no_messages());
  CHECK(found(read(good_text + "parallel: {pipeline_config: {scheduling: 1}}\n")) ==
        std::vector<std::string>{"unknown-key parallel.pipeline.scheduling 5:30"});
}

}  // namespace trainctl::test
