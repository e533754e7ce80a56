// Unknown and missing keys.
#include "catch.h"
#include "config_text.h"

namespace trainctl::test {

TEST_CASE("an unknown key has its place and a suggestion") {
  const Diagnostic diagnostic = only(read(good_text + "log:\n  evry: 5\n"));
  CHECK(diagnostic.code == "unknown-key");
  CHECK(diagnostic.path == "log.evry");
  CHECK(diagnostic.message == "unknown key \"evry\" in log");
  CHECK(diagnostic.help == "did you mean every?");
  CHECK(diagnostic.place.to_string() == "t.yaml:6:3");
  CHECK(diagnostic.place.end_column == 7);
}

TEST_CASE("a key in the wrong section is sent to the right one") {
  CHECK(only(read(good_text + "steps: 5\n")).help ==
        "did you mean train.steps or optimizer.muon.steps?");
  CHECK(only(read(good_text + "log: {warmup_steps: 5}\n")).help ==
        "did you mean lr_schedule.warmup_steps?");
  CHECK(only(read(good_text + "train.seed: 5\n")).help == "write seed inside train");
  CHECK(only(read(good_text + "optimiser: {}\n")).help == "did you mean optimizer?");
  CHECK(only(read(good_text + "zzz: {}\n")).help ==
        "remove it: the sections are in `trainctl schema --format markdown`");
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

TEST_CASE("an unknown key comes before a missing one") {
  const ReadResult result =
      read("model: {num_layer: 2, hidden_size: 64, num_attention_heads: 4, seq_length: 32}\n" +
           good_data + good_lr + "train: {step: 10, global_batch_size: 4}\n");
  CHECK(found(result) == std::vector<std::string>{"unknown-key model.num_layer 1:9",
                                                  "unknown-key train.step 4:9",
                                                  "missing-key model.vocab_size 1:1"});
}

TEST_CASE("a section of the wrong type does not miss its keys") {
  CHECK(found(read(good_model + good_data + good_lr + "train: 5\n")) ==
        std::vector<std::string>{"wrong-type train 4:8"});
  CHECK(found(read(good_model + good_data + good_lr + "train: [steps, 5]\n")) ==
        std::vector<std::string>{"wrong-type train 4:8"});
}

TEST_CASE("every parallel mode is a word") {
  for (const char* word :
       {"stand_alone", "data_parallel", "semi_auto_parallel", "auto_parallel", "hybrid_parallel"}) {
    CAPTURE(word);
    CHECK(found(read(good_text + "parallel: {parallel_mode: " + word + "}\n")).empty());
  }
  CHECK(only(read(good_text + "parallel: {parallel_mode: auto_paralel}\n")).code == "bad-word");
}

TEST_CASE("an upstream key outside its section is sent there") {
  CHECK(only(read(good_text + "tensor_model_parallel_size: 2\n")).help ==
        "write parallel.tensor_parallel: 2 (Megatron's tensor-model-parallel-size)");
  CHECK(only(read(good_text + "log: {expert_num: 2}\n")).help == "write expert_num inside moe");
  CHECK(only(read(good_text + "tensor_parallel: 1\n")).help ==
        "did you mean parallel.tensor_parallel?");
  CHECK(only(read(good_text + "parallel: {tensor_paralel: 2}\n")).help ==
        "did you mean tensor_parallel?");
  CHECK(only(read(good_text + "parallel: {tensor_model_paralel_size: 2}\n")).help ==
        "did you mean tensor_model_parallel_size?");
}

TEST_CASE("all errors of a file are reported in one run, in its order, missing keys last") {
  const ReadResult result = read(
      "model: {num_layers: x, hidden_size: 64, num_attention_heads: 4, seq_length: 32}\n"
      "data: {train: a.txt, tokenizer: word}\n"
      "train: {steps: 0, steps: 1, global_batch_size: 4}\n"
      "moe: {use_gmm: true}\n"
      "lr_schedule: {max_lr: 1.0e-3, styl: cosine}\n");
  CHECK(found(result) ==
        std::vector<std::string>{"wrong-type model.num_layers 1:21", "bad-word data.tokenizer 2:33",
                                 "out-of-range train.steps 3:16", "duplicate-key train.steps 3:19",
                                 "not-built moe.use_gmm 4:7", "unknown-key lr_schedule.styl 5:31",
                                 "missing-key model.vocab_size 1:1"});
}

TEST_CASE("a required key that is there under another name is not missing as well") {
  const ReadResult result = read(
      "model: {n_layer: 2, hidden_siz: 64, num_attention_heads: 4, seq_length: 32}\n"
      "data: {train: a.txt}\n"
      "vocab_size: 256\n"
      "train: {global_batch_size: 4}\n"
      "train.steps: 5\n"
      "learning_rate: 1.0e-3\n");
  CHECK(found(result) ==
        std::vector<std::string>{"unknown-key model.n_layer 1:9",
                                 "unknown-key model.hidden_siz 1:21", "unknown-key vocab_size 3:1",
                                 "unknown-key train.steps 5:1", "unknown-key learning_rate 6:1"});
}

}  // namespace trainctl::test
