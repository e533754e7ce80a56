// Unknown, missing and not yet built keys.
#include "catch.h"
#include "config/upcoming.h"
#include "config_text.h"

namespace trainctl::test {

TEST_CASE("an unknown key has its place and a suggestion") {
  const Diagnostic diagnostic = only(read(good_text + "log:\n  evry: 5\n"));
  CHECK(diagnostic.code == "unknown-key");
  CHECK(diagnostic.path == "log.evry");
  CHECK(diagnostic.message == "log has no key \"evry\"");
  CHECK(diagnostic.help == "did you mean every?");
  CHECK(diagnostic.place.to_string() == "t.yaml:6:3");
  CHECK(diagnostic.place.end_column == 7);
}

TEST_CASE("a key in the wrong section is sent to the right one") {
  CHECK(only(read(good_text + "steps: 5\n")).help == "did you mean train.steps?");
  CHECK(only(read(good_text + "log: {warmup_steps: 5}\n")).help ==
        "did you mean lr_schedule.warmup_steps?");
  CHECK(only(read(good_text + "train.seed: 5\n")).help == "write seed inside train");
  CHECK(only(read(good_text + "optimiser: {}\n")).help == "did you mean optimizer?");
  CHECK(only(read(good_text + "zzz: {}\n")).help == "");
}

TEST_CASE("required keys are reported one by one") {
  const ReadResult result = read("train: {steps: 5}\nmodel:\n");
  CHECK(found(result) ==
        std::vector<std::string>{
            "missing-key data.train 0:0", "missing-key lr_schedule.max_lr 0:0",
            "missing-key train.global_batch_size 1:1", "missing-key model.num_layers 2:1",
            "missing-key model.hidden_size 2:1", "missing-key model.num_attention_heads 2:1",
            "missing-key model.seq_length 2:1", "missing-key model.vocab_size 2:1"});
  CHECK(result.complete);
  CHECK(contains(result.diagnostics.list()[3].help, "preset"));
}

TEST_CASE("a section that is no map does not miss its keys") {
  CHECK(found(read(good_model + good_data + good_lr + "train: 5\n")) ==
        std::vector<std::string>{"wrong-type train 4:8"});
  CHECK(found(read(good_model + good_data + good_lr + "train: [steps, 5]\n")) ==
        std::vector<std::string>{"wrong-type train 4:8"});
}

TEST_CASE("parallel modes: two are built") {
  const auto mode = [](const std::string& word) {
    return read(good_text + "parallel: {parallel_mode: " + word + "}\n");
  };
  CHECK(mode("stand_alone").config.parallel.parallel_mode == ParallelMode::stand_alone);
  CHECK(mode("data_parallel").config.parallel.parallel_mode == ParallelMode::data_parallel);
  for (const char* word : {"semi_auto_parallel", "auto_parallel", "hybrid_parallel"}) {
    CAPTURE(word);
    CHECK(found(mode(word)) == std::vector<std::string>{"not-built parallel.parallel_mode 5:27"});
    CHECK(only(mode(word)).message == "not built yet: " + std::string(word));
  }
  CHECK(only(mode("auto_paralel")).code == "bad-word");
}

TEST_CASE("keys of later features and of other frameworks are not built, rather than unknown") {
  for (const std::string& name : upcoming_names()) {
    CAPTURE(name);
    CHECK(only(read(good_text + "parallel: {" + name + ": 17}\n")).code == "not-built");
    CHECK(only(read(good_text + name + ": {a: 1}\n")).code == "not-built");
  }
  for (const char* name : {"tensor_parallel",
                           "pipeline_stages",
                           "context_parallel",
                           "expert_parallel",
                           "expert_tensor_parallel",
                           "virtual_pipeline_stages",
                           "sequence_parallel",
                           "comm_fusion",
                           "enable_parallel_optimizer",
                           "parallel_optimizer_config",
                           "strategy_ckpt_config",
                           "moe",
                           "recompute",
                           "checkpoint",
                           "parallel_config",
                           "recompute_config",
                           "moe_config",
                           "tensor_model_parallel_size",
                           "expert_num",
                           "model_parallel",
                           "dataset_strategy"}) {
    CAPTURE(name);
    CHECK(find_upcoming(name) != nullptr);
  }
}

TEST_CASE("a degree of one asks for nothing") {
  CHECK(found(read(good_text + "parallel: {tensor_parallel: 1, sequence_parallel: false}\n"))
            .empty());
  CHECK(only(read(good_text + "parallel: {tensor_parallel: 2}\n")).help ==
        "remove it, or set it to 1");
  CHECK(only(read(good_text + "parallel: {tensor_parallel: \"1\"}\n")).code == "not-built");
  CHECK(only(read(good_text + "parallel: {sequence_parallel: true}\n")).code == "not-built");
  CHECK(only(read(good_text + "tensor_parallel: 1\n")).code == "not-built");
  CHECK(only(read(good_text + "parallel: {tensor_paralel: 2}\n")).help ==
        "did you mean tensor_parallel (not built yet)?");
}

TEST_CASE("all mistakes of a file come in one run, in its order") {
  const ReadResult result = read(
      "model: {num_layers: x, hidden_size: 64, num_attention_heads: 4, seq_length: 32}\n"
      "data: {train: a.txt, tokenizer: word}\n"
      "train: {steps: 0, steps: 1, global_batch_size: 4}\n"
      "moe: {}\n"
      "lr_schedule: {max_lr: 1.0e-3, styl: cosine}\n");
  CHECK(found(result) ==
        std::vector<std::string>{"missing-key model.vocab_size 1:1",
                                 "wrong-type model.num_layers 1:21", "bad-word data.tokenizer 2:33",
                                 "out-of-range train.steps 3:16", "duplicate-key train.steps 3:19",
                                 "not-built moe 4:1", "unknown-key lr_schedule.styl 5:31"});
}

}  // namespace trainctl::test
