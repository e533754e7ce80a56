// Configurations that validate calls valid are run by train on the same site, and those that it
// refuses are refused by train with the same findings: configurations made from a fixed seed,
// legal, illegal, not built, and unfit for the number of ranks. 60 of them; 300 where
// TRAINCTL_THOROUGH is 1.
#include <algorithm>
#include <array>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <random>
#include <regex>
#include <set>

#include "catch.h"
#include "process.h"

namespace {

using Words = std::vector<std::string>;

struct Setting {
  std::string path;
  Words values;
};

// Most values are legal by themselves and some only with others; the mode auto_parallel is not
// built.
const std::vector<Setting> settings = {
    {"model.family", {"llama"}},
    {"model.num_layers", {"1", "3", "4"}},
    {"model.hidden_size", {"24", "30", "32"}},
    {"model.num_attention_heads", {"1", "3", "4"}},
    {"model.num_query_groups", {"1", "2", "3"}},
    {"model.ffn_hidden_size", {"32", "36", "33"}},
    {"model.tie_word_embeddings", {"false", "true"}},
    {"model.hidden_dropout", {"0.1"}},
    {"model.qk_layernorm", {"true"}},
    {"model.make_vocab_size_divisible_by", {"1", "7"}},
    {"model.perform_initialization", {"false"}},
    {"data.validation.fraction", {"0.1", "0.3"}},
    {"data.validation.split", {"blocks"}},
    {"data.reset_attention_mask", {"true"}},
    {"data.eod_token", {"0", "9999"}},
    {"data.eod_mask_loss", {"true"}},
    {"data.packing", {"false"}},
    {"parallel.pipeline.variable_seq_lengths", {"true"}},
    {"train.global_batch_size", {"1", "4", "6", "7", "8"}},
    {"train.micro_batch_size", {"1", "2", "3"}},
    {"train.micro_batch_num", {"1", "2", "3", "4"}},
    {"train.rampup_batch_size", {"[2, 2, 3]", "[4, 1, 5]"}},
    {"train.decrease_batch_size_if_needed", {"true"}},
    {"train.check_replicas_every", {"1"}},
    {"train.on_bad_loss", {"skip"}},
    {"optimizer.type", {"sgd"}},
    {"optimizer.main_grads_dtype", {"bf16"}},
    {"optimizer.main_params_dtype", {"bf16", "fp16"}},
    {"optimizer.exp_avg_dtype", {"bf16", "fp16"}},
    {"optimizer.exp_avg_sq_dtype", {"bf16"}},
    {"optimizer.weight_decay_incr_style", {"linear"}},
    {"optimizer.end_weight_decay", {"0.1", "0.001"}},
    {"lr_schedule.style", {"cosine", "WSD"}},
    {"lr_schedule.warmup_steps", {"1", "5"}},
    {"precision.compute", {"bf16", "fp16"}},
    {"precision.loss_scale", {"128"}},
    {"precision.enable_autocast", {"true"}},
    {"parallel.tensor_parallel", {"2", "2", "3", "4"}},
    {"parallel.pipeline_stages", {"2", "2", "3", "4"}},
    {"parallel.data_parallel", {"1", "2", "4"}},
    {"parallel.sequence_parallel", {"true"}},
    {"parallel.context_parallel", {"2"}},
    {"parallel.expert_parallel", {"2"}},
    {"parallel.virtual_pipeline_stages", {"2"}},
    {"parallel.parallel_mode",
     {"stand_alone", "data_parallel", "hybrid_parallel", "semi_auto_parallel"}},
    {"parallel.parallel_mode", {"auto_parallel"}},
    {"parallel.device_num", {"1", "2", "4"}},
    {"parallel.rank_order", {"pp-dp-ep-cp-tp", "dp-tp-cp-ep-pp", "tp-tp"}},
    {"parallel.pipeline.comm_backend", {"ucc", "nccl"}},
    {"parallel.pipeline.scheduler", {"gpipe", "zb-h1", "zb-v"}},
    {"parallel.pipeline.layout", {"Et|tL", "E|ttL", "Ett||L", "E|t|t|L", "Ett|L"}},
    {"parallel.pipeline.first_stage_layers", {"1", "2"}},
    {"parallel.pipeline.account_for_loss", {"true"}},
    {"parallel.pipeline.overlap_p2p_comm", {"true"}},
    {"parallel.pipeline.deallocate_outputs", {"true"}},
    {"parallel.pipeline.dtype", {"bf16"}},
    {"parallel.pipeline.result_broadcast", {"true"}},
    {"parallel.parallel_optimizer.enable", {"true", "true", "true"}},
    {"parallel.parallel_optimizer.threshold", {"0"}},
    {"parallel.parallel_optimizer.gradient_accumulation_shard", {"false"}},
    {"parallel.parallel_optimizer.weight_shard_size", {"1", "2", "3"}},
    {"parallel.parallel_optimizer.optimizer_level", {"level1", "level2", "level3", "level3"}},
    {"parallel.parallel_optimizer.prefetch", {"0", "3"}},
    {"parallel.bucket_rule", {"megatron", "layers", "comm_fusion"}},
    {"parallel.bucket_size", {"100", "3000"}},
    {"parallel.comm_fusion.allreduce.mode", {"auto"}},
    {"parallel.comm_fusion.reducescatter.mode", {"auto"}},
    {"parallel.gradient_aggregation_group", {"2"}},
    {"parallel.gradients_mean", {"false"}},
    {"parallel.gradient_fp32_sync", {"false"}},
    {"parallel.loss_repeated_mean", {"false"}},
    {"parallel.force_fp32_communication", {"true"}},
    {"parallel.parameter_broadcast", {"true"}},
    {"parallel.gradient_accumulation_fusion", {"false", "true"}},
    {"parallel.vocab_emb_dp", {"true", "false"}},
    {"parallel.dataset_strategy", {"full_batch"}},
    {"parallel.threads_per_rank", {"2", "5000"}},
    {"parallel.check_collectives", {"true"}},
    {"moe.num_experts", {"2", "2", "4"}},
    {"moe.router_topk", {"2", "3"}},
    {"moe.capacity_factor", {"1.25"}},
    {"moe.expert_group_size", {"4", "7"}},
    {"moe.comp_comm_parallel", {"true"}},
    {"moe.group_wise_a2a", {"true"}},
    {"parallel.expert_tensor_parallel", {"1", "2"}},
    {"model.add_bias_linear", {"false"}},
    {"recompute.enable", {"true", "true"}},
    {"recompute.select", {"norms+mlp", "gelu"}},
    {"recompute.slice_activation", {"true"}},
    {"recompute.mp_comm_recompute", {"false"}},
    {"recompute.parallel_optimizer_comm_recompute", {"true"}},
    {"hooks.no_sync", {"never"}},
    {"offload.enable", {"true"}},
    {"offload.num_layers", {"1", "2"}},
    {"offload.weights", {"true"}},
    {"hooks.timers", {"true"}},
    {"hooks.finalize_model_grads", {"false"}},
    {"parallel.pipeline.defer_embedding_wgrad_compute", {"true", "true"}},
    {"parallel.pipeline.wgrad_deferral_limit", {"1"}},
    {"hooks.grad_sync", {"after_backward"}},
    {"hooks.param_sync", {"before_forward"}},
    {"output.save_weights", {"false"}},
};

// The files that the settings are added to: features whose rules need several settings at once.
const std::vector<Words> beginnings = {
    {},
    {"parallel.tensor_parallel=2"},
    {"parallel.pipeline_stages=2"},
    {"parallel.parallel_mode=hybrid_parallel", "parallel.parallel_optimizer.enable=true",
     "parallel.parallel_optimizer.threshold=0"},
    {"parallel.pipeline_stages=2", "parallel.virtual_pipeline_stages=2"},
    {"moe.num_experts=4", "parallel.expert_parallel=2"},
    {"parallel.pipeline_stages=2", "parallel.pipeline.comm_backend=ucc"},
};

struct Case {
  int ranks = 1;
  Words options;  // "path=value"

  std::string text() const {
    std::string all = std::to_string(ranks) + " rank(s)";
    for (const std::string& option : options) all += " --set " + option;
    return all;
  }
};

/// Makes cases that are equal on every machine.
class Generator {
 public:
  Case next() {
    Case made;
    made.ranks = std::array{1, 2, 2, 4}[below(4)];
    made.options = beginnings[below(8) % beginnings.size()];
    std::set<std::size_t> chosen;
    for (std::size_t count = 1 + below(5); chosen.size() < count;) {
      chosen.insert(below(settings.size()));
    }
    for (const std::size_t index : chosen) {
      const Setting& setting = settings[index];
      const auto is_same = [&](const std::string& option) {
        return option.starts_with(setting.path + "=");
      };
      if (std::any_of(made.options.begin(), made.options.end(), is_same)) continue;
      made.options.push_back(setting.path + "=" + setting.values[below(setting.values.size())]);
    }
    return made;
  }

 private:
  std::size_t below(std::size_t limit) { return random_() % limit; }
  std::mt19937_64 random_{2024};
};

struct Answer {
  int exit_code = 0;
  std::set<std::string> findings;  // "error[not-built]"
};

/// A tiny model whose rates are given, so that a run measures nothing.
class Site {
 public:
  Site() {
    std::string text;  // of many documents, for a split has whole ones
    for (int i = 0; i < 400; ++i) text += "{\"text\": \"line " + std::to_string(i * i) + "\"}\n";
    dir_.write("data.jsonl", text);
    config_ = dir_.write(
        "a.yaml",
        "model: {family: gpt2, num_layers: 2, hidden_size: 16, num_attention_heads: 2,\n"
        "        seq_length: 8, vocab_size: 260}\n"
        "data: {train: " +
            dir_ / "data.jsonl" + ", cache_dir: " + dir_ / "cache" + "}\n" +
            "train: {steps: 2, global_batch_size: 8}\n"
            "lr_schedule: {max_lr: 1.0e-3}\n"
            "parallel: {threads_per_rank: 1, deadline_seconds: 20}\n"
            "cluster: {matmul_flops: 1.0e+9, memory_bandwidth: 1.0e+9, latency: 1.0e-6,\n"
            "          bandwidth: 1.0e+9}\n"
            "output: {dir: " +
            dir_ / "run" + ", overwrite: true}\n");
  }

  Answer validate(const Case& one) const {
    const std::string ranks = std::to_string(one.ranks);
    const Outcome outcome = run(
        "validate", one, {"--world-size", ranks, "--ranks-per-host", ranks, "--format", "json"});
    Answer answer{outcome.exit_code, {}};
    const nlohmann::json document = nlohmann::json::parse(outcome.out);
    for (const auto& row : document["diagnostics"]) {
      answer.findings.insert(row["severity"].get<std::string>() + "[" +
                             row["code"].get<std::string>() + "]");
    }
    return answer;
  }

  Answer train(const Case& one) const {
    const Outcome outcome = run("train", one, {"--local-ranks", std::to_string(one.ranks)});
    Answer answer{outcome.exit_code, {}};
    static const std::regex pattern("(error|warning)\\[[a-z0-9-]+\\]");
    const std::sregex_iterator end;
    for (std::sregex_iterator at(outcome.err.begin(), outcome.err.end(), pattern); at != end;
         ++at) {
      answer.findings.insert(at->str());
    }
    return answer;
  }

 private:
  Outcome run(const std::string& command, const Case& one, const Words& more) const {
    Words words{command, "--config", config_};
    for (const std::string& option : one.options) words.insert(words.end(), {"--set", option});
    words.insert(words.end(), more.begin(), more.end());
    return trainctl(words);
  }

  TempDir dir_;
  std::string config_;
};

bool agree(const Answer& validated, const Answer& trained) {
  const bool code = validated.exit_code == trained.exit_code &&
                    (trained.exit_code == 0 || trained.exit_code == exits::invalid);
  return code && validated.findings == trained.findings;
}

std::string text_of(const Answer& answer) {
  std::string text = std::to_string(answer.exit_code);
  for (const std::string& finding : answer.findings) text += " " + finding;
  return text;
}

}  // namespace

TEST_CASE("validate and train agree") {
  const char* thorough = std::getenv("TRAINCTL_THOROUGH");
  const int count = thorough != nullptr && std::string(thorough) == "1" ? 300 : 60;
  const Site site;
  Generator generator;
  std::set<std::string> errors;
  int valid = 0;
  for (int i = 0; i < count; ++i) {
    const Case one = generator.next();
    const Answer validated = site.validate(one);
    const Answer trained = site.train(one);
    INFO(one.text() << "\nvalidate: " << text_of(validated) << "\ntrain: " << text_of(trained));
    CHECK(agree(validated, trained));
    valid += validated.exit_code == 0 ? 1 : 0;
    for (const std::string& finding : validated.findings) {
      if (finding.starts_with("error")) errors.insert(finding);
    }
  }
  // The cases are of every kind.
  CHECK(valid >= count / 5);
  CHECK(valid <= count * 4 / 5);
  CHECK(errors.size() >= 10);
  CHECK(errors.contains("error[not-built]"));
}

TEST_CASE("a validate that overlooks a setting would be found out") {
  const Site site;
  const std::vector<Case> rows = {
      {2, {"parallel.tensor_parallel=3"}},   // unfit for the ranks
      {1, {"model.num_attention_heads=3"}},  // illegal
      {2, {"parallel.virtual_pipeline_stages=2", "parallel.pipeline_stages=2"}},  // too few layers
      {2, {"parallel.pipeline_stages=2", "parallel.pipeline.comm_backend=ucc"}},  // not built
      {2, {"hooks.finalize_model_grads=false"}},  // of the whole plan
      {2,
       {"parallel.pipeline_stages=2", "parallel.pipeline.layout=Ett|L",
        "train.check_replicas_every=0", "parallel.pipeline.comm_backend=ucc"}},
  };
  for (const Case& one : rows) {
    INFO(one.text());
    const Answer trained = site.train(one);
    CHECK(trained.exit_code == 78);
    CHECK(agree(site.validate(one), trained));
    CHECK_FALSE(agree(site.validate({one.ranks, {}}), trained));
  }
}
