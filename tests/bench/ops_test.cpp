// The cases of bench ops: one at least for each kernel, and they run.
#include "base/parallel_for.h"
#include "base/scratch.h"
#include "bench/ops/op_bench.h"

#include <set>

#include "base/error.h"
#include "bench/figures.h"
#include "bench/overlap.h"
#include "catch.h"
#include "config/read/read.h"
#include "ops/kernels.h"
#include "sample_run.h"

using namespace trainctl;

namespace {

/// The operations of `plan` on this thread.
struct OnCpu {
  Stream stream{DeviceKind::cpu, "test", Stream::Mode::run_inline};
  Slab scratch{DeviceKind::cpu, {{"scratch", {scratch_bytes(DeviceKind::cpu, 1)}, DType::u8}}};
  OpContext ops{.kernels = &kernels_for(DeviceKind::cpu),
                .stream = &stream,
                .scratch = static_cast<std::byte*>(scratch.at("scratch").data),
                .scratch_bytes = scratch.at("scratch").bytes()};
};

Plan sample_plan(const std::vector<std::string>& more) {
  const ReadResult read = read_config_text(sample_yaml(), "sample.yaml", more);
  REQUIRE_FALSE(read.diagnostics.has_errors());
  return plan_on_threads(read.config);
}

}  // namespace

TEST_CASE("every kernel of the table has a case, and all cases run") {
  using Options = std::vector<std::string>;
  const Options experts{"model.family=llama", "moe.num_experts=4", "moe.router_topk=2",
                        "moe.ffn_hidden_size=32", "precision.compute=bf16"};
  for (const Options& more : {Options{}, experts}) {
    const Plan plan = sample_plan(more);
    const OnCpu cpu;
    OpBench bench(plan, cpu.ops);
    add_row_cases(bench);
    add_attention_cases(bench);
    add_product_cases(bench, 1e9);
    add_expert_cases(bench);
    add_step_cases(bench);
    std::set<std::string> kernels;
    std::set<std::string> names;
    for (const OpCase& op : bench.cases()) {
      INFO(op.name);
      CHECK(op.bytes > 0);
      CHECK_NOTHROW(op.run());
      kernels.insert(op.kernel);
      CHECK(names.insert(op.name).second);
    }
    for (const std::string_view name : missing_kernels(Kernels{})) {
      INFO(name);
      CHECK(kernels.contains(std::string(name)));
    }
    CHECK(names.contains("matmul experts.up forward") == !more.empty());
  }
}

TEST_CASE("the bytes and FLOPs of cases are those of their tensors") {
  const Plan plan = sample_plan({"model.hidden_size=32", "model.ffn_hidden_size=96",
                                 "model.seq_length=16", "train.micro_batch_size=2"});
  const OnCpu cpu;
  OpBench bench(plan, cpu.ops);
  add_row_cases(bench);
  add_product_cases(bench, 1e9);
  const auto find = [&](const std::string& name) -> const OpCase& {
    for (const OpCase& op : bench.cases()) {
      if (op.name == name) return op;
    }
    FAIL(name);
    return bench.cases().front();
  };
  const double tokens = 2 * 16;
  CHECK(find("add").bytes == 3 * tokens * 32 * 4);
  CHECK(find("gelu_backward").bytes == 3 * tokens * 96 * 4);
  CHECK(find("matmul mlp.up forward").flops == 2 * tokens * 32 * 96);
  CHECK(find("matmul mlp.up forward").bytes == 4 * (tokens * 32 + tokens * 96 + 32 * 96));
  CHECK(find("matmul mlp.down weight gradient").flops == 2 * tokens * 32 * 96);
  // 2 x 128^3 takes 4 ms at that rate, and 2 x 256^3 34 ms.
  CHECK(find("matmul square 128").flops == 2.0 * 128 * 128 * 128);
  for (const OpCase& op : bench.cases()) CHECK(op.name != "matmul square 256");
}

TEST_CASE("two cases cannot mean different tensors by one name") {
  const Plan plan = sample_plan({});
  const OnCpu cpu;
  const OpBench bench(plan, cpu.ops);
  const Tensor first = bench.values("a", {2, 3}, DType::f32);
  CHECK(bench.values("a", {2, 3}, DType::f32).data == first.data);
  CHECK_THROWS_AS(bench.values("a", {3, 2}, DType::f32), Error);
  CHECK_THROWS_AS(bench.values("a", {2, 3}, DType::bf16), Error);
}

TEST_CASE("the limits of a machine are measured") {
  const OnCpu cpu;
  set_thread_count(1);
  MachineLimits limits(cpu.ops, DType::f32);
  limits.measure();
  CHECK(limits.products() > 1e6);
  CHECK(limits.copies() > 1e6);
}
