#include "bench/overlap.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <iterator>
#include <span>
#include <utility>

#include "base/error.h"
#include "base/parallel_for.h"
#include "base/scratch.h"
#include "bench/bench_setup.h"
#include "bench/figures.h"
#include "device/slab.h"
#include "engine/engine.h"
#include "ops/attention.h"
#include "ops/kernels.h"
#include "plan/cost/estimate.h"
#include "plan/model/attention.h"
#include "plan/model/block.h"
#include "plan/model/experts.h"
#include "plan/model/mlp.h"
#include "plan/rules/resolve.h"
#include "run/preflight/machine.h"
#include "run/prepare.h"
#include "verify/layouts.h"

namespace trainctl {

namespace {

Config with_microbatches(const Config& config, std::int64_t stages, std::int64_t replicas,
                         std::int64_t microbatches) {
  LayoutChoice layout;
  layout.sizes.pp = stages;
  layout.sizes.dp = replicas;
  Config changed = with_layout(config, layout);
  changed.parallel.pipeline.scheduler = PipelineScheduler::one_f_one_b;
  changed.hooks.grad_sync = "overlap";
  changed.train.micro_batch_size.reset();
  changed.train.micro_batch_num = microbatches;
  return changed;
}

template <class Value>
double median_of(const std::vector<TimedStep>& steps, const Value& value) {
  std::vector<double> values;
  for (const TimedStep& step : steps) values.push_back(std::invoke(value, step));
  return median(std::move(values));
}

/// The wire's cost in rows for which counts(Action) holds: the sum of the least waited(RowRecord)
/// of all ranks in each row, since other ranks also wait for the rank that waits least.
template <class Counts, class Waited>
double min_waits(const TimedStep& step, std::span<const Action> rows, const Counts& counts,
                 const Waited& waited) {
  double sum = 0;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    if (!counts(rows[i])) continue;
    double least = waited(step.rows.front()[i]);
    for (const auto& rank : step.rows) least = std::min(least, waited(rank[i]));
    sum += least;
  }
  return sum;
}

/// The exposed time of the sums of gradients.
double exposed(const TimedStep& step, std::span<const Action> rows) {
  return min_waits(
      step, rows, [](const Action& row) { return row.kind == ActionKind::wait_reduce; },
      [](const RowRecord& record) { return record.waited; });
}

/// The time of one rank in all rows of these kinds.
double time_in(const TimedStep& step, std::span<const Action> rows, int rank,
               std::initializer_list<ActionKind> kinds) {
  double sum = 0;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    if (std::find(kinds.begin(), kinds.end(), rows[i].kind) == kinds.end()) continue;
    const RowRecord& record = step.rows[static_cast<std::size_t>(rank)][i];
    sum += record.finish - record.start - record.waited;
  }
  return sum;
}

/// The time of a message between stages on the wire.
double message_seconds(const Plan& plan, const WorldOptions& wire) {
  for (const CollectiveUse& use : plan.stages.front().communication) {
    if (use.operation != GroupOperation::send || use.cargo != Cargo::activations) continue;
    const auto bytes = static_cast<double>(use.bytes / use.count);
    return wire.wire_alpha_seconds + wire.wire_beta_seconds_per_byte * bytes;
  }
  return 0;
}

/// The time of the tied embedding's sum over two ranks: two exchanges of half of the tensor.
double embedding_seconds(const Plan& plan, const WorldOptions& wire) {
  for (const CollectiveUse& use : plan.stages.front().communication) {
    if (use.cargo != Cargo::tied_embedding) continue;
    return 2 * wire.wire_alpha_seconds +
           wire.wire_beta_seconds_per_byte * static_cast<double>(use.bytes);
  }
  return 0;
}

/// The cost of rows that are not a pass. The optimizer takes no time, since the bubble is that of
/// forward and backward.
double cost_on_wire(const Plan& plan, const WorldOptions& wire, ActionKind kind) {
  if (is_receive(kind)) return message_seconds(plan, wire);
  return kind == ActionKind::reduce_embedding ? embedding_seconds(plan, wire) : 0;
}

Simulation play_step(const Plan& plan, const TimedStep& step, const WorldOptions& wire) {
  SimulationInput input = simulation_input(plan);
  input.cost = [&](const RankRows& rank, const Action& action) {
    if (!is_pass(action.kind) && action.kind != ActionKind::fetch) {
      return cost_on_wire(plan, wire, action.kind);
    }
    const auto stage = static_cast<std::size_t>(rank.input.stage);
    const auto& rows = plan.stages[stage].actions;
    const auto row =
        static_cast<std::size_t>(std::find(rows.begin(), rows.end(), action) - rows.begin());
    const RowRecord& record = step.rows[stage][row];
    return record.finish - record.start - record.waited;
  };
  return simulate(input);
}

}  // namespace

Plan plan_on_threads(const Config& config) {
  const std::int64_t ranks = world_size_of(config.parallel);
  Diagnostics diagnostics;
  Plan plan = prepare(config, SourceMap{},
                      {.world_size = ranks,
                       .ranks_per_host = ranks,
                       .cores_per_host = usable_cores(),
                       .ranks_are_threads = true},
                      Purpose::bench, diagnostics);
  require(!diagnostics.has_errors(), ExitCode::config, render_text(diagnostics, false));
  return plan;
}

namespace {

/// Trains `steps` steps on random tokens after two that are not counted, one thread for each rank.
std::vector<TimedStep> time_steps(const Config& config, const Plan& plan, const WorldOptions& wire,
                                  int steps) {
  constexpr int unmeasured = 2;
  const auto ranks = static_cast<int>(plan.mesh.world_size());
  std::vector<TimedStep> timed(static_cast<std::size_t>(steps));
  for (TimedStep& step : timed) step.rows.resize(static_cast<std::size_t>(ranks));
  run_thread_world(ranks, wire, [&](World& world) {
    const auto everyone = world.everyone("world");
    Trace trace(plan.stage_of(world.rank()).actions, 1);
    Engine engine({.plan = plan,
                   .train = config.train,
                   .optimizer = config.optimizer,
                   .lr_schedule = config.lr_schedule,
                   .trace = &trace},
                  world);
    engine.initialise();
    const std::vector<Batch> batches = random_batches(plan);
    for (int step = -unmeasured; step < steps; ++step) {
      const StepReport report = engine.train_step(batches);
      if (step < 0) continue;
      TimedStep& to = timed[static_cast<std::size_t>(step)];
      const MeasuredStep measured = measure_last_step({trace, plan, world, *everyone});
      const auto records = trace.step(trace.completed_steps());
      to.rows[static_cast<std::size_t>(world.rank())].assign(records.begin(), records.end());
      if (world.rank() > 0) continue;
      to.measured = measured;
      to.seconds = report.step_seconds;
    }
  });
  return timed;
}

/// Alternates `rounds` times between `steps` steps of each run, on the wire of `result`, which gets
/// the medians. cost(step, rows) is the wire's exposed time in a step.
template <class Cost>
void measure_in_turns(const BenchSetup& blocking, const BenchSetup& overlapped, int rounds,
                      int steps, const Cost& cost, OverlapResult& result) {
  std::vector<TimedStep> waiting, hiding;
  const auto add = [&](const BenchSetup& run, std::vector<TimedStep>& to) {
    std::ranges::move(time_steps(run.config, run.plan, result.wire, steps), std::back_inserter(to));
  };
  for (int round = 0; round < rounds; ++round) {
    add(blocking, waiting);
    add(overlapped, hiding);
  }
  const auto exposed_of = [&cost](const BenchSetup& run) {
    return [&cost, &rows = run.plan.stages.front().actions](const TimedStep& step) {
      return cost(step, rows);
    };
  };
  result.blocking_exposed_seconds = median_of(waiting, exposed_of(blocking));
  result.overlapped_exposed_seconds = median_of(hiding, exposed_of(overlapped));
  result.blocking_step_seconds = median_of(waiting, &TimedStep::seconds);
  result.overlapped_step_seconds = median_of(hiding, &TimedStep::seconds);
}

}  // namespace

OverlapResult measure_overlap(const Config& config, int rounds, int steps, double share) {
  const Config overlapped = with_microbatches(config, 1, 2, 1);
  Config serial = overlapped;
  serial.hooks.grad_sync = "after_backward";
  const Plan overlapped_plan = plan_on_threads(overlapped);
  const Plan serial_plan = plan_on_threads(serial);
  OverlapResult result;
  const auto& rows = overlapped_plan.stages.front().actions;
  result.work_seconds =
      median_of(time_steps(overlapped, overlapped_plan, {}, steps), [&](const TimedStep& s) {
        return time_in(s, rows, 0, {ActionKind::backward_input, ActionKind::backward_weight});
      });
  std::int64_t calls = 0;
  std::int64_t bytes = 0;  // bytes that each of two ranks sends and receives
  for (const CollectiveUse& use : overlapped_plan.stages.front().communication) {
    if (use.purpose != TrafficPurpose::gradients) continue;
    calls += use.count;
    bytes += use.bytes;
  }
  const double on_wire = share * result.work_seconds;
  const double latency = 2 * wire_alpha * static_cast<double>(calls);
  result.wire.wire_alpha_seconds = wire_alpha;
  result.wire.wire_beta_seconds_per_byte =
      std::max(0.0, on_wire - latency) / static_cast<double>(std::max<std::int64_t>(1, bytes));
  measure_in_turns({serial, serial_plan}, {overlapped, overlapped_plan}, rounds, steps, exposed,
                   result);
  return result;
}

Config on_stages(const Config& config, std::int64_t stages, std::int64_t microbatches) {
  return with_microbatches(config, stages, 1, microbatches);
}

BubbleResult measure_bubble(const Config& config, std::int64_t microbatches,
                            const WorldOptions& wire, int steps) {
  const Config staged = on_stages(config, 2, microbatches);
  const Plan plan = plan_on_threads(staged);
  BubbleResult result;
  result.microbatches = microbatches;
  result.steps = time_steps(staged, plan, wire, steps);
  const auto simulated = [&](const TimedStep& step) {
    return play_step(plan, step, wire).bubble_fraction;
  };
  result.measured =
      median_of(result.steps, [](const TimedStep& step) { return step.measured.bubble_fraction; });
  result.simulated = median_of(result.steps, simulated);
  result.ratio = median_of(result.steps, [&](const TimedStep& step) {
    return step.measured.bubble_fraction / simulated(step);
  });
  return result;
}

UnitTimes unit_times(const Plan& plan, const std::vector<TimedStep>& steps) {
  const std::int64_t layers = plan.model.layers;
  const auto count = [&](int stage, int unit, ActionKind kind) {
    double rows = 0;
    for (const Action& row : plan.stages[static_cast<std::size_t>(stage)].actions) {
      rows += row.kind == kind && row.begin <= unit && unit < row.end ? 1 : 0;
    }
    return rows;
  };
  // The mean over micro-batches of one unit's rows, or of the one row of a whole stage.
  const auto mean = [&](int stage, int unit, ActionKind kind) {
    return median_of(steps, [&](const TimedStep& step) {
      double sum = 0;
      const auto& rows = plan.stages[static_cast<std::size_t>(stage)].actions;
      for (std::size_t i = 0; i < rows.size(); ++i) {
        if (rows[i].kind != kind || unit < rows[i].begin || unit >= rows[i].end) continue;
        const RowRecord& record = step.rows[static_cast<std::size_t>(stage)][i];
        sum += record.finish - record.start - record.waited;
      }
      return sum / count(stage, unit, kind);
    });
  };
  const int head = static_cast<int>(layers) + 1;
  const int first_layers = plan.stages.front().units.front().end - 1;
  UnitTimes times;
  times.layer.forward = mean(0, 0, ActionKind::forward) / std::max(1, first_layers);
  times.head.forward =
      std::max(0.0, mean(1, head, ActionKind::forward) -
                        times.layer.forward * static_cast<double>(layers - first_layers));
  for (const ActionKind kind : {ActionKind::backward_input, ActionKind::backward_weight}) {
    double PassSeconds::*const pass =
        kind == ActionKind::backward_input ? &PassSeconds::input : &PassSeconds::weight;
    times.embedding.*pass = mean(0, 0, kind);
    times.head.*pass = mean(1, head, kind);
    times.layer.*pass = mean(0, 1, kind);
  }
  return times;
}

Simulation predict(const Plan& plan, const UnitTimes& times, const WorldOptions& wire) {
  SimulationInput input = simulation_input(plan);
  input.cost = [&](const RankRows&, const Action& action) {
    if (!is_pass(action.kind)) return cost_on_wire(plan, wire, action.kind);
    return times.of(action, plan.model.layers);
  };
  return simulate(input);
}

namespace {

/// Seconds of the products in B rows of the blocks of a step, on the first rank.
double block_product_seconds(const Plan& plan, const std::vector<TimedStep>& steps) {
  const auto& rows = plan.stages.front().actions;
  return median_of(steps, [&](const TimedStep& step) {
    double sum = 0;
    for (std::size_t i = 0; i < rows.size(); ++i) {
      const bool block = rows[i].begin > 0 && rows[i].end <= plan.model.layers + 1;
      if (rows[i].kind != ActionKind::backward_input || !block) continue;
      sum += step.rows.front()[i].spent.products;
    }
    return sum;
  });
}

/// FLOPs of these products in one micro-batch of F. B has the same number.
double matrix_flops_of_blocks(const Plan& plan) {
  double flops = 0;
  for (int unit = 1; unit <= plan.model.layers; ++unit) {
    flops += matrix_flops(block_products(plan.form_of(unit), plan.local_of(unit)));
  }
  return flops;
}

}  // namespace

OverlapResult measure_layer_overlap(const LayerOverlapInput& input) {
  const Plan blocking = plan_on_threads(input.blocking);
  const Plan overlapped = plan_on_threads(input.overlapped);
  OverlapResult result;
  result.work_seconds =
      input.product_seconds(blocking, time_steps(input.blocking, blocking, {}, input.steps));
  result.wire.wire_alpha_seconds = input.alpha_seconds;
  result.wire.wire_beta_seconds_per_byte =
      std::max(0.0, input.share * result.work_seconds - input.alpha_seconds) /
      static_cast<double>(input.sent_bytes(blocking));
  const auto exposed_in_layers = [&](const TimedStep& step, std::span<const Action> rows) {
    return min_waits(step, rows, input.counts,
                     [](const RowRecord& record) { return record.spent.collectives; });
  };
  measure_in_turns({input.blocking, blocking}, {input.overlapped, overlapped}, input.rounds,
                   input.steps, exposed_in_layers, result);
  return result;
}

namespace {

Config on_two_ranks(const Config& config, CpCommType algorithm) {
  LayoutChoice layout;
  layout.sizes.cp = 2;
  Config changed = with_layout(config, layout);
  changed.parallel.cp_comm_type = algorithm;
  changed.parallel.hierarchical_context_parallel_sizes.reset();
  changed.train.micro_batch_size.reset();
  changed.train.micro_batch_num = 1;
  return changed;
}

/// The time of causal attention in one layer over a rank's tokens of each sequence. The later of
/// two chunks sees all of the earlier one, so the pairs among a rank's own tokens equal in number
/// its pairs with the keys of the other rank.
double attention_to_a_block(const Plan& plan, const std::vector<TimedStep>&) {
  constexpr int tries = 5;
  const ModelShape& model = plan.model;
  const std::int64_t sequences = plan.micro_batch_size;
  const std::int64_t length = plan.local.tokens / sequences;
  const LocalShape local = plan.local_of(1);
  const Slab slab(DeviceKind::cpu, {{"q", {local.tokens, local.q}, plan.compute},
                                    {"k", {local.tokens, local.kv}, plan.compute},
                                    {"v", {local.tokens, local.kv}, plan.compute},
                                    {"out", {local.tokens, local.q}, plan.compute},
                                    {"logsumexp", {sequences, model.heads, length}, DType::f32},
                                    {"scratch", {scratch_bytes(DeviceKind::cpu, 1)}, DType::u8}});
  Stream stream(DeviceKind::cpu, "compute", Stream::Mode::run_inline);
  const Tensor scratch = slab.at("scratch");
  const OpContext ops{.kernels = &kernels_for(DeviceKind::cpu),
                      .stream = &stream,
                      .scratch = static_cast<std::byte*>(scratch.data),
                      .scratch_bytes = scratch.bytes()};
  set_thread_count(1);
  const AttentionArgs args{.shape = {.sequences = sequences,
                                     .query_length = length,
                                     .key_length = length,
                                     .heads = model.heads,
                                     .kv_heads = model.kind(0).kv_heads,
                                     .head_dim = model.head_dim,
                                     .scale = 1.0F / std::sqrt(static_cast<float>(model.head_dim))},
                           .q = slab.at("q"),
                           .k = slab.at("k"),
                           .v = slab.at("v"),
                           .first_position = {},
                           .dropout = {},
                           .out = slab.at("out"),
                           .logsumexp = slab.at("logsumexp")};
  std::vector<double> seconds;
  for (int i = 0; i < tries; ++i) {
    seconds.push_back(seconds_of([&] { attention_forward(ops, args); }));
  }
  return median(seconds);
}

/// The bytes of keys and values that a rank sends to the other.
std::int64_t keys_and_values(const Plan& plan) {
  return plan.local.tokens * 2 * plan.local_of(1).kv * size_of(plan.compute);
}

}  // namespace

LayerOverlapInput context_overlap(const Config& config) {
  return {.blocking = on_two_ranks(config, CpCommType::all_gather),
          .overlapped = on_two_ranks(config, CpCommType::p2p),
          .product_seconds = attention_to_a_block,
          .sent_bytes = keys_and_values,
          .counts = [](const Action& row) { return row.kind == ActionKind::forward; }};
}

namespace {

Config sharing_experts(const Config& config, std::int64_t microbatches) {
  LayoutChoice layout;
  layout.sizes.dp = 2;
  Config changed = with_layout(config, layout);
  changed.parallel.expert_parallel = 2;
  changed.moe.comp_comm_parallel = false;
  changed.moe.overlap_expert_parallel_comm = false;
  changed.moe.comp_comm_parallel_degree =
      std::max<std::int64_t>(2, config.moe.comp_comm_parallel_degree);
  changed.train.micro_batch_size.reset();
  changed.train.micro_batch_num = microbatches;
  return changed;
}

/// The time of the experts of one layer and micro-batch: their share of the time of products in the
/// B rows of blocks, which have the same FLOPs as F.
double products_of_experts(const Plan& plan, const std::vector<TimedStep>& steps) {
  const int routed = first_block_with(plan.model, true);
  const double experts = matrix_flops(routed_products(plan.form_of(routed), plan.local_of(routed)));
  return block_product_seconds(plan, steps) * experts /
         (matrix_flops_of_blocks(plan) * static_cast<double>(plan.microbatches));
}

/// The bytes of half of the choices, which are for experts of the other rank.
std::int64_t half_of_choices(const Plan& plan) {
  const LocalShape local = plan.local_of(first_block_with(plan.model, true));
  return local.routed_tokens * plan.model.topk * plan.model.hidden / 2 * size_of(plan.compute);
}

}  // namespace

LayerOverlapInput expert_overlap(const Config& config) {
  LayerOverlapInput input{.blocking = sharing_experts(config, 1),
                          .overlapped = sharing_experts(config, 1),
                          .product_seconds = products_of_experts,
                          .sent_bytes = half_of_choices,
                          .share = 0.5};
  input.overlapped.moe.comp_comm_parallel = true;
  return input;
}

LayerOverlapInput pass_overlap(const Config& config) {
  constexpr std::int64_t microbatches = 4;
  LayerOverlapInput input{.blocking = sharing_experts(config, microbatches),
                          .overlapped = sharing_experts(config, microbatches),
                          .product_seconds = products_of_experts,
                          .sent_bytes = half_of_choices,
                          .share = 0.5};
  input.overlapped.moe.overlap_expert_parallel_comm = true;
  return input;
}

namespace {

/// On two tensor-parallel ranks, without collectives of embedding and head, which do not overlap.
Config on_two_ranks(const Config& config, bool overlaps) {
  LayoutChoice layout;
  layout.sizes.tp = 2;
  layout.sizes.sequence_parallel = true;
  Config changed = with_layout(config, layout);
  changed.parallel.vocab_emb_dp = true;
  changed.parallel.tp_comm_overlap = {};
  changed.parallel.tp_comm_overlap.enable = overlaps;
  changed.train.micro_batch_size.reset();
  changed.train.micro_batch_num = 1;
  return changed;
}

/// The time of the product for attention's output, or of the MLP's if that is smaller: its share of
/// the time of products in the B rows of blocks, which have the same FLOPs as F.
double smallest_product(const Plan& plan, const std::vector<TimedStep>& steps) {
  const int unit = first_block_with(plan.model, false);
  const LayerForm form = plan.form_of(unit);
  const LocalShape local = plan.local_of(unit);
  const double smallest = std::min(attention_products(form, local).back().flops(),
                                   mlp_products(form, local).back().flops());
  return block_product_seconds(plan, steps) * smallest / matrix_flops_of_blocks(plan);
}

/// The bytes of half of the stream, which each of two ranks sends in one message.
std::int64_t half_of_stream(const Plan& plan) {
  return plan.local.tokens * plan.model.hidden / 2 * size_of(plan.compute);
}

}  // namespace

LayerOverlapInput tensor_overlap(const Config& config) {
  return {.blocking = on_two_ranks(config, false),
          .overlapped = on_two_ranks(config, true),
          .product_seconds = smallest_product,
          .sent_bytes = half_of_stream};
}

}  // namespace trainctl
