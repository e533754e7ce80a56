// The time of each operation of a step, and its products, by the tables that look at the calls.
#include "bench/op_times.h"

#include <algorithm>
#include <numeric>

#include "catch.h"
#include "engine/engine.h"
#include "ops/kernel_entries.h"
#include "sample_run.h"

using namespace trainctl;

namespace {

double flops_in(const std::vector<ProductCall>& list) {
  double flops = 0;
  for (const ProductCall& call : list) {
    for (const MatmulShape& shape : call.shapes) flops += flops_of(shape);
  }
  return flops;
}

struct Looked {
  std::vector<OpRow> rows;
  std::vector<ProductCall> products;
  std::vector<Matmul> matmuls;
  double span = 0;
};

/// One step of the sample, timed; its products are kept in another one.
Looked look(const std::vector<std::string>& options) {
  Looked found;
  OpTimes times(DeviceKind::cpu);
  SampleRun run{.set_options = options, .ranks = 1, .steps = 1, .world = {}};
  run.prepare = [&](Engine&, const Plan&, World&) { times.begin(); };
  run.inspect = [&](Engine&, const Plan&, World&) {
    found.rows = times.end();
    found.span = times.span();
  };
  // The rank is the calling thread where it is alone.
  const std::unique_ptr<World> alone = self_world();
  train_sample_rank(run, *alone);
  run.prepare = [&](Engine&, const Plan&, World&) {
    times.record(&found.products);
    record_matmuls(&found.matmuls);
  };
  run.inspect = [&](Engine& engine, const Plan&, World&) {
    times.record(nullptr);
    record_matmuls(nullptr);
    for (const ProductCall& call : found.products) call.run(engine.ops());
  };
  train_sample_rank(run, *alone);
  return found;
}

const OpRow* find(const Looked& looked, std::string_view name) {
  const auto found = std::ranges::find(looked.rows, name, &OpRow::name);
  return found == looked.rows.end() ? nullptr : &*found;
}

}  // namespace

TEST_CASE("each call of a step is timed once, and they fit in its span") {
  const Looked looked = look({});
  double sum = 0;
  double flops = 0;
  for (const OpRow& row : looked.rows) {
    INFO(row.name);
    CHECK(row.calls > 0);
    CHECK(row.seconds >= 0);
    CHECK(row.cost.bytes > 0);
    sum += row.seconds;
    if (std::string(row.name).starts_with("matmul")) flops += row.cost.flops;
  }
  CHECK(sum <= looked.span);
  CHECK(flops == flops_in(looked.products));
  for (const char* name : {"matmul", "layernorm_forward", "attention_backward", "adamw", "memset",
                           "cross_entropy_gradient", "step_verdict"}) {
    INFO(name);
    CHECK(find(looked, name) != nullptr);
  }
  // On a CPU this is a product and then GELU: they are timed, it is not.
  CHECK(find(looked, "matmul_gelu") == nullptr);
  CHECK(find(looked, "gelu_forward") != nullptr);
}

TEST_CASE("the products that are kept are those of the step") {
  for (const std::string more : {"precision.compute=fp32", "precision.compute=bf16"}) {
    const Looked looked = look({more});
    double flops = 0;
    for (const Matmul& one : looked.matmuls) flops += flops_of(shape_of(one));
    CHECK(flops > 0);
    CHECK(flops_in(looked.products) == flops);
    CHECK(looked.products.size() == looked.matmuls.size());  // one by one on a CPU
  }
}

TEST_CASE("tables are the device's own again where nobody looks") {
  const Kernels* own = &kernels_for(DeviceKind::cpu);
  {
    const OpTimes times(DeviceKind::cpu);
    CHECK(&kernels_for(DeviceKind::cpu) != own);
    CHECK(&own_kernels(DeviceKind::cpu) == own);
  }
  CHECK(&kernels_for(DeviceKind::cpu) == own);
}

TEST_CASE("the cost of a call is what it moves and computes") {
  float data[8] = {};
  const auto tensor = [&](const Shape& shape) {
    return Tensor{data, shape, DType::f32, DeviceKind::cpu};
  };
  const Matmul product{.a = tensor({2, 3}), .b = tensor({3, 4}), .c = tensor({2, 4})};
  CHECK(cost_of(product).flops == 2 * 2 * 3 * 4);
  CHECK(cost_of(product).bytes == 4 * (6 + 12 + 8));
  Matmul sum = product;
  sum.accumulate = true;
  CHECK(cost_of(sum).bytes == 4 * (6 + 12 + 16));
  CHECK(cost_of(Add{tensor({8}), tensor({8}), tensor({8})}).bytes == 3 * 32);
  // A causal head of 4 positions sees 10 pairs.
  const AttentionShape shape{
      .sequences = 2, .query_length = 4, .key_length = 4, .heads = 3, .kv_heads = 3, .head_dim = 8};
  CHECK(attention_product_flops(shape) == 2.0 * 2 * 3 * 10 * 8);
}
