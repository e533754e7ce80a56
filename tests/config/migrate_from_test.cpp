// Files of other projects as configurations of ours. The files are like those projects' examples.
#include <algorithm>

#include "catch.h"
#include "config/migrate/migrate.h"
#include "config_text.h"

namespace trainctl::test {
namespace {

/// The configuration that a file migrates to; it must have no errors but those in `missing`.
Config migrated(Project project, const std::string& text, const std::string& more = "") {
  const Migrated result = migrate_from(project, text, "f");
  CAPTURE(render_text(result.diagnostics, false));
  REQUIRE(result.ok);
  CAPTURE(result.text);
  const ReadResult after = read(result.text + more);
  CAPTURE(render_text(after.diagnostics, false));
  REQUIRE_FALSE(after.diagnostics.has_errors());
  return after.config;
}

/// "code path" of each message.
std::vector<std::string> said(Project project, const std::string& text) {
  std::vector<std::string> list;
  const Migrated result = migrate_from(project, text, "f");
  for (const Diagnostic& one : result.diagnostics.list()) {
    list.push_back(one.code + " " + one.path);
  }
  return list;
}

bool says(const std::vector<std::string>& list, const std::string& what) {
  return std::find(list.begin(), list.end(), what) != list.end();
}

const std::string small_megatron =
    "--num-layers 4 --hidden-size 32 --num-attention-heads 4 --seq-length 16 "
    "--max-position-embeddings 16 --micro-batch-size 1 --global-batch-size 8 --lr 1e-3 "
    "--vocab-size 256 --data-path x --tokenizer-type NullTokenizer --train-samples 1000 ";

const std::string shakespeare =
    "# train a miniature character-level shakespeare model\n"
    "out_dir = 'out-shakespeare-char'\n"
    "eval_interval = 250 # keep frequent because we'll overfit\n"
    "eval_iters = 200\n"
    "log_interval = 10 # don't print too too often\n"
    "always_save_checkpoint = False\n"
    "wandb_log = False # override via command line if you like\n"
    "wandb_project = 'shakespeare-char'\n"
    "dataset = 'shakespeare_char'\n"
    "gradient_accumulation_steps = 1\n"
    "batch_size = 64\n"
    "block_size = 256 # context of up to 256 previous characters\n"
    "n_layer = 6\n"
    "n_head = 6\n"
    "n_embd = 384\n"
    "dropout = 0.2\n"
    "learning_rate = 1e-3 # with baby networks can afford to go a bit higher\n"
    "max_iters = 5000\n"
    "lr_decay_iters = 5000 # make equal to max_iters usually\n"
    "min_lr = 1e-4 # learning_rate / 10 usually\n"
    "beta2 = 0.99 # make a bit bigger because number of tokens per iter is small\n"
    "warmup_iters = 100 # not super necessary potentially\n"
    "# device = 'cpu'  # run on cpu only\n";

const std::string megatron_gpt =
    "#!/bin/bash\n"
    "export CUDA_DEVICE_MAX_CONNECTIONS=1\n"
    "GPUS_PER_NODE=8\n"
    "CHECKPOINT_PATH=$1 #<Specify path>\n"
    "DATA_PATH=data/my-gpt2_text_document\n"
    "DISTRIBUTED_ARGS=(\n"
    "    --nproc_per_node $GPUS_PER_NODE \n"
    "    --nnodes 2\n"
    ")\n"
    "GPT_MODEL_ARGS=(\n"
    "    --num-layers 96 \n"
    "    --hidden-size 12288 \n"
    "    --num-attention-heads 96 \n"
    "    --seq-length 2048 \n"
    "    --max-position-embeddings 2048 \n"
    "    --attention-backend auto # Can use (flash/fused/unfused/local)\n"
    ")\n"
    "TRAINING_ARGS=(\n"
    "    --micro-batch-size 1 \n"
    "    --global-batch-size 1536 \n"
    "    --train-iters 500000 \n"
    "    --weight-decay 0.1 \n"
    "    --adam-beta1 0.9 \n"
    "    --adam-beta2 0.95 \n"
    "    --init-method-std 0.006 \n"
    "    --clip-grad 1.0 \n"
    "    --fp16\n"
    "    --lr 6.0e-5 \n"
    "    --lr-decay-style cosine \n"
    "    --min-lr 6.0e-6\n"
    "    --lr-warmup-fraction .001 \n"
    "    --lr-decay-iters 430000 \n"
    ")\n"
    "MODEL_PARALLEL_ARGS=(\n"
    "\t--tensor-model-parallel-size 8 \n"
    "\t--pipeline-model-parallel-size 16 \n"
    ")\n"
    "DATA_ARGS=(\n"
    "    --data-path $DATA_PATH \n"
    "    --tokenizer-type GPT2BPETokenizer\n"
    "    --vocab-file $VOCAB_FILE \n"
    "    --split 949,50,1\n"
    ")\n"
    "EVAL_AND_LOGGING_ARGS=(\n"
    "    --log-interval 100\n"
    "    --save-interval 10000 \n"
    "    --eval-interval 1000 \n"
    "    --save runs/gpt3 \n"
    "    --eval-iters 10\n"
    ")\n"
    "torchrun ${DISTRIBUTED_ARGS[@]} pretrain_gpt.py \\\n"
    "    ${GPT_MODEL_ARGS[@]} \\\n"
    "    ${TRAINING_ARGS[@]} \\\n"
    "    ${DATA_ARGS[@]}\n";

const std::string titan =
    "[job]\n"
    "dump_folder = \"./outputs\"\n"
    "description = \"Llama 3 8B training\"\n"
    "[metrics]\n"
    "log_freq = 10\n"
    "enable_tensorboard = true\n"
    "[model]\n"
    "name = \"llama3\"\n"
    "flavor = \"8B\"\n"
    "hf_assets_path = \"./assets/hf/Llama-3.1-8B\"\n"
    "[optimizer]\n"
    "name = \"AdamW\"\n"
    "lr = 3e-4\n"
    "eps = 1e-8\n"
    "[lr_scheduler]\n"
    "warmup_steps = 200  # lr scheduler warm up\n"
    "[training]\n"
    "local_batch_size = 1\n"
    "seq_len = 8192\n"
    "max_norm = 1.0  # grad norm clipping\n"
    "steps = 1000\n"
    "dataset = \"c4\"\n"
    "[parallelism]\n"
    "data_parallel_replicate_degree = 1\n"
    "data_parallel_shard_degree = -1\n"
    "tensor_parallel_degree = 2\n"
    "pipeline_parallel_degree = 1\n"
    "[checkpoint]\n"
    "enable = false\n"
    "folder = \"checkpoint\"\n"
    "interval = 500\n"
    "[activation_checkpoint]\n"
    "mode = \"selective\"  # [\"none\", \"selective\", \"full\"]\n"
    "selective_ac_option = \"op\"\n";

}  // namespace

TEST_CASE("a ramp of Megatron, and lengths in its samples") {
  const Config ramp = migrated("megatron", small_megatron +
                                               "--rampup-batch-size 2 2 13 "
                                               "--lr-warmup-samples 16 "
                                               "--decrease-batch-size-if-needed\n");
  CHECK(ramp.train.rampup_batch_size == IntList{2, 2, 13});
  CHECK(ramp.train.decrease_batch_size_if_needed);
  CHECK(ramp.lr_schedule.warmup_steps == 5);  // batches of 2, 2, 2, 4 and 6
  CHECK(ramp.train.steps == 5 + 123);         // 16 samples, and 984 in batches of 8
  const Config plain = migrated("megatron", small_megatron + "--lr-warmup-samples 16\n");
  CHECK_FALSE(plain.train.rampup_batch_size);
  CHECK(plain.train.steps == 125);
  CHECK(plain.lr_schedule.warmup_steps == 2);
}

TEST_CASE("Muon of Megatron with its defaults, and what its arguments say of single parameters") {
  const std::string llama =
      small_megatron +
      "--swiglu --normalization RMSNorm --position-embedding-type rope --disable-bias-linear ";
  const Config plain = migrated("megatron", llama + "--optimizer muon\n");
  CHECK(plain.optimizer.type == OptimizerType::muon);
  const MuonConfig& muon = plain.optimizer.muon;
  CHECK(muon.momentum == 0.9);
  CHECK_FALSE(muon.nesterov);
  CHECK(muon.coefficients == MuonCoefficients{});
  CHECK(muon.steps == 5);
  CHECK(muon.scale == MuonScale("spectral"));
  CHECK(muon.scale_factor == 1);
  CHECK(muon.eps == 1e-15);
  CHECK(muon.ns_dtype == MuonProducts("bf16"));
  CHECK(muon.items == std::vector{MuonItem("gate_up")});
  CHECK(plain.optimizer.groups.empty());

  const Config rich = migrated(
      "megatron",
      llama +
          "--optimizer muon --muon-momentum 0.95 --muon-nesterov --muon-coefficient-type aol "
          "--muon-num-ns-steps 8 --muon-scale-mode shape_scaling --muon-extra-scale-factor 0.2 "
          "--muon-fp32-matmul-prec high --muon-no-split-qkv --muon-scalar-optimizer lion "
          "--num-experts 4 --moe-shared-expert-intermediate-size 16 --moe-shared-expert-gate "
          "--qk-layernorm --apply-wd-to-qk-layernorm --untie-embeddings-and-output-weights "
          "--decoupled-lr 4e-3 --decoupled-min-lr 4e-4 --min-lr 1e-4\n");
  CHECK(rich.optimizer.muon.momentum == 0.95);
  CHECK(rich.optimizer.muon.nesterov);
  CHECK(rich.optimizer.muon.coefficients.list.size() == 8);
  CHECK(rich.optimizer.muon.coefficients.list.at(4) == MuonTriple{4.0098, -7.0585, 2.4635});
  CHECK(rich.optimizer.muon.scale == MuonScale("shape"));
  CHECK(rich.optimizer.muon.scale_factor == 0.2);
  CHECK(rich.optimizer.muon.ns_dtype == MuonProducts("fp32"));
  CHECK(rich.optimizer.muon.items == std::vector{MuonItem("gate_up"), MuonItem("qkv")});
  const std::vector<OptimizerGroup>& groups = rich.optimizer.groups;
  REQUIRE(groups.size() == 4);
  CHECK(groups[0].match == std::vector<std::string>{"embedding.token.weight", "head.weight"});
  CHECK(groups[0].type == OptimizerType::lion);
  CHECK(groups[0].lr_mult == 4);
  CHECK(groups[1].match == std::vector<std::string>{"*.q_norm.weight", "*.k_norm.weight"});
  CHECK(groups[1].wd_mult == 1);
  CHECK(groups[2].match == std::vector<std::string>{"*norm*"});
  CHECK(groups[2].type == OptimizerType::lion);
  CHECK_FALSE(groups[2].wd_mult);
  CHECK(groups[3].match == std::vector<std::string>{"*.router.weight", "*.shared_gate.weight"});
  CHECK(groups[3].type == OptimizerType::muon);

  const Config gpt = migrated("megatron", small_megatron +
                                              "--optimizer muon --muon-coefficient-type "
                                              "deepseekv4 --muon-num-ns-steps 10\n");
  CHECK(gpt.optimizer.muon.items.empty());
  CHECK(gpt.optimizer.muon.coefficients.set == MuonSet("deepseek_v4"));
  REQUIRE(gpt.optimizer.groups.size() == 1);
  CHECK(gpt.optimizer.groups[0].match == std::vector<std::string>{"embedding.position.weight"});
  const Config adam =
      migrated("megatron", small_megatron + "--optimizer adam --muon-momentum 0.8\n");
  CHECK(adam.optimizer.muon == MuonConfig{});
}

TEST_CASE("Megatron's clipping of queries and keys, and its largest logit") {
  const auto with = [](const std::string& more) {
    return migrated("megatron", small_megatron + more + "\n");
  };
  const Config plain = with("--qk-clip --log-max-attention-logit");
  CHECK(plain.optimizer.qk_clip_threshold == 100);
  CHECK(plain.optimizer.qk_clip_alpha == 0.5);
  CHECK(plain.log.max_attention_logit);
  const Config own = with("--optimizer muon --qk-clip --qk-clip-threshold 50 --qk-clip-alpha 0.3");
  CHECK(own.optimizer.qk_clip_threshold == 50);
  CHECK(own.optimizer.qk_clip_alpha == 0.3);
  CHECK_FALSE(with("--qk-clip-threshold 50").optimizer.qk_clip_threshold);
}

TEST_CASE("what of Megatron's optimizers is not built is an error that names it") {
  /// Whether the last of the arguments is.
  const auto refused = [](const std::string& more) {
    const std::string last = more.substr(more.rfind("--"));
    return says(said("megatron", small_megatron + more + "\n"),
                "no-counterpart " + last.substr(0, last.find(' ')));
  };
  CHECK(refused("--optimizer adaptive_muon"));
  CHECK(refused("--optimizer muon --muon-scalar-optimizer ademamix"));
  CHECK(refused("--optimizer muon --muon-coefficient-type custom"));
  CHECK(refused("--optimizer muon --muon-num-ns-steps 5 --muon-coefficient-type aol"));
  CHECK(refused("--optimizer muon --tensor-model-parallel-size 2 --muon-tp-mode blockwise"));
  CHECK_FALSE(refused("--optimizer muon --muon-tp-mode blockwise"));
  CHECK_FALSE(refused("--optimizer muon --tensor-model-parallel-size 2 --muon-tp-mode duplicated"));
  CHECK(refused("--min-lr 1e-4 --decoupled-lr 2e-3"));
}

TEST_CASE("timers of Megatron") {
  const Config timed = migrated("megatron", small_megatron +
                                                "--timing-log-level 1 "
                                                "--no-barrier-with-level-1-timing\n");
  CHECK(timed.hooks.timers);
  CHECK(timed.log.timer_level == 1);
  CHECK_FALSE(timed.log.barrier_with_timers);
  const Config plain = migrated("megatron", small_megatron + "--no-barrier-with-level-1-timing\n");
  CHECK_FALSE(plain.hooks.timers);
  CHECK(plain.log.barrier_with_timers);
}

TEST_CASE("nanoGPT's file with its defaults") {
  const Config config = migrated("nanogpt", shakespeare);
  CHECK(config.model.family == Family("gpt2"));
  CHECK(config.model.num_layers == 6);
  CHECK(config.model.hidden_size == 384);
  CHECK(config.model.seq_length == 256);
  CHECK(config.model.vocab_size == 65);
  CHECK(config.model.add_bias_linear == false);
  CHECK(config.model.attention_dropout == 0.2);
  CHECK(config.model.embedding_dropout == 0.2);
  CHECK(config.data.train.at(0).path == "data/shakespeare_char/train.bin");
  CHECK(config.data.validation.path == "data/shakespeare_char/val.bin");
  CHECK(config.data.validation.max_sequences == 200 * 64);
  CHECK(config.train.steps == 5000);
  CHECK(config.train.global_batch_size == 64);
  CHECK(config.train.micro_batch_size == 64);
  CHECK(config.optimizer.beta2 == 0.99);
  CHECK(config.optimizer.weight_decay == 0.1);
  CHECK(config.lr_schedule.style == LrStyle::cosine);
  CHECK(config.lr_schedule.max_lr == 1e-3);
  CHECK(config.lr_schedule.min_lr == 1e-4);
  CHECK(config.lr_schedule.warmup_steps == 100);
  CHECK(config.precision.compute == ComputeType::bf16);
  CHECK(config.output.dir == "out-shakespeare-char");
  const auto messages = said("nanogpt", shakespeare);
  CHECK(says(messages, "not-carried wandb_log"));
  CHECK(says(messages, "not-carried always_save_checkpoint"));
}

TEST_CASE("nanoGPT: products, the command line, a constant rate, a public model") {
  const std::string gpt2 =
      "wandb_log = True\n"
      "batch_size = 12\n"
      "block_size = 1024\n"
      "gradient_accumulation_steps = 5 * 8\n"
      "max_iters = 600000\n"
      "lr_decay_iters = 600000\n"
      "weight_decay = 1e-1\n";
  const Config config = migrated("nanogpt", gpt2);
  CHECK(config.train.global_batch_size == 480);
  CHECK(config.model.num_layers == 12);
  CHECK(config.model.vocab_size == 50304);

  const Config line = migrated(
      "nanogpt", "python train.py --n_layer=4 --device=cpu --compile=False --max_iters=20\n");
  CHECK(line.model.num_layers == 4);
  CHECK(line.train.steps == 20);
  CHECK(line.parallel.device == "cpu");

  const Config tuned =
      migrated("nanogpt", "init_from = 'gpt2-xl'\nlearning_rate = 3e-5\ndecay_lr = False\n");
  CHECK(tuned.model.preset == "gpt2-1.5b");
  CHECK(tuned.model.num_layers == 48);
  CHECK(tuned.lr_schedule.style == LrStyle::constant);
  CHECK(tuned.lr_schedule.min_lr == 0);
  CHECK(tuned.lr_schedule.warmup_steps == 0);
}

TEST_CASE("Megatron's script") {
  const Config config = migrated("megatron", megatron_gpt);
  CHECK(config.model.family == Family("gpt2"));
  CHECK(config.model.num_layers == 96);
  CHECK(config.model.hidden_size == 12288);
  CHECK(config.model.vocab_size == 50257);
  CHECK(config.model.hidden_dropout == 0.1);
  CHECK(config.model.init_method_std == 0.006);
  CHECK(config.train.steps == 500000);
  CHECK(config.train.global_batch_size == 1536);
  CHECK(config.optimizer.beta2 == 0.95);
  CHECK(config.lr_schedule.decay_steps == 430000);
  CHECK(config.lr_schedule.warmup_steps == 430);
  CHECK(config.lr_schedule.style == LrStyle::cosine);
  CHECK(config.precision.compute == ComputeType::fp16);
  CHECK(config.parallel.tensor_parallel == 8);
  CHECK(config.parallel.pipeline_stages == 16);
  CHECK(config.data.train.at(0).path == "data/my-gpt2_text_document");
  CHECK(config.data.validation.fraction == 0.05);
  CHECK(config.data.validation.max_sequences == 15360);
  CHECK(config.checkpoint.every == 10000);
  CHECK(config.output.dir == "runs/gpt3");
  const auto messages = said("megatron", megatron_gpt);
  CHECK(says(messages, "not-carried --attention-backend"));
  CHECK(says(messages, "not-carried --nproc_per_node"));
  CHECK_FALSE(says(messages, "not-carried --lr"));
}

TEST_CASE("Megatron's script with the files of its default tokenizer") {
  std::string script = megatron_gpt;
  const std::string type = "--tokenizer-type GPT2BPETokenizer";
  script.replace(script.find(type), type.size(), "--merge-file $MERGE_FILE");
  CHECK(migrated("megatron", script).model.vocab_size == 50257);
}

TEST_CASE("what a script gets when it starts keeps the name of its variable") {
  const Migrated result = migrate_from(
      "megatron",
      "CHECKPOINT_PATH=$1 # a path\nDATA=$2/${3}_text\nN=$(hostname)\n"
      "pretrain_gpt.py --num-layers 2 --save $CHECKPOINT_PATH --data-path ${DATA} --seed $N "
      "--data-cache-path $4\n",
      "f");
  CAPTURE(result.text);
  CHECK(result.text.find("dir: \"${CHECKPOINT_PATH}\"") != std::string::npos);
  CHECK(result.text.find("train: \"${DATA}\"") != std::string::npos);
  CHECK(result.text.find("cache_dir: \"${ARG4}\"") != std::string::npos);
  CHECK(result.text.find("seed: \"${N}\"") != std::string::npos);
}

TEST_CASE("Megatron's arguments of a Llama model, in one variable as older scripts have them") {
  const std::string script =
      "GPT_ARGS=\"\n"
      "    --num-layers 4 --hidden-size 256 --num-attention-heads 8 --seq-length 128 \\\n"
      "    --max-position-embeddings 128 --group-query-attention --num-query-groups 2 \\\n"
      "    --normalization RMSNorm --swiglu --position-embedding-type rope \\\n"
      "    --disable-bias-linear --untie-embeddings-and-output-weights --ffn-hidden-size 704 \\\n"
      "    --attention-dropout 0.0 --hidden-dropout 0.0 --bf16 \\\n"
      "    --micro-batch-size 2 --global-batch-size 16 --train-samples 1600 \\\n"
      "    --lr 3e-4 --sequence-parallel --use-distributed-optimizer --overlap-grad-reduce \\\n"
      "    --num-layers-per-virtual-pipeline-stage 1 --pipeline-model-parallel-size 2 \\\n"
      "    --tokenizer-type NullTokenizer --vocab-size 255\n"
      "\"\n"
      "torchrun pretrain_gpt.py $GPT_ARGS --data-path 0.3 a_document 0.7 b_document --split "
      "99,1,0\n";
  const Config config = migrated("megatron", script);
  CHECK(config.model.family == Family("llama"));
  CHECK(config.model.num_query_groups == 2);
  CHECK(config.model.vocab_size == 256);
  CHECK(config.model.tie_word_embeddings == false);
  CHECK(config.train.steps == 100);
  CHECK(config.parallel.virtual_pipeline_stages == 2);
  CHECK_FALSE(config.parallel.sequence_parallel);
  CHECK(config.parallel.parallel_optimizer.enable);
  REQUIRE(config.data.train.size() == 2);
  CHECK(config.data.train[1].path == "b_document");
  CHECK(config.data.train[1].weight == 0.7);
  CHECK(config.data.validation.fraction == 0.01);
  CHECK(says(said("megatron", script), "not-carried sequence-parallel"));
}

const std::string megatron_experts = small_megatron + "--num-experts 4 ";

TEST_CASE("Megatron's experts have Megatron's defaults") {
  const MoeConfig moe = migrated("megatron", megatron_experts).moe;
  CHECK(moe.router_topk == 2);
  CHECK(moe.router_load_balancing_type == LoadBalancing("none"));
  CHECK_FALSE(moe.capacity_factor.has_value());
  const auto type_of = [](const std::string& more) {
    return migrated("megatron", megatron_experts + more).moe.router_load_balancing_type;
  };
  CHECK(type_of("--moe-router-load-balancing-type none --moe-aux-loss-coeff 0.01") ==
        LoadBalancing("none"));
  CHECK(type_of("--moe-aux-loss-coeff 0.0") == LoadBalancing("none"));
  CHECK(type_of("--moe-aux-loss-coeff 1e-2") == LoadBalancing("aux_loss"));
  CHECK(migrated("megatron", small_megatron + "--moe-router-topk 2").moe == MoeConfig{});
}

TEST_CASE("Megatron's losses and capacities of experts count over its tokens") {
  const std::string two = megatron_experts + "--micro-batch-size 2 --moe-aux-loss-coeff 0.01 ";
  CHECK(migrated("megatron", two).moe.expert_group_size == 32);
  const MoeConfig by_sequence =
      migrated("megatron", two + "--moe-router-load-balancing-type seq_aux_loss").moe;
  CHECK(by_sequence.expert_group_size == 16);
  CHECK(by_sequence.aux_loss_factor == 0.01);
  CHECK(by_sequence.balance_counts == BalanceCounts("chosen"));
  const MoeConfig limited = migrated("megatron", two + "--moe-expert-capacity-factor 1.25").moe;
  CHECK(limited.capacity_group_size == 32);
  CHECK(limited.overflow == Overflow::probability);
  CHECK(limited.capacity_factor == 1.25);
  const MoeConfig split =
      migrated("megatron", megatron_experts +
                               "--moe-expert-capacity-factor 1.25 "
                               "--tensor-model-parallel-size 2 --sequence-parallel")
          .moe;
  CHECK(split.capacity_group_size == 8);
  const MoeConfig whole = migrated("megatron", megatron_experts +
                                                   "--moe-expert-capacity-factor 1.25 "
                                                   "--tensor-model-parallel-size 2")
                              .moe;
  CHECK(whole.capacity_group_size == 16);
  const std::string position =
      megatron_experts + "--moe-expert-capacity-factor 1.25 --moe-token-drop-policy position";
  CHECK(migrated("megatron", position).moe.overflow == Overflow::position);
  CHECK(says(said("megatron", position), "not-carried moe-token-drop-policy"));
}

TEST_CASE("with a bias or groups of experts Megatron's loss counts what would be chosen without") {
  const std::string loss = megatron_experts + "--moe-aux-loss-coeff 0.01 ";
  const auto counts = [](const std::string& text) {
    return migrated("megatron", text).moe.balance_counts;
  };
  const std::string bias = "--moe-router-score-function sigmoid --moe-router-enable-expert-bias ";
  CHECK(counts(loss + bias) == BalanceCounts("free"));
  CHECK(counts(loss + "--moe-router-num-groups 2 --moe-router-group-topk 1") ==
        BalanceCounts("free"));
  CHECK(counts(loss) == BalanceCounts("chosen"));
  CHECK(counts(megatron_experts + bias) == BalanceCounts("chosen"));  // there is no loss
}

TEST_CASE("layers of experts by Megatron's patterns") {
  const auto moe = [](const std::string& pattern) {
    return migrated("megatron", megatron_experts + "--moe-layer-freq " + pattern).moe;
  };
  CHECK(moe("2").layer_frequency == 2);
  CHECK(moe("\"([0]*1+[1]*3)\"").first_dense_layers == 1);
  CHECK(moe("[0]+[1]*3").first_dense_layers == 1);
  CHECK(moe("[1]*4").first_dense_layers == 0);
}

TEST_CASE("Megatron's layers that differ become kinds of layers") {
  const std::string llama = small_megatron +
                            "--normalization RMSNorm --position-embedding-type rope --swiglu "
                            "--disable-bias-linear ";
  const auto read = [&](const std::string& more) { return migrated("megatron", llama + more); };
  const auto pattern = [&](const std::string& more) {
    return read(more).model.layer_pattern.value_or("");
  };
  CHECK(pattern("--no-rope-freq 2") == "rope, no_rope, rope, no_rope");
  CHECK(pattern("--no-rope-freq [0]*3+[1]") == "rope*3, no_rope");
  CHECK(read("--no-rope-freq 1").model.use_rope == false);
  CHECK(read("--no-rope-freq 8").model.layers.empty());
  const ModelConfig windows = read("--window-size 7,0 --window-attn-skip-freq 3").model;
  CHECK(windows.layer_pattern == "sliding*2, full, sliding");
  CHECK_FALSE(windows.sliding_window);
  REQUIRE(windows.layers.size() == 2);
  CHECK(windows.layers[0].sliding_window == 8);
  CHECK_FALSE(windows.layers[1].sliding_window);
  CHECK(pattern("--window-size 7,0 --window-attn-skip-freq [0,1,1,0]") == "full, sliding*2, full");
  CHECK(read("--window-size 7,0 --window-attn-skip-freq 9").model.sliding_window == 8);
  CHECK_FALSE(read("--window-size 7,0 --window-attn-skip-freq 1").model.sliding_window);
  CHECK(read("--window-attn-skip-freq 2").model.layers.empty());  // no window at all
  const Config experts =
      migrated("megatron", llama + "--num-experts 4 --moe-layer-freq '([0,1])*2' --no-rope-freq 4");
  CHECK(experts.model.layer_pattern == "rope_dense, rope_experts, rope_dense, no_rope_experts");
  CHECK(experts.model.layers[1].experts == true);
  CHECK(experts.moe.layer_frequency == 1);
  CHECK(experts.moe.first_dense_layers == 0);
  const Config first = migrated("megatron", llama +
                                                "--num-experts 4 --moe-layer-freq "
                                                "[0]*2+[1]*2 --no-rope-freq 2");
  CHECK(first.moe.first_dense_layers == 2);
  CHECK(first.model.layer_pattern == "rope, no_rope, rope, no_rope");
}

TEST_CASE("what Megatron's experts do that is not built is an error") {
  const auto refused = [](const std::string& arguments) {
    const Migrated result = migrate_from("megatron", megatron_experts + arguments, "f");
    CHECK_FALSE(result.ok);
    std::string messages;
    for (const Diagnostic& one : result.diagnostics.list()) {
      if (one.severity == Severity::error) messages += one.code + ": " + one.message + "\n";
    }
    return messages;
  };
  for (const char* type : {"global_aux_loss", "sinkhorn"}) {
    CHECK(refused("--moe-aux-loss-coeff 0.01 --moe-router-load-balancing-type " +
                  std::string(type)) ==
          "not-built: --moe-router-load-balancing-type: " + std::string(type) + " is not built\n");
  }
  CHECK(contains(refused("--moe-aux-loss-coeff 0.01 0.02 --moe-router-load-balancing-type "
                         "aux_loss seq_aux_loss"),
                 "several balance losses at once"));
  CHECK(contains(refused("--moe-expert-capacity-factor 1 --context-parallel-size 2"),
                 "not neighbours"));
  CHECK(contains(refused("--moe-expert-capacity-factor 1 --tensor-model-parallel-size 2 "
                         "--sequence-parallel --micro-batch-size 2"),
                 "not neighbours"));
  for (const char* list : {"[0,1]", "[0,1,0,2]", "[0,1,0,1", "[0]*3+", "([0,1]*2", "[0,1]*99999",
                           "[]*4", "[0]*4", "freq", "-1"}) {
    CAPTURE(list);
    CHECK(contains(refused("--moe-layer-freq '" + std::string(list) + "'"), "--moe-layer-freq"));
  }
  CHECK(contains(refused("--moe-apply-probs-on-input"), "weights at the input"));
  CHECK(contains(refused("--moe-input-jitter-eps 0.01"), "noise"));
}

TEST_CASE("SGD of other projects adds weight decay to the gradient") {
  const auto form = [](Project project, const std::string& text, const std::string& more = "") {
    return migrated(project, text, more).optimizer.weight_decay_form;
  };
  CHECK(form("megatron", small_megatron + "--optimizer sgd --weight-decay 0.1") ==
        WeightDecayForm("coupled"));
  CHECK(form("megatron", small_megatron + "--weight-decay 0.1") == WeightDecayForm("decoupled"));
}

TEST_CASE("what contradicts itself, or is a model that cannot be built, is an error") {
  const auto refused = [](const std::string& arguments) {
    const Migrated result = migrate_from("megatron", arguments, "f");
    CHECK_FALSE(result.ok);
    std::string messages;
    for (const Diagnostic& one : result.diagnostics.list()) {
      if (one.severity == Severity::error) messages += one.message + "\n";
    }
    return messages;
  };
  CHECK(refused("--num-layers 2 --bf16 \\\n --fp16") ==
        "--fp16 on line 2 contradicts --bf16 on line 1; both mean precision.compute\n");
  CHECK(refused("--normalization LayerNorm --swiglu").find("both mean model.family") !=
        std::string::npos);
  CHECK(refused("--swiglu --normalization RMSNorm --disable-bias-linear") ==
        "--position-embedding-type rope is not given, so the model has learned positions\n");
  CHECK(refused("hello").find("no keys of Megatron found") != std::string::npos);
}

TEST_CASE("torchtitan's TOML") {
  const std::string rest = "data: {train: c4}\n";
  const auto messages = said("torchtitan", titan);
  CHECK(says(messages, "missing-key data.train"));
  CHECK(says(messages, "not-carried training.dataset"));
  CHECK(says(messages, "not-carried activation_checkpoint.mode"));
  std::string whole = titan;
  whole.replace(whole.find("dataset = \"c4\""), 14,
                "dataset_path = \"c4\"\nglobal_batch_size = 16");
  const Config config = migrated("torchtitan", whole);
  CHECK(config.model.preset == "llama3-8b");
  CHECK(config.model.num_query_groups == 8);
  CHECK(config.model.seq_length == 8192);
  CHECK(config.data.tokenizer == "hf:./assets/hf/Llama-3.1-8B");
  CHECK(config.train.steps == 1000);
  CHECK(config.train.micro_batch_size == 1);
  CHECK(config.train.global_batch_size == 16);
  CHECK(config.optimizer.beta2 == 0.95);
  CHECK(config.optimizer.weight_decay == 0.1);
  CHECK(config.lr_schedule.style == LrStyle::linear);
  CHECK(config.lr_schedule.warmup_steps == 200);
  CHECK(config.parallel.tensor_parallel == 2);
  CHECK(config.parallel.parallel_optimizer.enable);
  CHECK(config.precision.compute == ComputeType::bf16);
  CHECK(config.output.dir == "./outputs");
}

TEST_CASE("torchtitan's decay over the last part of the run, and its debug model") {
  const Config config = migrated("torchtitan",
                                 "[model]\nname = \"llama3\"\nflavor = \"debugmodel\"\n"
                                 "[optimizer]\nlr = 8e-4\n"
                                 "[lr_scheduler]\nwarmup_steps = 2\ndecay_ratio = 0.8\n"
                                 "decay_type = \"linear\"\nmin_lr_factor = 0.1\n"
                                 "[training]\nlocal_batch_size = 8\nglobal_batch_size = 8\n"
                                 "seq_len = 2048\nsteps = 10\ndataset_path = \"c4_test\"\n"
                                 "[parallelism]\ndata_parallel_shard_degree = 1\n");
  CHECK(config.model.num_layers == 6);
  CHECK(config.lr_schedule.style == LrStyle::wsd);
  CHECK(config.lr_schedule.wsd_decay_steps == 8);
  CHECK(config.lr_schedule.wsd_decay_style == DecayStyle("linear"));
  CHECK(config.lr_schedule.min_lr == 0.1 * 8e-4);
  CHECK_FALSE(config.parallel.parallel_optimizer.enable);
}

TEST_CASE("torchtitan's tensor parallelism always splits the sequence") {
  const std::string rest =
      "[model]\nname = \"llama3\"\nflavor = \"405B\"\n"
      "[training]\nlocal_batch_size = 2\nseq_len = 8192\nsteps = 3000\ndataset_path = \"c4\"\n"
      "[parallelism]\nenable_async_tensor_parallel = true\n";
  const Config config = migrated("torchtitan", rest + "tensor_parallel_degree = 8\n");
  CHECK(config.model.num_layers == 126);
  CHECK(config.parallel.tensor_parallel == 8);
  CHECK(config.parallel.sequence_parallel);
  CHECK(config.parallel.tp_comm_overlap.enable);
  CHECK_FALSE(
      migrated("torchtitan", rest + "tensor_parallel_degree = 1\n").parallel.sequence_parallel);
}

TEST_CASE("sizes of a model without its model_type are refused") {
  for (const char* more : {"", ", \"hidden_act\": \"silu\"", ", \"rope_theta\": 1e4"}) {
    CAPTURE(more);
    const std::string text =
        "{\"hidden_size\": 64, \"num_hidden_layers\": 2, \"num_attention_heads\": 4" +
        std::string(more) + "}\n";
    CHECK_FALSE(migrate_from("hugging_face", text, "config.json").ok);
    CHECK(says(said("hugging_face", text), "no-counterpart model.family"));
  }
}

TEST_CASE("what trains something else than all weights is refused by name") {
  const std::string start = "model_name_or_path: models/tiny\nlearning_rate: 1.0e-5\n";
  const auto refused = [&](const std::string& line) {
    return says(said("hugging_face", start + line + "\n"),
                "no-counterpart " + line.substr(0, line.find(':')));
  };
  for (const char* line :
       {"adapter: lora", "finetuning_type: lora", "stage: dpo", "stage: sft", "rl: grpo",
        "lora_rank: 8", "load_in_4bit: true", "quantization_bit: 4"}) {
    CAPTURE(line);
    CHECK(refused(line));
    CHECK_FALSE(migrate_from("hugging_face", start + line + "\n", "a.yaml").ok);
  }
  // A model_type in YAML is another program's.
  const std::string theirs = start + "model_type: LlamaForCausalLM\n";
  CHECK(says(said("hugging_face", theirs + "adapter: qlora\n"), "no-counterpart adapter"));
  CHECK(migrate_from("hugging_face", theirs, "a.yaml").ok);
  for (const char* line :
       {"adapter: ", "finetuning_type: full", "stage: pt", "load_in_8bit: false"}) {
    CAPTURE(line);
    CHECK_FALSE(refused(line));
  }
}

TEST_CASE("llm.c's command line") {
  const Config config = migrated("llmc",
                                 "mpirun -np 8 ./train_gpt2cu \\\n"
                                 "    -i \"dev/data/train.bin\" \\\n"
                                 "    -j \"dev/data/val.bin\" \\\n"
                                 "    -o log124M \\\n"
                                 "    -e \"d12\" \\\n"
                                 "    -b 64 -t 1024 \\\n"
                                 "    -d 524288 \\\n"
                                 "    -r 1 \\\n"
                                 "    -z 1 \\\n"
                                 "    -c 0.1 \\\n"
                                 "    -l 0.0006 \\\n"
                                 "    -q 0.1 \\\n"
                                 "    -u 700 \\\n"
                                 "    -n 5000 \\\n"
                                 "    -v 250 -s 20000 \\\n"
                                 "    -x 18865 \\\n"
                                 "    -h 1\n");
  CHECK(config.model.preset == "gpt2-124m");
  CHECK(config.train.global_batch_size == 512);
  CHECK(config.train.micro_batch_size == 64);
  CHECK(config.train.steps == 18865);
  CHECK(config.lr_schedule.style == LrStyle::cosine);
  CHECK(config.lr_schedule.min_lr < 6.001e-5);
  CHECK(config.lr_schedule.min_lr > 5.999e-5);
  CHECK(config.lr_schedule.warmup_steps == 700);
  CHECK(config.optimizer.weight_decay == 0.1);
  CHECK(config.checkpoint.every == 5000);
  CHECK(config.data.validation.max_sequences == 20 * 64);
  CHECK(config.parallel.parallel_optimizer.enable);
}

TEST_CASE("Hugging Face's config.json and training arguments") {
  const std::string model =
      "{\"architectures\": [\"LlamaForCausalLM\"], \"model_type\": \"llama\", \"hidden_size\": "
      "64,\n"
      " \"num_hidden_layers\": 2, \"num_attention_heads\": 4, \"num_key_value_heads\": 2,\n"
      " \"intermediate_size\": 128, \"vocab_size\": 300, \"max_position_embeddings\": 128,\n"
      " \"rms_norm_eps\": 1e-05, \"rope_theta\": 10000.0, \"torch_dtype\": \"bfloat16\"}\n";
  const Migrated result = migrate_from("hugging_face", model, "config.json");
  REQUIRE(result.ok);
  const std::string rest = good_data + good_train + good_lr;
  const ReadResult after = read(result.text + rest);
  CAPTURE(result.text);
  CHECK_FALSE(after.diagnostics.has_errors());
  CHECK(after.config.model.family == Family("llama"));
  CHECK(after.config.model.num_query_groups == 2);
  CHECK(says(said("hugging_face", model), "missing-key data.train"));

  const std::string arguments =
      "model_name_or_path: models/tiny\n"
      "train_file: data/a.txt\n"
      "per_device_train_batch_size: 4\n"
      "gradient_accumulation_steps: 2\n"
      "learning_rate: 2.0e-5\n"
      "max_steps: 1000\n"
      "warmup_ratio: 0.03\n"
      "lr_scheduler_type: cosine\n"
      "bf16: true\n"
      "report_to: [wandb]\n"
      "output_dir: out\n";
  const Migrated run = migrate_from("hugging_face", arguments, "args.yaml");
  REQUIRE(run.ok);
  CAPTURE(run.text);
  CHECK(run.text.find("  from: models/tiny") != std::string::npos);
  CHECK(run.text.find("  warmup_ratio: 0.03") != std::string::npos);
  CHECK(run.text.find("  compute: bf16  # bf16 true, line 9") != std::string::npos);
  const auto messages = said("hugging_face", arguments);
  CHECK(run.text.find("  micro_batch_num: 2  # gradient_accumulation_steps 2") !=
        std::string::npos);
  CHECK(says(messages, "not-carried report_to"));
}

TEST_CASE("any text migrates or is refused") {
  for (const Project project : {Project("hugging_face"), Project("nanogpt"), Project("torchtitan"),
                                Project("llmc"), Project("megatron")}) {
    for (const char* text : {"",
                             "\n",
                             "--",
                             "-",
                             "--=",
                             "a=",
                             "=b",
                             "[",
                             "[x",
                             "x = [",
                             "x = '",
                             "--x \"",
                             "--x '",
                             "A=$A\n--num-layers $A",
                             "A=${B\n--lr $A",
                             "--num-layers",
                             "--lr -- 3",
                             "{\"a\": [1,",
                             "n_layer = 1e99999",
                             "n_layer = 9 * 9 * 9999999999 * 99999999999",
                             "batch_size = -1\nblock_size = 0",
                             "-d 1 -t 0",
                             "[training]\nsteps = 1e300\n",
                             "--train-samples 1e300 --global-batch-size 1e-300",
                             "\\",
                             "--a\\\n",
                             "#"}) {
      CAPTURE(text);
      migrate_from(project, text, "f");
    }
  }
}

TEST_CASE("a factor of Megatron's RoPE scaling belongs to its switch") {
  const std::string llama =
      "pretrain_gpt.py --num-layers 2 --hidden-size 64 --num-attention-heads 4 --seq-length 32 "
      "--swiglu --normalization RMSNorm --position-embedding-type rope --disable-bias-linear ";
  const auto with = [&](const std::string& more) {
    return migrate_from("megatron", llama + more + "\n", "run.sh");
  };
  CHECK(contains(with("--use-rope-scaling --rope-scaling-factor 32").text, "factor: 32"));
  CHECK(contains(with("--use-rope-scaling").text, "factor: 8"));
  CHECK_FALSE(contains(with("--rope-scaling-factor 32").text, "factor: 32"));
  for (const char* other : {"--multi-latent-attention", "--mtp-num-layers 1", "--window-size 128 1",
                            "--softmax-type off-by-one"}) {
    CAPTURE(other);
    CHECK_FALSE(with(other).ok);
  }
  CHECK(with("--mtp-num-layers 0 --softmax-type vanilla").ok);
}

TEST_CASE("Megatron's forms of layers are carried") {
  const std::string plain =
      "pretrain_gpt.py --num-layers 2 --hidden-size 64 --num-attention-heads 4 --seq-length 32 "
      "--normalization RMSNorm --position-embedding-type rope ";
  const auto model = [&](const std::string& more) {
    const Migrated result = migrate_from("megatron", plain + more + "\n", "run.sh");
    INFO(result.text);
    CHECK(result.ok);
    return read_config_text(result.text, "run.yaml", {}).config.model;
  };
  const ModelConfig gelu = model("");
  CHECK(gelu.gated_linear_unit == false);
  CHECK(gelu.activation == Activation::gelu);
  CHECK(gelu.add_bias_linear == true);
  CHECK(gelu.ffn_hidden_size == 256);
  const ModelConfig squared = model("--squared-relu --disable-bias-linear --window-size 127,0");
  CHECK(squared.activation == Activation::relu2);
  CHECK(squared.gated_linear_unit == false);
  CHECK(squared.sliding_window == 128);
  const ModelConfig quick = model(
      "--quick-geglu --glu-linear-offset 1.0 --activation-func-clamp-value 7.0 "
      "--window-size 63 0");
  CHECK(quick.activation == Activation::quick_gelu);
  CHECK_FALSE(quick.gated_linear_unit);
  CHECK(quick.glu_linear_offset == 1);
  CHECK(quick.activation_func_clamp_value == 7);
  CHECK(quick.sliding_window == 64);
  const ModelConfig turned = model(
      "--swiglu --apply-layernorm-1p --rotary-interleaved --rotary-percent 0.5 "
      "--rotary-seq-len-interpolation-factor 4 --softmax-scale 0.25");
  CHECK(turned.zero_centered_norm);
  CHECK(turned.rotary_interleaved);
  CHECK(turned.rotary_percent == 0.5);
  CHECK(turned.rope_scaling.type == RopeType::linear);
  CHECK(turned.rope_scaling.factor == 4);
  CHECK(turned.softmax_scale == 0.25);
  const ModelConfig gated =
      model("--swiglu --attention-output-gate --softmax-type learnable --qk-l2-norm");
  CHECK(gated.attention_output_gate);
  CHECK(gated.softmax_type == SoftmaxType("learnable"));
  CHECK(gated.qk_layernorm);
  CHECK(gated.qk_layernorm_form == QkNormForm::l2);
}

}  // namespace trainctl::test
