// Files like the published examples of other projects: what migrate makes of them trains, once its
// sizes are reduced.
#include "catch.h"
#include "runs.h"

namespace {

struct Example {
  const char* project;
  const char* file;
  const char* text;
  std::vector<std::string> set;   // besides what all of them need
  std::vector<std::string> said;  // on stderr, of what is missing or not carried
};

const char* const megatron_gpt3 = R"(#!/bin/bash
# Runs the "175B" parameter model
export CUDA_DEVICE_MAX_CONNECTIONS=1
GPUS_PER_NODE=8
MASTER_ADDR=localhost
MASTER_PORT=6000
NUM_NODES=1
NODE_RANK=0
WORLD_SIZE=$(($GPUS_PER_NODE*$NUM_NODES))
CHECKPOINT_PATH=$1 #<Specify path>
TENSORBOARD_LOGS_PATH=$2 #<Specify path>
VOCAB_FILE=$3 #<Specify path to file>/gpt2-vocab.json
MERGE_FILE=$4 #<Specify path to file>/gpt2-merges.txt
DATA_PATH=$5 #<Specify path and file prefix>_text_document
DISTRIBUTED_ARGS=(
    --nproc_per_node $GPUS_PER_NODE
    --nnodes $NUM_NODES
    --master_addr $MASTER_ADDR
    --master_port $MASTER_PORT
)
GPT_MODEL_ARGS=(
    --num-layers 96
    --hidden-size 12288
    --num-attention-heads 96
    --seq-length 2048
    --max-position-embeddings 2048
    --attention-backend auto # Can use (flash/fused/unfused/local)
)
TRAINING_ARGS=(
    --micro-batch-size 1
    --global-batch-size 1536
    --rampup-batch-size 16 16 5859375
    --train-iters 500000
    --weight-decay 0.1
    --adam-beta1 0.9
    --adam-beta2 0.95
    --init-method-std 0.006
    --clip-grad 1.0
    --fp16
    --lr 6.0e-5
    --lr-decay-style cosine
    --min-lr 6.0e-6
    --lr-warmup-fraction .001
    --lr-decay-iters 430000
)
MODEL_PARALLEL_ARGS=(
        --tensor-model-parallel-size 8
        --pipeline-model-parallel-size 16
)
DATA_ARGS=(
    --data-path $DATA_PATH
    --vocab-file $VOCAB_FILE
    --merge-file $MERGE_FILE
    --split 949,50,1
)
EVAL_AND_LOGGING_ARGS=(
    --log-interval 100
    --save-interval 10000
    --eval-interval 1000
    --save $CHECKPOINT_PATH
    --load $CHECKPOINT_PATH
    --eval-iters 10
    --tensorboard-dir $TENSORBOARD_LOGS_PATH
)
torchrun ${DISTRIBUTED_ARGS[@]} pretrain_gpt.py \
    ${GPT_MODEL_ARGS[@]} \
    ${TRAINING_ARGS[@]} \
    ${MODEL_PARALLEL_ARGS[@]} \
    ${DATA_ARGS[@]} \
    ${EVAL_AND_LOGGING_ARGS[@]}
)";

const char* const nanogpt_gpt2 =
    R"(# config for training GPT-2 (124M) down to very nice loss of ~2.85 on 1 node of 8X A100 40GB
# launch as the following (e.g. in a screen session) and wait ~5 days:
# $ torchrun --standalone --nproc_per_node=8 train.py config/train_gpt2.py

wandb_log = True
wandb_project = 'owt'
wandb_run_name='gpt2-124M'

# these make the total batch size be ~0.5M
# 12 batch size * 1024 block size * 5 gradaccum * 8 GPUs = 491,520
batch_size = 12
block_size = 1024
gradient_accumulation_steps = 5 * 8

# this makes total number of tokens be 300B
max_iters = 600000
lr_decay_iters = 600000

# eval stuff
eval_interval = 1000
eval_iters = 200
log_interval = 10

# weight decay
weight_decay = 1e-1
)";

const char* const torchtitan_llama3 = R"([job]
dump_folder = "./outputs"
description = "Llama 3 8B training"

[profiling]
enable_profiling = true
save_traces_folder = "profile_trace"
profile_freq = 100

[metrics]
log_freq = 10
enable_tensorboard = true
save_tb_folder = "tb"

[model]
name = "llama3"
flavor = "8B"
hf_assets_path = "./assets/hf/Llama-3.1-8B"
# converters = ["float8"]

[optimizer]
name = "AdamW"
lr = 3e-4
eps = 1e-8

[lr_scheduler]
warmup_steps = 200  # lr scheduler warm up

[training]
local_batch_size = 1
seq_len = 8192
max_norm = 1.0  # grad norm clipping
steps = 1000
dataset = "c4"

[parallelism]
data_parallel_replicate_degree = 1
data_parallel_shard_degree = -1
tensor_parallel_degree = 1
pipeline_parallel_degree = 1
context_parallel_degree = 1

[checkpoint]
enable = false
folder = "checkpoint"
interval = 500
last_save_model_only = true
export_dtype = "float32"
async_mode = "disabled"

[compile]
enable=false
components = ["model", "loss"]

[activation_checkpoint]
mode = "selective"  # ["none", "selective", "full"]
selective_ac_option = "op"

[float8]
enable_fsdp_float8_all_gather = false
precompute_float8_dynamic_scale_for_fsdp = false
filter_fqns = ["output"]
)";

const char* const llmc_gpt2 = R"(# GPT-2 (124M) repro on FineWeb
make train_gpt2cu USE_CUDNN=1
out_dir="log_gpt2_124M"
done_file="$out_dir/DONE_00018865"

mpirun -np 8 ./train_gpt2cu \
            -i "dev/data/fineweb10B/fineweb_train_*.bin" \
            -j "dev/data/fineweb10B/fineweb_val_*.bin" \
            -o $out_dir \
            -v 250 -s 20000 -g 144 \
            -h 1 \
            -b 64 -t 1024 \
            -d 524288 \
            -r 0 \
            -z 1 \
            -c 0.1 \
            -l 0.0006 \
            -q 0.0 \
            -u 700 \
            -n 5000 \
            -y 1 \
            -e "d12"
)";

const char* const hf_arguments = R"({
  "output_dir": "out",
  "overwrite_output_dir": false,
  "do_train": true,
  "per_device_train_batch_size": 4,
  "gradient_accumulation_steps": 2,
  "learning_rate": 5e-05,
  "weight_decay": 0.01,
  "adam_beta2": 0.98,
  "max_grad_norm": 1.0,
  "num_train_epochs": 0.02,
  "lr_scheduler_type": "cosine",
  "warmup_ratio": 0.1,
  "logging_steps": 10,
  "save_strategy": "steps",
  "save_steps": 500,
  "save_total_limit": 2,
  "seed": 42,
  "bf16": true,
  "dataloader_num_workers": 4,
  "report_to": ["tensorboard"],
  "gradient_checkpointing": true
}
)";

std::vector<Example> examples() {
  const std::vector<std::string> small = {"model.num_layers=2", "model.hidden_size=32",
                                          "model.num_attention_heads=4", "model.seq_length=16",
                                          "model.vocab_size=256"};
  const std::vector<std::string> short_run = {"train.steps=3", "train.global_batch_size=4",
                                              "train.micro_batch_size=1",
                                              "lr_schedule.warmup_steps=1"};
  const auto sets = [](std::vector<std::string> a, const std::vector<std::string>& b) {
    a.insert(a.end(), b.begin(), b.end());
    return a;
  };
  return {
      {"megatron-args",
       "train_gpt3.sh",
       megatron_gpt3,
       sets(sets(small, short_run),
            {"lr_schedule.decay_steps=3", "parallel.tensor_parallel=1",
             "parallel.pipeline_stages=1", "train.rampup_batch_size=[2, 1, 6]"}),
       {"--load"}},
      {"nanogpt",
       "train_gpt2.py",
       nanogpt_gpt2,
       sets(sets(small, short_run), {"lr_schedule.decay_steps=3", "parallel.device=cpu"}),
       {"wandb_log"}},
      {"torchtitan",
       "llama3_8b.toml",
       torchtitan_llama3,
       sets(small, {"train.steps=3", "lr_schedule.warmup_steps=1", "model.ffn_hidden_size=64",
                    "model.num_query_groups=2"}),
       {"training.dataset", "missing-key", "data.train"}},
      {"llm.c", "run_gpt2_124M.sh", llmc_gpt2, sets(small, short_run), {"-i"}},
      {"hf",
       "args.json",
       hf_arguments,
       sets(small, {"model.family=gpt2"}),
       {"data.train", "report_to"}},
  };
}

}  // namespace

TEST_CASE("an example of each project migrates to a configuration that trains") {
  for (const Example& example : examples()) {
    const TempDir dir;
    const std::string theirs = dir.write(example.file, example.text);
    const std::string ours = dir / "a.yaml";
    const Outcome migrated = trainctl({"migrate", "--from", example.project, theirs, "-o", ours});
    CAPTURE(example.project, migrated.err, read_file(ours));
    REQUIRE(migrated.exit_code == 0);
    for (const std::string& word : example.said) CHECK(contains(migrated.err, word));
    const std::string text = dir.write("a.txt", std::string(20000, 'a'));
    std::vector<std::string> words = {"train", ours, "--output", dir / "run"};
    std::vector<std::string> set = example.set;
    set.insert(set.end(),
               {"data.train=" + text, "data.validation.path=" + text, "data.tokenizer=byte"});
    for (const std::string& one : set) words.insert(words.end(), {"--set", one});
    const Outcome trained =
        run_program(TRAINCTL_PROGRAM, words, {"CHECKPOINT_PATH=" + (dir / "out"), "DATA_PATH=d"});
    CAPTURE(words, trained.err);
    CHECK(trained.exit_code == 0);
    CHECK(metrics_of(dir / "run").size() >= 3);
  }
}
