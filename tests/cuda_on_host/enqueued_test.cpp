// How much a step enqueues: what of it is small costs a device more time to begin than to do.
#include <dlfcn.h>

#include "../engine/sample_run.h"
#include "catch.h"
#include "device/cuda_device.h"
#include "faults.h"
#include "plan/plan.h"

using namespace trainctl;

namespace {

struct Counts {
  std::int64_t kernels = 0, products = 0, attention = 0, copies = 0, memsets = 0;
  std::int64_t all() const { return kernels + products + attention + copies + memsets; }
};

Counts enqueued() {
  void* module = dlopen(cuda_module_file().c_str(), RTLD_NOW | RTLD_LOCAL);
  REQUIRE(module != nullptr);
  void* symbol = dlsym(module, "cuda_on_host_faults");
  REQUIRE(symbol != nullptr);
  const auto& faults = *reinterpret_cast<const cuda_on_host::Faults* (*)()>(symbol)();
  return {.kernels = faults.enqueued("kernel"),
          .products = faults.enqueued("product"),
          .attention = faults.enqueued("attention"),
          .copies = faults.enqueued("copy"),
          .memsets = faults.enqueued("memset")};
}

/// Counts of a run of `steps` steps, including the work before and after them.
Counts enqueued_in(const std::vector<std::string>& options, int steps) {
  const Counts before = enqueued();
  SampleRun run{.set_options = options, .ranks = 1, .steps = steps, .world = {}};
  train_sample(run);
  const Counts after = enqueued();
  return {.kernels = after.kernels - before.kernels,
          .products = after.products - before.products,
          .attention = after.attention - before.attention,
          .copies = after.copies - before.copies,
          .memsets = after.memsets - before.memsets};
}

/// Counts of one step.
Counts enqueued_by_step(const std::vector<std::string>& options) {
  const Counts few = enqueued_in(options, 2);
  const Counts more = enqueued_in(options, 3);
  return {.kernels = more.kernels - few.kernels,
          .products = more.products - few.products,
          .attention = more.attention - few.attention,
          .copies = more.copies - few.copies,
          .memsets = more.memsets - few.memsets};
}

/// GPT-2 of 12 layers in bf16, narrow, row by row; the number of tokens counts only for chunks.
const std::vector<std::string> gpt2{"parallel.device=cuda",
                                    "parallel.attention_backend=cudnn",
                                    "parallel.cuda_graphs=false",
                                    "precision.compute=bf16",
                                    "model.family=gpt2",
                                    "model.num_layers=12",
                                    "model.hidden_size=64",
                                    "model.ffn_hidden_size=64",
                                    "model.num_attention_heads=1",
                                    "model.seq_length=128",
                                    "model.tie_word_embeddings=true",
                                    "model.hidden_dropout=0",
                                    "model.attention_dropout=0",
                                    "train.global_batch_size=2",
                                    "train.micro_batch_size=2"};

}  // namespace

TEST_CASE("a step of GPT-2 with 12 layers enqueues 521 kernels, copies and memsets") {
  const Counts one = enqueued_by_step(gpt2);
  INFO(one.kernels << " kernels, " << one.products << " products, " << one.attention
                   << " executions of cuDNN, " << one.copies << " copies, " << one.memsets
                   << " memsets");
  CHECK(one.all() == 521);
  CHECK(one.attention == 2 * 12);
  // Each layer has 14 products, the head 3.
  CHECK(one.products == 14 * 12 + 3);
  // Seven more for each further chunk of the head.
  const Counts chunks = enqueued_by_step(with(gpt2, {"parallel.head_chunk=64"}));
  CHECK(chunks.all() == 521 + 3 * 7);
  CHECK(chunks.products == one.products + 3 * 3);
}

TEST_CASE("sums in any order take a memset more for each layer") {
  const Counts ordered = enqueued_by_step(gpt2);
  const Counts any = enqueued_by_step(with(gpt2, {"train.deterministic_mode=false"}));
  CHECK(any.memsets == ordered.memsets + 12);
  CHECK(any.all() == ordered.all() + 12);
}
