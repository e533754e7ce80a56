// Mistakes that only programs for devices can make, planted one at a time in the calls of the built
// program (CUDA_ON_HOST_FAULT, plantable.h): each must be found, and none where there is none.
#include <algorithm>
#include <filesystem>

#include "../cli/process.h"
#include "catch.h"
#include "emulated.h"
#include "plantable.h"

namespace {

const std::string small = R"(
model:
  {family: gpt2, num_layers: 2, hidden_size: 16, ffn_hidden_size: 32, num_attention_heads: 4,
   seq_length: 16, vocab_size: 31, make_vocab_size_divisible_by: 16, tie_word_embeddings: true}
data: {train: none}
train: {steps: 100, global_batch_size: 4, seed: 1234}
optimizer: {type: adamw, weight_decay: 0.1, clip_grad_norm: 0.5}
lr_schedule: {style: cosine, max_lr: 1.0e-2, min_lr: 1.0e-3, warmup_steps: 2}
parallel: {device: cuda, bucket_size: 2000, deadline_seconds: 5}
)";

using Words = std::vector<std::string>;

/// Two steps of a layout with a mistake, or with none.
Outcome verify(const std::string& fault, const std::string& layout, const Words& environment,
               const Words& more = {}) {
  const TempDir dir;
  Words words{"verify",  "--config", dir.write("a.yaml", small), "--layouts", layout,
              "--steps", "2"};
  words.insert(words.end(), more.begin(), more.end());
  Words all{emulated, "CUDA_ON_HOST_FAULT=" + fault};
  all.insert(all.end(), environment.begin(), environment.end());
  return trainctl(words, all);
}

const Words bf16{"--set", "precision.compute=bf16"};
const Words one_device{"CUDA_ON_HOST_DEVICES=1"};
const Words sharing{"--set", "parallel.share_devices=true"};

struct Row {
  std::string fault;
  std::string layout;
  std::string found;  // a part of what the program says, or of how it ends
  Words environment{};
  Words more{};
  std::string test{};  // a case of test_cuda_ops that finds it instead
};

const std::string differs = "DIFFERS";
const std::string signalled = "ended by a signal";

// docs/gpu.md has them, too.
const Row rows[] = {
    {"compute_waits_not", "dp2", differs},
    {"others_wait_not", "dp2", differs},
    {"ranks_wait_not", "tp2", differs, one_device, sharing},
    {"ranks_wait_not", "pp2+m2", differs, one_device, sharing},
    {"no_queries", "dp1", differs},
    {"host_read", "dp1", signalled, {"CUDA_ON_HOST_CLOSED=1"}},
    {"other_stream", "tp2", differs},
    {"two_streams", "tp2", differs},
    {"one_less", "dp2", "ended early"},
    {"mean", "tp2", differs},
    {"one_device", "dp2", "two ranks of a communicator on one device"},
    {"unaligned", "dp1", "less aligned than the algorithm supposes"},
    {"less_shared", "dp1", "an array in shared memory is overrun"},
    {"one_block_less", "dp1", differs},
    {"early_batch", "dp1+m4", differs, {"CUDA_ON_HOST_ORDER=lazy"}},
    {"early_verdict", "dp1", differs, {"CUDA_ON_HOST_ORDER=lazy"}},
    {"old_state", "dp1", differs},
    {"no_zeroes", "dp1", differs},
    {"short_copy", "dp1", differs},
    {"pageable", "dp1", "memory that is not page-locked", {"CUDA_ON_HOST_PAGE_LOCKED=1"}},
    {"no_casts", "dp1", differs, {}, bf16},
    {"no_bias", "dp1", differs},
    {"one_of_batch", "dp1", differs},
    {"no_sums", "dp1+m2", differs},
    {"tf32", "dp1", differs},
    {"early_end", "dp1", differs, {"CUDA_ON_HOST_ORDER=lazy"}},
    {"no_last_chunk", "dp1+head_chunk24", differs},
    {"no_last_part", "", "dq, expected.dq", {}, {}, "attention by cuDNN"},
};

Outcome found_by(const Row& row) {
  if (row.test.empty()) return verify(row.fault, row.layout, row.environment, row.more);
  const auto folder = std::filesystem::path(TRAINCTL_PROGRAM).parent_path();
  return run_program((folder / "test_cuda_ops").string(), {row.test},
                     {emulated, "TRAINCTL_CUDNN_LIBRARY=" TRAINCTL_EMULATED_CUDA,
                      "CUDA_ON_HOST_FAULT=" + row.fault});
}

std::string told(const Outcome& outcome) {
  return outcome.out + outcome.err + (outcome.exit_code >= 128 ? signalled : "");
}

}  // namespace

TEST_CASE("no mistake is found where none is planted") {
  const Outcome sound =
      verify("", "dp1,dp1+head_chunk24,dp1+m2,dp1+m4,dp2,tp2", {"CUDA_ON_HOST_PAGE_LOCKED=1"});
  INFO(told(sound));
  CHECK(sound.exit_code == 0);
  const Outcome closed = verify("", "dp1", {"CUDA_ON_HOST_CLOSED=1", "CUDA_ON_HOST_ORDER=lazy"});
  INFO(told(closed));
  CHECK(closed.exit_code == 0);
  const Outcome shared = verify("", "tp2,pp2+m2", one_device, sharing);
  INFO(told(shared));
  CHECK(shared.exit_code == 0);
  const Outcome half = verify("", "dp1", {}, bf16);
  INFO(told(half));
  CHECK(half.exit_code == 0);
}

TEST_CASE("mistakes that only programs for devices make are found") {
  for (const Row& row : rows) {
    const Outcome outcome = found_by(row);
    INFO(row.fault << "\n" << told(outcome));
    CHECK(outcome.exit_code != 0);
    CHECK(contains(told(outcome), row.found));
  }
}

TEST_CASE("every mistake that can be planted has a row") {
  for (const char* fault : cuda_on_host::plantable) {
    INFO(fault);
    CHECK(std::ranges::any_of(rows, [&](const Row& row) { return row.fault == fault; }));
    CHECK(contains(read_file(TRAINCTL_SOURCE_DIR "/docs/gpu.md"), std::string("`") + fault + "`"));
  }
}
