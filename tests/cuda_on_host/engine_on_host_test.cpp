// The built program with parallel.device: cuda, on the CUDA module that the host's compiler makes:
// its ranks are threads, each with an emulated device of its own.
#include <cmath>
#include <fstream>

#include "../cli/process.h"
#include "../cli/runs.h"
#include "catch.h"
#include "emulated.h"

namespace {

/// 2 layers, dropout, documents, clipping; for up to 4 ranks.
const std::string gpt2 = R"(
model:
  {family: gpt2, num_layers: 2, hidden_size: 16, ffn_hidden_size: 32, num_attention_heads: 4,
   seq_length: 16, vocab_size: 31, make_vocab_size_divisible_by: 16, tie_word_embeddings: true,
   hidden_dropout: 0.1, attention_dropout: 0.1, embedding_dropout: 0.1}
data: {train: none, reset_attention_mask: true, reset_position_ids: true}
train: {steps: 100, global_batch_size: 4, seed: 1234}
optimizer: {type: adamw, weight_decay: 0.1, clip_grad_norm: 0.5}
lr_schedule: {style: cosine, max_lr: 1.0e-2, min_lr: 1.0e-3, warmup_steps: 2}
parallel: {device: cuda, bucket_size: 2000, deadline_seconds: 120}
)";
/// Grouped heads, a head of its own.
const std::string llama = R"(
model:
  {family: llama, num_layers: 2, hidden_size: 16, ffn_hidden_size: 32, num_attention_heads: 4,
   num_query_groups: 2, seq_length: 16, vocab_size: 31, make_vocab_size_divisible_by: 16}
data: {train: none}
train: {steps: 100, global_batch_size: 4, seed: 1234}
optimizer: {type: adamw, weight_decay: 0.1, clip_grad_norm: 0.5}
lr_schedule: {style: cosine, max_lr: 1.0e-2, min_lr: 1.0e-3, warmup_steps: 2}
parallel: {device: cuda, bucket_size: 2000, deadline_seconds: 120}
)";

/// Options that give the Llama one layer of experts out of two, with every loss, a capacity, a bias
/// of the choice and shared experts.
const std::vector<std::string> experts{"--set", "model.seq_length=8",
                                       "--set", "moe.num_experts=4",
                                       "--set", "moe.router_topk=2",
                                       "--set", "moe.ffn_hidden_size=16",
                                       "--set", "moe.first_dense_layers=1",
                                       "--set", "moe.aux_loss_factor=0.2",
                                       "--set", "moe.z_loss_factor=0.1",
                                       "--set", "moe.capacity_factor=1.2",
                                       "--set", "moe.router_score_function=sigmoid",
                                       "--set", "moe.router_enable_expert_bias=true",
                                       "--set", "moe.shared_expert_intermediate_size=16"};

Outcome verify(const std::string& config, const std::string& layouts,
               const std::vector<std::string>& more = {},
               const std::vector<std::string>& environment = {emulated}) {
  const TempDir dir;
  std::vector<std::string> words{
      "verify", "--config", dir.write("a.yaml", config), "--layouts", layouts, "--steps", "2"};
  words.insert(words.end(), more.begin(), more.end());
  return trainctl(words, environment);
}

std::vector<std::string> training(const TempDir& dir, const std::string& output,
                                  const std::vector<std::string>& more,
                                  const std::string& model = gpt2) {
  const std::string text = dir.write("text.txt", std::string(4000, 'a') + "to be or not to be");
  std::vector<std::string> words{
      "--set", "data.train=" + text,        "--set", "data.tokenizer=byte",
      "--set", "model.vocab_size=256",      "--set", "train.steps=4",
      "--set", "cluster.matmul_flops=1e12", "--set", "cluster.memory_bandwidth=1e12",
      "--set", "cluster.bandwidth=1e11",    "--set", "cluster.latency=1e-5"};
  words.insert(words.end(), more.begin(), more.end());
  return train_words(dir.write("a.yaml", model), dir / output, words);
}

}  // namespace

TEST_CASE("on CUDA devices layouts are equal to a single rank on the CPU: GPT-2") {
  const Outcome outcome =
      verify(gpt2,
             "dp1,dp2,tp2sp,pp2+dp2,tp2+pp2+vocab_tp,tp2sp+dp2+zero1,dp4+zero3,dp2+cp2+p2p,cp2+a2a,"
             "pp2+dp2+m2+zero2+recompute,dp2+m2+selective+offload,tp2sp+tpoverlap,"
             "tp2sp+attn_tokens+mlp_whole");
  INFO(outcome.out << outcome.err);
  CHECK(outcome.exit_code == 0);
  CHECK(contains(outcome.out, "13 layouts equal to a single rank over 2 steps"));
}

TEST_CASE("on CUDA devices layouts are equal to a single rank on the CPU: Llama in 16 bits") {
  const Outcome outcome = verify(llama, "dp2+zero2,tp2sp+pp2", {"--set", "precision.compute=bf16"});
  INFO(outcome.out << outcome.err);
  CHECK(outcome.exit_code == 0);
  const Outcome half = verify(llama, "dp2+m2", {"--set", "precision.compute=fp16"});
  INFO(half.out << half.err);
  CHECK(half.exit_code == 0);
  const Outcome weights = verify(llama, "dp1+offloadw,dp2+offloadw2+m2",
                                 {"--set", "precision.compute=bf16", "--set", "model.num_layers=3"},
                                 {emulated, "CUDA_ON_HOST_PAGE_LOCKED=1"});
  INFO(weights.out << weights.err);
  CHECK(weights.exit_code == 0);
}

TEST_CASE("on CUDA devices layouts are equal to a single rank on the CPU: GPT-2 in 16 bits") {
  const Outcome outcome = verify(gpt2, "dp1+m2,tp2sp+dp2", {"--set", "precision.compute=bf16"});
  INFO(outcome.out << outcome.err);
  CHECK(outcome.exit_code == 0);
  const Outcome alone =
      verify(gpt2, "dp2+zero3",
             {"--set", "precision.compute=bf16", "--set", "optimizer.main_params_dtype=bf16"});
  INFO(alone.out << alone.err);
  CHECK(alone.exit_code == 0);
}

TEST_CASE("on CUDA devices layouts are equal to a single rank on the CPU: experts") {
  const Outcome outcome =
      verify(llama, "dp1+m2,dp2+ep2+echunks2+recompute,tp2sp+dp2+ep2+group_a2a", experts);
  INFO(outcome.out << outcome.err);
  CHECK(outcome.exit_code == 0);
  CHECK(contains(outcome.out, "3 layouts equal to a single rank over 2 steps"));
  const Outcome biased =
      verify(gpt2, "dp2+ep2,cp2+all_gather+ep2",
             {"--set", "moe.num_experts=4", "--set", "moe.router_topk=2", "--set",
              "moe.router_num_groups=2", "--set", "moe.ffn_hidden_size=16"});
  INFO(biased.out << biased.err);
  CHECK(biased.exit_code == 0);
  CHECK(contains(biased.out, "2 layouts equal to a single rank over 2 steps"));
  std::vector<std::string> rounded = experts;
  rounded.insert(rounded.end(), {"--set", "precision.compute=bf16"});
  const Outcome half = verify(llama, "tp2sp+dp2+ep2+m2", rounded);
  INFO(half.out << half.err);
  CHECK(half.exit_code == 0);
  // The 4 numbers of 8 bytes that say how many rows each expert gets, read before they are there.
  const Outcome early = verify(llama, "dp1", experts, {emulated, "CUDA_ON_HOST_UNAWAITED=32"});
  INFO(early.out << early.err);
  CHECK(early.exit_code == 71);
  CHECK(contains(early.out, "DIFFERS"));
}

TEST_CASE("on CUDA devices layouts are equal to a single rank on the CPU: Muon, averaged weights") {
  const std::vector<std::string> muon{"--set", "optimizer.type=muon", "--set",
                                      "optimizer.ema_decay=0.5"};
  const auto with_muon = [&](std::vector<std::string> more) {
    more.insert(more.end(), muon.begin(), muon.end());
    return more;
  };
  const Outcome outcome = verify(llama, "dp1,tp2sp,dp2+zero2,pp2+dp2+zero1", with_muon({}));
  INFO(outcome.out << outcome.err);
  CHECK(outcome.exit_code == 0);
  CHECK(contains(outcome.out, "4 layouts equal to a single rank over 2 steps"));
  const Outcome routed = verify(llama, "dp2+ep2,dp1+m2", with_muon(experts));
  INFO(routed.out << routed.err);
  CHECK(routed.exit_code == 0);
  // There auto means bf16 on a device, but not in a comparison with the CPU.
  const Outcome half =
      verify(gpt2, "tp2sp+dp2+zero1", with_muon({"--set", "precision.compute=bf16"}));
  INFO(half.out << half.err);
  CHECK(half.exit_code == 0);
}

TEST_CASE("without NCCL tensors travel through the host's memory") {
  const std::string layouts = "dp2+zero2,tp2sp+pp2,dp2+cp2+p2p";
  const Outcome none =
      verify(gpt2, layouts, {}, {emulated, "CUDA_ON_HOST_NO_NCCL=1", "CUDA_ON_HOST_PAGE_LOCKED=1"});
  INFO(none.out << none.err);
  CHECK(none.exit_code == 0);
  CHECK(contains(none.out, "3 layouts equal to a single rank over 2 steps"));
  CHECK(contains(none.err, "rank 0 has no NCCL (cannot open libnccl.so.2): tensors travel"));
}

TEST_CASE("threads that share a device need neither NCCL nor the host's memory") {
  const std::vector<std::string> environment{emulated, "CUDA_ON_HOST_DEVICES=1",
                                             "CUDA_ON_HOST_NO_NCCL=1"};
  std::vector<std::string> sharing{"--set", "parallel.share_devices=true"};
  const Outcome dense = verify(gpt2, "tp2sp+pp2,dp4+zero2,dp2+cp2+p2p", sharing, environment);
  INFO(dense.out << dense.err);
  CHECK(dense.exit_code == 0);
  CHECK(contains(dense.out, "3 layouts equal to a single rank over 2 steps"));
  CHECK(!contains(dense.err, "tensors travel"));
  sharing.insert(sharing.end(), experts.begin(), experts.end());
  const Outcome routed = verify(llama, "dp2+tp2sp+ep2", sharing, environment);
  INFO(routed.out << routed.err);
  CHECK(routed.exit_code == 0);
  CHECK(!contains(routed.err, "tensors travel"));
}

TEST_CASE("between processes tensors travel over MPI, with the losses of the CPU") {
  if (run_program("mpirun", {"--version"}).exit_code != 0) {
    WARN("skipped: there is no mpirun");
    return;
  }
  const TempDir dir;
  const std::vector<std::string> layouts[] = {
      {"--set", "parallel.parallel_optimizer.enable=true", "--set", "precision.compute=bf16"},
      {"--set", "parallel.tensor_parallel=2", "--set", "parallel.sequence_parallel=true"},
      {"--set", "parallel.pipeline_stages=2", "--set", "train.micro_batch_size=1", "--set",
       "parallel.share_devices=true"}};
  for (const std::vector<std::string>& layout : layouts) {
    INFO(layout[1]);
    std::vector<std::string> more{"--set", "train.steps=2", "--set", "lr_schedule.warmup_steps=1"};
    more.insert(more.end(), layout.begin(), layout.end());
    std::vector<std::string> over_mpi = mpirun_words(2);
    for (std::string& word : training(dir, "mpi", more)) over_mpi.push_back(std::move(word));
    const bool shares = contains(layout.back(), "share_devices");
    const Outcome run = run_program("mpirun", over_mpi,
                                    {emulated, "CUDA_ON_HOST_PAGE_LOCKED=1",
                                     shares ? "CUDA_ON_HOST_DEVICES=1" : "CUDA_ON_HOST_NO_NCCL=1"});
    INFO(run.err);
    REQUIRE(run.exit_code == 0);
    CHECK(contains(run.err, shares
                                ? "ranks share CUDA devices: tensors travel"
                                : "rank 0 has no NCCL (cannot open libnccl.so.2): tensors travel"));
    more.insert(more.end(), {"--device", "cpu", "--local-ranks", "2"});
    const Outcome cpu = trainctl(training(dir, "cpu", more));
    INFO(cpu.err);
    REQUIRE(cpu.exit_code == 0);
    const auto found = metrics_of(dir / "mpi");
    const auto expected = metrics_of(dir / "cpu");
    REQUIRE(found.size() == 2);
    REQUIRE(expected.size() == 2);
    const double bound = contains(layout.back(), "bf16") ? 1e-2 : 1e-5;
    for (std::size_t i = 0; i < 2; ++i) {
      const double loss = expected[i]["loss"];
      CHECK(std::abs(found[i]["loss"].get<double>() - loss) < bound * loss);
    }
  }
}

TEST_CASE("experts in 16 bits learn the same on a CUDA device as on the CPU, and are evaluated") {
  const TempDir dir;
  std::vector<std::string> more{
      "--set", "precision.compute=bf16",       "--set", "train.validate_every=2",
      "--set", "data.validation.fraction=0.1", "--set", "data.validation.max_sequences=3"};
  more.insert(more.end(), experts.begin(), experts.end());
  std::vector<std::vector<nlohmann::json>> found;
  for (const std::string device : {"cuda", "cpu"}) {
    std::vector<std::string> words = more;
    words.insert(words.end(), {"--set", "parallel.device=" + device});
    const Outcome run = trainctl(training(dir, device, words, llama), {emulated});
    INFO(run.err);
    REQUIRE(run.exit_code == 0);
    found.push_back(metrics_of(dir / device));
  }
  REQUIRE(found[0].size() == found[1].size());
  bool validated = false;
  for (std::size_t i = 0; i < found[0].size(); ++i) {
    for (const char* loss : {"loss", "val_loss"}) {
      REQUIRE(found[0][i].contains(loss) == found[1][i].contains(loss));
      if (!found[0][i].contains(loss)) continue;
      CHECK(std::abs(found[0][i][loss].get<double>() - found[1][i][loss].get<double>()) < 1e-2);
      validated = validated || loss == std::string("val_loss");
    }
    const auto choices = [&](std::size_t run) { return found[run][i]["router"]["loads"][0]; };
    for (std::size_t e = 0; e < 4; ++e) {
      CHECK(std::abs(choices(0)[e].get<double>() - choices(1)[e].get<double>()) < 25);
    }
  }
  CHECK(validated);
}

TEST_CASE("a run on a CUDA device saves, and resumes from there on the CPU and on a device") {
  const TempDir dir;
  const Outcome whole = trainctl(training(dir, "whole", {}), {emulated});
  INFO(whole.err);
  REQUIRE(whole.exit_code == 0);
  const auto expected = metrics_of(dir / "whole");
  REQUIRE(expected.size() == 4);
  for (const std::string device : {"cuda", "cpu"}) {
    INFO(device);
    const std::string output = "from_" + device;
    REQUIRE(trainctl(training(dir, output, {"--stop-after", "2"}), {emulated}).exit_code == 0);
    std::vector<std::string> words = training(dir, output, {"--set", "parallel.device=" + device});
    std::erase(words, "--overwrite");
    const Outcome rest = trainctl(words, {emulated});
    INFO(rest.err);
    REQUIRE(rest.exit_code == 0);
    const auto found = metrics_of(dir / output);
    REQUIRE(found.size() == 4);
    for (std::size_t i = 0; i < 4; ++i) {
      const double loss = expected[i]["loss"];
      CHECK(std::abs(found[i]["loss"].get<double>() - loss) < 1e-5 * loss);
    }
  }
}

TEST_CASE("auto is CUDA where every rank has a device of one kind, else the CPU") {
  const TempDir dir;
  const auto run = [&](const std::string& device, const std::vector<std::string>& environment) {
    return trainctl(training(dir, "run", {"--device", device, "--local-ranks", "2"}), environment);
  };
  struct Case {
    std::vector<std::string> environment;
    std::string meaning;  // of auto
    std::string refusal;  // of cuda; empty: none
  };
  const Case cases[] = {
      {{emulated}, "a CUDA device for each rank: CUDA on the host, compute capability 9.0", ""},
      {{emulated, "CUDA_ON_HOST_DEVICES=1"},
       "the CPU: rank 1: rank 1 of this machine has no device of its own",
       "rank 1 of this machine has no device of its own"},
      {{emulated, "CUDA_ON_HOST_OTHER_FROM=1"},
       "the CPU: the ranks see different devices: rank 0 CUDA on the host, compute capability 9.0, "
       "rank 1 CUDA on the host, compute capability 8.0",
       "the ranks see different devices"},
      {{"TRAINCTL_CUDA_MODULE=/nowhere.so"},
       "the CPU: rank 0: [cuda] /nowhere.so does not exist",
       "/nowhere.so does not exist"}};
  for (const Case& one : cases) {
    INFO(one.meaning);
    const Outcome found = run("auto", one.environment);
    INFO(found.err);
    CHECK(found.exit_code == 0);
    CHECK(contains(found.err, "parallel.device auto: " + one.meaning));
    if (one.refusal.empty()) continue;
    const Outcome refused = run("cuda", one.environment);
    INFO(refused.err);
    CHECK(refused.exit_code == 69);
    CHECK(contains(refused.err, one.refusal));
  }
  const Outcome shared =
      trainctl(training(dir, "shared",
                        {"--device", "auto", "--local-ranks", "2", "--set",
                         "parallel.share_devices=true", "--set", "parallel.cuda_graphs=true"}),
               {emulated, "CUDA_ON_HOST_DEVICES=1"});
  INFO(shared.err);
  CHECK(shared.exit_code == 0);
  CHECK(contains(shared.err, "auto: CUDA devices, which ranks may share: CUDA on the host"));
  CHECK(contains(shared.err, "steps run row by row: ranks share a device, and meet on the host"));
}

TEST_CASE("attention is cuDNN's where auto finds it, or as the configuration says") {
  const TempDir dir;
  const std::string library = "TRAINCTL_CUDNN_LIBRARY=" TRAINCTL_EMULATED_CUDA;
  const auto run = [&](const std::string& backend, const std::vector<std::string>& environment) {
    std::vector<std::string> words{"--set",         "parallel.attention_backend=" + backend,
                                   "--set",         "model.seq_length=128",
                                   "--set",         "model.num_attention_heads=2",
                                   "--set",         "model.kv_channels=64",
                                   "--set",         "model.num_query_groups=1",
                                   "--set",         "precision.compute=bf16",
                                   "--local-ranks", "2"};
    std::vector<std::string> all{emulated};
    all.insert(all.end(), environment.begin(), environment.end());
    const Outcome found = trainctl(training(dir, backend, words, llama), all);
    INFO(found.err);
    return found;
  };
  const auto backend_of = [&](const std::string& output) {
    std::ifstream plan(dir / output + "/plan.json");
    return nlohmann::json::parse(plan)["attention_backend"].get<std::string>();
  };
  const Outcome own = run("own", {library});
  REQUIRE(own.exit_code == 0);
  CHECK(backend_of("own") == "own");
  const Outcome taken = run("auto", {library});
  REQUIRE(taken.exit_code == 0);
  CHECK(contains(taken.err, "parallel.attention_backend auto: cuDNN 9.19.0"));
  CHECK(backend_of("auto") == "cudnn");
  const auto expected = metrics_of(dir / "own");
  const auto found = metrics_of(dir / "auto");
  REQUIRE(found.size() == expected.size());
  for (std::size_t i = 0; i < found.size(); ++i) {
    CHECK(std::abs(found[i]["loss"].get<double>() - expected[i]["loss"].get<double>()) < 1e-2);
  }
  const Outcome fails = run("cudnn", {library, "CUDA_ON_HOST_CUDNN=fails"});
  CHECK(fails.exit_code == 69);
  CHECK(contains(fails.err, "cudnnBackendExecute"));
}

TEST_CASE("attention is our kernels' where cuDNN is not there or refuses") {
  const TempDir dir;
  int runs = 0;
  const auto run = [&](const std::string& backend, const std::vector<std::string>& environment) {
    std::vector<std::string> words{"--set", "parallel.attention_backend=" + backend,
                                   "--set", "model.seq_length=128",
                                   "--set", "model.kv_channels=64",
                                   "--set", "precision.compute=bf16",
                                   "--set", "train.steps=1",
                                   "--set", "lr_schedule.warmup_steps=0"};
    std::vector<std::string> all{emulated};
    all.insert(all.end(), environment.begin(), environment.end());
    return trainctl(training(dir, "run" + std::to_string(++runs), words, llama), all);
  };
  const std::string nowhere = "TRAINCTL_CUDNN_LIBRARY=/nowhere/libcudnn.so.9";
  const Outcome absent = run("auto", {nowhere});
  INFO(absent.err);
  CHECK(absent.exit_code == 0);
  CHECK(contains(absent.err, "attention_backend auto: own kernels: cuDNN cannot be opened: /nowh"));
  CHECK(run("cudnn", {nowhere}).exit_code == 69);
  const std::string library = "TRAINCTL_CUDNN_LIBRARY=" TRAINCTL_EMULATED_CUDA;
  const Outcome refused = run("auto", {library, "CUDA_ON_HOST_CUDNN=refuses"});
  INFO(refused.err);
  CHECK(refused.exit_code == 0);
  CHECK(contains(refused.err, "attention_backend auto: own kernels: cuDNN has no plan for this"));
  CHECK(run("cudnn", {library, "CUDA_ON_HOST_CUDNN=refuses"}).exit_code == 69);
}

TEST_CASE("a device fails a rank: too few devices, too little memory, none") {
  const TempDir dir;
  const Outcome few =
      trainctl({"verify", "--config", dir.write("a.yaml", gpt2), "--layouts", "dp2"},
               {emulated, "CUDA_ON_HOST_DEVICES=1"});
  INFO(few.err << few.out);
  CHECK(few.exit_code == 69);
  CHECK(contains(few.err + few.out, "has no device of its own: 1 CUDA device(s) are visible"));
  CHECK(contains(few.err + few.out, "let ranks share devices (parallel.share_devices: true)"));
  const Outcome small =
      trainctl(training(dir, "small", {}), {emulated, "CUDA_ON_HOST_MEMORY=1048576"});
  INFO(small.err);
  CHECK(small.exit_code == 69);
  CHECK(contains(small.err, "of 1.00 MiB (CUDA on the host); "));
  CHECK(contains(small.err, "of that are tensors, which do not fit"));
  const Outcome bench = trainctl({"bench", "step", "--config", dir.write("b.yaml", gpt2)},
                                 {emulated, "CUDA_ON_HOST_MEMORY=1048576"});
  CHECK(bench.exit_code == 69);
  CHECK(contains(bench.err, "asked for on device 0"));
  // Room for the tensors, not for what is allowed for.
  const Outcome tight =
      trainctl(training(dir, "tight", {}), {emulated, "CUDA_ON_HOST_MEMORY=134217728"});
  CHECK(tight.exit_code == 0);
  CHECK(contains(tight.err, "warning: devices: "));
  CHECK(contains(tight.err, "planned for each rank, of 128.00 MiB (CUDA on the host)"));
  const Outcome none = trainctl(training(dir, "none", {}), {"TRAINCTL_CUDA_MODULE=/nowhere.so"});
  INFO(none.err);
  CHECK(none.exit_code == 69);
  CHECK(contains(none.err, "/nowhere.so does not exist"));
}
