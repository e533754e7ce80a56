#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <functional>
#include <nlohmann/json.hpp>
#include <ostream>

#include "base/parallel_for.h"
#include "bench/bench_setup.h"
#include "bench/expert_ops.h"
#include "bench/figures.h"
#include "bench/op_case.h"
#include "engine/memory/buffers.h"
#include "engine/parameters/optimizer.h"
#include "ops/kernels.h"
#include "plan/ownership/ownership.h"
#include "plan/rules/resolve.h"
#include "run/ceiling.h"

namespace trainctl {

double bytes_of(std::initializer_list<Tensor> tensors) {
  double total = 0;
  for (const Tensor& tensor : tensors) total += static_cast<double>(tensor.bytes());
  return total;
}

namespace {

/// The first block that has experts, or none; -1: there is none.
std::int64_t first_block(const ModelShape& model, bool experts) {
  for (std::int64_t layer = 0; layer < model.layers; ++layer) {
    if (model.has_experts(layer) == experts) return layer;
  }
  return -1;
}

struct Timing {
  const OpCase* op = nullptr;
  double seconds = 0;
  double matrix_share = 0;  // of the matrix ceiling
  double memory_share = 0;  // of the memory ceiling
};

/// The tensors of a rank with this plan, and the ops' cases over them.
class Cases {
 public:
  explicit Cases(const BenchSetup& setup)
      : setup_(setup),
        plan_(setup.plan),
        model_(setup.plan.model),
        dense_(first_block(model_, false)),
        stream_(DeviceKind::cpu, "compute", Stream::Mode::run_inline),
        buffers_(DeviceKind::cpu, plan_, 0),
        store_(DeviceKind::cpu, plan_.stages.front(),
               {.compute = plan_.compute,
                .states = optimizer_values(setup.config.optimizer),
                .ownership = make_ownership(plan_, 0)}),
        optimizer_(setup.config.optimizer, store_, &state_, plan_.mesh, 0) {
    set_thread_count(plan_.threads_per_rank);
    ops_ = buffers_.context(stream_);
    store_.initialise(ops_, 1, plan_.mesh, 0);
    fill_tensors();
    add_norms();
    if (dense_ >= 0) add_activations();
    add_elementwise();
    if (dense_ >= 0) add_matmuls();
    const std::int64_t routed = first_block(model_, true);
    if (routed >= 0) {
      copy_repeated(layer("input"), row("layers." + std::to_string(routed) + ".norm2"));
      add_expert_cases({ops_, plan_, buffers_, store_, cases_}, routed);
    }
    add_attention();
    add_head();
    add_optimizer();
  }

  const std::vector<OpCase>& list() const { return cases_; }
  const OpContext& ops() const { return ops_; }

 private:
  Tensor row(const std::string& name) const { return buffers_.at(0, name); }
  Tensor batch(const std::string& name) const { return row(chunk_prefix(0) + "batch." + name); }
  Tensor layer(const std::string& name) const { return row("layers.0." + name); }
  /// Of the first block with a plain MLP.
  std::string mlp(const std::string& name) const {
    return "layers." + std::to_string(dense_) + "." + name;
  }
  Weight weight(const std::string& name) const { return store_.weight(name); }

  void fill_tensors() {
    const std::vector<Batch> batches = random_batches(plan_);
    const Batch& made = batches.front();
    std::copy(made.tokens.begin(), made.tokens.end(), batch("tokens").as<std::int32_t>());
    std::copy(made.labels.begin(), made.labels.end(), batch("labels").as<std::int32_t>());
    std::copy(made.position.begin(), made.position.end(), batch("position").as<std::int32_t>());
    std::fill_n(batch("loss_weight").as<float>(), made.tokens.size(), 1.0F);
    const Weight table = weight("embedding.token.weight");
    embedding_forward(ops_,
                      {.indices = batch("tokens"), .table = table.value, .y = layer("input")});
    for (const char* name : {"norm1", "attention.q", "attention.context", "middle", "norm2"}) {
      copy_repeated(layer("input"), layer(name));
    }
    for (const char* name : {"attention.k", "attention.v", "d_output", "attention.d_middle"}) {
      copy_repeated(layer("input"), layer(name));
    }
    for (const char* name : {"norm2", "mlp.up", "mlp.act", "mlp.d_up"}) {
      if (dense_ >= 0) copy_repeated(layer("input"), row(mlp(name)));
    }
    for (const char* name : {"d_norm", "d_context"}) copy_repeated(layer("input"), row(name));
    if (model_.gated_mlp && dense_ >= 0) copy_repeated(layer("input"), row(mlp("mlp.gate")));
    copy_repeated(layer("input"), row("head.norm"));
  }

  static void copy_repeated(const Tensor& from, const Tensor& to) {
    auto* bytes = static_cast<std::byte*>(to.data);
    for (std::int64_t at = 0; at < to.bytes(); at += from.bytes()) {
      const std::int64_t count = std::min(from.bytes(), to.bytes() - at);
      std::copy_n(static_cast<const std::byte*>(from.data), count, bytes + at);
    }
  }

  void add_case(std::string name, double bytes, double flops, std::function<void()> run) {
    cases_.push_back({std::move(name), bytes, flops, std::move(run)});
  }

  void add_norms() {
    const Tensor x = layer("input");
    const Tensor y = layer("norm1");
    const Tensor rstd = layer("norm1.rstd");
    const Tensor dx = layer("d_output");
    const Tensor dy = row("d_norm");
    const Weight w = weight("layers.0.norm1.weight");
    if (model_.norm_kind == NormKind::rms_norm) {
      add_case("rmsnorm_forward", bytes_of({x, y}), 0, [=, this] {
        rmsnorm_forward(
            ops_, {.x = x, .residual = {}, .sum = {}, .weight = w.value, .y = y, .rstd = rstd});
      });
      add_case("rmsnorm_backward", bytes_of({x, dy, dx}), 0, [=, this] {
        rmsnorm_backward(ops_, {.dy = dy,
                                .x = x,
                                .weight = w.value,
                                .rstd = rstd,
                                .d_residual = {},
                                .dx = dx,
                                .dweight = w.gradient});
      });
      return;
    }
    const Weight b = weight("layers.0.norm1.bias");
    const Tensor mean = layer("norm1.mean");
    add_case("layernorm_forward", bytes_of({x, y}), 0, [=, this] {
      layernorm_forward(ops_, {.x = x,
                               .residual = {},
                               .sum = {},
                               .weight = w.value,
                               .bias = b.value,
                               .y = y,
                               .mean = mean,
                               .rstd = rstd});
    });
    add_case("layernorm_backward", bytes_of({x, dy, dx}), 0, [=, this] {
      layernorm_backward(ops_, {.dy = dy,
                                .x = x,
                                .weight = w.value,
                                .mean = mean,
                                .rstd = rstd,
                                .d_residual = {},
                                .dx = dx,
                                .dweight = w.gradient,
                                .dbias = b.gradient});
    });
  }

  void add_activations() {
    const Tensor up = row(mlp("mlp.up"));
    const Tensor act = row(mlp("mlp.act"));
    const Tensor d = row(mlp("mlp.d_up"));
    if (model_.gated_mlp) {
      const Tensor gate = row(mlp("mlp.gate"));
      const Tensor dgate = row(mlp("mlp.d_gate"));
      add_case("swiglu_forward", bytes_of({gate, up, act}), 0,
               [=, this] { swiglu_forward(ops_, {.gate = gate, .up = up, .y = act}); });
      add_case("swiglu_backward", bytes_of({gate, up, act, d, dgate}), 0, [=, this] {
        swiglu_backward(ops_, {.gate = gate, .up = up, .dy = act, .dgate = dgate, .dup = d});
      });
    } else {
      add_case("gelu_forward", bytes_of({up, act}), 0,
               [=, this] { gelu_forward(ops_, {.x = up, .y = act}); });
      add_case("gelu_backward", bytes_of({up, act, d}), 0,
               [=, this] { gelu_backward(ops_, {.x = up, .dy = act, .dx = d}); });
    }
    if (model_.linear_bias) {
      const Weight bias = weight(mlp("mlp.up.bias"));
      add_case("bias_gradient", bytes_of({d}), 0,
               [=, this] { bias_gradient(ops_, {.dy = d, .db = bias.gradient}); });
    }
  }

  void add_elementwise() {
    if (model_.position_kind == PositionKind::rotary) {
      const Tensor q = layer("attention.q");
      add_case("rope", 2 * bytes_of({q}), 0, [=, this] {
        rope(ops_, {.x = q,
                    .position = batch("position"),
                    .table = buffers_.rope_table(),
                    .head_dim = model_.head_dim});
      });
    }
    const Tensor x = layer("input");
    const Tensor y = row("d_norm");
    add_case("add", 3 * bytes_of({x}), 0, [=, this] { add(ops_, {.a = x, .b = x, .y = y}); });
  }

  void add_product(const std::string& name, const Matmul& args, std::int64_t inner) {
    const double flops = 2.0 * static_cast<double>(args.c.numel()) * static_cast<double>(inner);
    add_case(name, bytes_of({args.a, args.b, args.c}), flops, [=, this] { matmul(ops_, args); });
  }

  void add_matmuls() {
    const Weight w = weight(mlp("mlp.up.weight"));
    const Tensor x = row(mlp("norm2"));
    const Tensor y = row(mlp("mlp.up"));
    add_product("matmul mlp.up forward", {.a = x, .b = w.value, .c = y, .transpose_b = true},
                model_.hidden);
    add_product("matmul mlp.up input gradient", {.a = y, .b = w.value, .c = row("d_norm")},
                model_.ffn);
    add_product("matmul mlp.up weight gradient",
                {.a = y, .b = x, .c = w.gradient, .transpose_a = true, .accumulate = true},
                x.rows());
  }

  void add_attention() {
    const AttentionShape shape{.sequences = plan_.micro_batch_size,
                               .query_length = model_.seq_length,
                               .key_length = model_.seq_length,
                               .heads = model_.heads,
                               .kv_heads = model_.kv_heads,
                               .head_dim = model_.head_dim,
                               .query_offset = 0,
                               .scale = 1.0F / std::sqrt(static_cast<float>(model_.head_dim))};
    const double pairs = static_cast<double>(shape.sequences * shape.heads) *
                         static_cast<double>(model_.seq_length) *
                         static_cast<double>(model_.seq_length + 1) / 2;
    const double product = 2 * pairs * static_cast<double>(shape.head_dim);
    const Tensor q = layer("attention.q");
    const Tensor k = layer("attention.k");
    const Tensor v = layer("attention.v");
    const Tensor out = layer("attention.context");
    const Tensor lse =
        layer("attention.logsumexp").view({shape.sequences, shape.heads, shape.query_length});
    add_case("attention_forward", bytes_of({q, k, v, out}), 2 * product, [=, this] {
      attention_forward(ops_, {.shape = shape,
                               .q = q,
                               .k = k,
                               .v = v,
                               .first_position = {},
                               .dropout = {},
                               .out = out,
                               .logsumexp = lse});
    });
    add_case("attention_backward", 2 * bytes_of({q, k, v, out}), 5 * product, [=, this] {
      attention_backward(ops_, {.shape = shape,
                                .q = q,
                                .k = k,
                                .v = v,
                                .first_position = {},
                                .dropout = {},
                                .out = out,
                                .logsumexp = lse,
                                .d_out = row("d_context"),
                                .dq = layer("attention.d_q"),
                                .dk = layer("attention.d_k"),
                                .dv = layer("attention.d_v")});
    });
  }

  void add_head() {
    const Tensor tokens = batch("tokens");
    const Weight table = weight("embedding.token.weight");
    const Tensor x = layer("input");
    add_case("embedding_forward", 2 * bytes_of({x}), 0, [=, this] {
      embedding_forward(ops_, {.indices = tokens, .table = table.value, .y = x});
    });
    add_case("embedding_backward", 3 * bytes_of({x}), 0, [=, this] {
      embedding_backward(ops_, {.indices = tokens, .dy = x, .dtable = table.gradient});
    });
    const Tensor logits = row("head.logits");
    const std::int64_t rows = logits.rows();
    const Tensor labels = batch("labels").slice(0, rows);
    const auto stat = [&](std::int64_t index) {
      return row("head.stats").slice(index, index + 1).view({rows});
    };
    const Tensor row_max = stat(0);
    const Tensor row_sum = stat(1);
    const Tensor target = stat(2);
    add_case("cross_entropy_stats", bytes_of({logits}), 0, [=, this] {
      cross_entropy_stats(ops_, {.logits = logits,
                                 .labels = labels,
                                 .valid = model_.vocab,
                                 .row_max = row_max,
                                 .row_sum = row_sum,
                                 .target = target});
    });
    add_case("cross_entropy_gradient", 2 * bytes_of({logits}), 0, [=, this] {
      cross_entropy_gradient(ops_, {.logits = logits,
                                    .labels = labels,
                                    .valid = model_.vocab,
                                    .row_max = row_max,
                                    .row_sum = row_sum,
                                    .target = target,
                                    .weight = batch("loss_weight").slice(0, rows),
                                    .state = &state_});
    });
  }

  void add_optimizer() {
    const double values = static_cast<double>(plan_.stages.front().flat.length);
    const auto states = static_cast<double>(optimizer_value_bytes(setup_.config.optimizer));
    const double copy = plan_.compute == DType::f32 ? 0 : 2;
    add_case("optimizer", values * (4 * 3 + 2 * states + copy), 0,
             [this] { optimizer_.step(ops_); });
    add_case("square_sum", values * 4, 0,
             [this] { square_sum(ops_, {.x = store_.gradients(), .result = state_.square_sums}); });
  }

  const BenchSetup& setup_;
  const Plan& plan_;
  const ModelShape& model_;
  std::int64_t dense_;  // the first block with a plain MLP; -1: there is none
  Stream stream_;
  Buffers buffers_;
  ParamStore store_;
  StepState state_;
  Optimizer optimizer_;
  OpContext ops_;
  std::vector<OpCase> cases_;
};

std::vector<Timing> time_all(const Cases& cases, DType compute) {
  using Clock = std::chrono::steady_clock;
  constexpr int rounds = 7;
  std::vector<std::vector<double>> seconds(cases.list().size());
  double matrix = 0;
  double memory = 0;
  for (int round = 0; round <= rounds; ++round) {  // the first one warms up
    matrix = std::max(matrix, matmul_ceiling(cases.ops(), compute));
    memory = std::max(memory, memory_ceiling());
    for (std::size_t i = 0; i < cases.list().size(); ++i) {
      const auto start = Clock::now();
      cases.list()[i].run();
      const double taken = std::chrono::duration<double>(Clock::now() - start).count();
      if (round > 0) seconds[i].push_back(taken);
    }
  }
  std::vector<Timing> timings;
  for (std::size_t i = 0; i < cases.list().size(); ++i) {
    const OpCase& op = cases.list()[i];
    const double taken = median(seconds[i]);
    timings.push_back({&op, taken, op.flops / taken / matrix, op.bytes / taken / memory});
  }
  return timings;
}

}  // namespace

void bench_ops(const BenchRequest& request, std::ostream& out) {
  const BenchSetup setup = read_bench_setup(request);
  const Cases cases(setup);
  std::array<char, 160> line{};
  if (!request.json) {
    std::snprintf(line.data(), line.size(), "%-30s %10s %9s %9s %9s   %s\n", "op", "ms", "MB",
                  "GFLOP", "ceiling", "bound by");
    out << line.data();
  }
  nlohmann::ordered_json list = nlohmann::ordered_json::array();
  for (const Timing& timing : time_all(cases, setup.plan.compute)) {
    const bool by_matrix = timing.matrix_share > timing.memory_share;
    const double share = std::max(timing.matrix_share, timing.memory_share);
    if (request.json) {
      list.push_back({{"op", timing.op->name},
                      {"seconds", timing.seconds},
                      {"bytes", timing.op->bytes},
                      {"flops", timing.op->flops},
                      {"ceiling_fraction", share},
                      {"bound", by_matrix ? "matrix" : "memory"}});
      continue;
    }
    std::snprintf(line.data(), line.size(), "%-30s %10.3f %9.1f %9.2f %7.0f %%   %s\n",
                  timing.op->name.c_str(), timing.seconds * 1e3, timing.op->bytes * 1e-6,
                  timing.op->flops * 1e-9, 100 * share, by_matrix ? "matrix rate" : "memory");
    out << line.data();
  }
  if (request.json) out << list.dump() << '\n';
}

}  // namespace trainctl
