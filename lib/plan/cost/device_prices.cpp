#include "plan/cost/device_prices.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <utility>

#include "base/at.h"
#include "base/integers.h"
#include "plan/cost/communication.h"
#include "plan/cost/estimate.h"
#include "plan/cost/overlap.h"
#include "plan/cost/step_time.h"
#include "plan/model/block.h"
#include "plan/ownership/matrix_exchange.h"
#include "plan/prices/price_list.h"
#include "plan/tables/mesh.h"

namespace trainctl {

// The seconds of the passes through one block and the head on one rank of a device, for one
// micro-batch: a price list summed over the declared products of plan/model. Software overhead is
// not included.

namespace {

struct BlockPrice {
  PassSeconds products;
  PassSeconds attention;       // seconds; W is 0
  PassSeconds elements;        // seconds of element-wise operations; W is 0
  double flops = 0;            // FLOPs of products.forward
  double attention_flops = 0;  // FLOPs of attention.forward, under the mask
};

/// Seconds of the parts that a row R recomputes: matrix products, and the rest (attention and
/// element-wise operations).
struct RepeatedWork {
  double products = 0, rest = 0;
  double all() const { return products + rest; }
};

/// Number of times that tensors of this shape are read or written by an element-wise operation: a
/// norm with the residual sum before it, an activation function, a copy of rows.
struct ElementPasses {
  double forward = 0, input = 0;
};
ElementPasses passes_of_elements(const Product& product, bool gated) {
  if (product.part == BlockPart::norm1 || product.part == BlockPart::norm2) return {5, 6};
  if (product.part == BlockPart::activation)
    return gated ? ElementPasses{3, 5} : ElementPasses{2, 3};
  return {2, 2};
}

/// Joins neighbouring products with the same input, where the software does so.
void join_inputs(Products& products) {
  Products joined;
  for (const Product& one : products) {
    const bool same = !joined.empty() && one.in > 0 && joined.back().in == one.in && one.part &&
                      joined.back().part == one.part && joined.back().experts == one.experts;
    if (same) {
      joined.back().out += one.out;
    } else {
      joined.push_back(one);
    }
  }
  products = std::move(joined);
}

class BlockPricer {
 public:
  BlockPricer(const PriceList& list, const Plan& plan, int unit)
      : list_(list),
        plan_(plan),
        unit_(unit),
        products_(block_products(plan.form_of(unit), plan.local_of(unit))) {
    if (list.machine().software.fuses_inputs) join_inputs(products_);
  }
  const Products& products() const { return products_; }

  PassSeconds product(const Product& one) const {
    const std::int64_t groups = std::max<std::int64_t>(1, one.experts);
    const std::int64_t rows = divide_up(one.rows, groups);
    return {list_.product({rows, one.out, one.in, groups}),
            list_.product({rows, one.in, one.out, groups}),
            list_.product({one.in, one.out, rows, groups, true})};
  }
  PassSeconds attention(const Product& one) const {
    const PricedAttention priced = attended(one);
    return {list_.attention(priced, false), list_.attention(priced, true), 0};
  }
  double attention_flops(const Product& one) const { return attended(one).flops(); }
  PassSeconds elements(const Product& one) const {
    const ElementPasses passes = passes_of_elements(one, plan_.model.gated_mlp);
    const double bytes = real(one.rows) * real(one.out) * real(size_of(plan_.compute));
    return {list_.elements(passes.forward * bytes), list_.elements(passes.input * bytes), 0};
  }

 private:
  PricedAttention attended(const Product& one) const {
    const std::int64_t dim = std::max<std::int64_t>(1, plan_.model.head_dim);
    return {
        one.rows,      one.out / dim, dim, one.keys, one.keys / plan_.context.of_unit(unit_).ring,
        one.met_keys()};
  }

  const PriceList& list_;
  const Plan& plan_;
  int unit_;
  Products products_;
};

void add_pass(PassSeconds& sum, const PassSeconds& one) {
  sum.forward += one.forward;
  sum.input += one.input;
  sum.weight += one.weight;
}

BlockPrice block_price(const PriceList& list, const Plan& plan, int unit) {
  const BlockPricer pricer(list, plan, unit);
  BlockPrice price;
  for (const Product& one : pricer.products()) {
    if (one.is_attention()) {
      add_pass(price.attention, pricer.attention(one));
      price.attention_flops += pricer.attention_flops(one);
    } else if (one.in == 0) {
      add_pass(price.elements, pricer.elements(one));
    } else {
      add_pass(price.products, pricer.product(one));
      price.flops += one.flops();
    }
  }
  return price;
}

RepeatedWork repeated_work(const PriceList& list, const Plan& plan, int unit,
                           const BlockForm& form) {
  const BlockPricer pricer(list, plan, unit);
  RepeatedWork work;
  for (const Product& one : pricer.products()) {
    if (!one.part || !form.repeats(*one.part)) continue;
    if (one.is_attention()) {
      work.rest += pricer.attention(one).forward;
    } else if (one.in == 0) {
      work.rest += pricer.elements(one).forward;
    } else {
      work.products += pricer.product(one).forward;
    }
  }
  return work;
}

/// Seconds of the experts' products in F or in B; without `all`, only those before the activation.
double expert_seconds(const PriceList& list, const Plan& plan, int unit, bool all) {
  const BlockPricer pricer(list, plan, unit);
  double seconds = 0;
  for (const Product& one : pricer.products()) {
    if (one.experts > 0 && one.in > 0 && (all || one.part)) seconds += pricer.product(one).forward;
  }
  return seconds;
}

PassSeconds head_products(const PriceList& list, const Plan& plan) {
  const std::int64_t rows = plan.local.head_rows;
  const std::int64_t columns = plan.local.vocabulary;
  const std::int64_t hidden = plan.model.hidden;
  return {list.product({rows, columns, hidden}), list.product({rows, hidden, columns}),
          list.product({hidden, columns, rows, 1, true})};
}

/// The head's products, with the time for its logits in F.
PassSeconds head_price(const PriceList& list, const Plan& plan) {
  PassSeconds price = head_products(list, plan);
  const double logits = real(plan.local.head_rows) * real(plan.local.vocabulary);
  price.forward += list.memory(logits * list.machine().software.logit_bytes);
  return price;
}

/// Seconds of the calls in layers, separately for rows of experts.
struct LayerWire {
  double waits = 0, rows = 0;
};

class DevicePrices : public StagePrices {
 public:
  DevicePrices(const Plan& plan, int stage, const PriceList& list)
      : plan_(plan),
        rows_(at(plan.stages, stage)),
        first_rank_(stage * plan.mesh.stride(Axis::pp)),
        list_(list),
        slower_(1 + list_.machine().software.overhead) {}

  UnitTimes units(int block) const override {
    UnitTimes times;
    add_embedding(times);
    if (block > 0) add_block(times, block);
    add_head(times);
    return times;
  }

  RepeatPrice repeat(int unit, const BlockForm& form) const override {
    BlockPasses passes;
    passes.add_repeats(form, 1);
    const LayerWire wire = wire_of(unit, passes);
    RepeatPrice price;
    price.waits = wire.waits - hidden_over_tp(ActionKind::repeat, unit, form);
    price.rows = wire.rows;
    price.work = slower_ * repeated_work(list_, plan_, unit, form).all();
    if (form.repeats(BlockPart::attention)) price.waits += ring(unit).forward;
    if (plan_.model.kind(unit - 1).experts) price.hidden = hidden(unit, ActionKind::repeat, form);
    return price;
  }

  double wire(const CollectiveUse& use) const override {
    const auto count = static_cast<double>(std::max<std::int64_t>(1, use.count));
    const double bytes = real(use.bytes) / count * expected_share(use);
    if (is_message(use.operation))
      return count * list_.message(level_of(use.group, use.ranks), bytes);
    const GroupSpan& span = list_.span(use.group, use.ranks, first_rank_);
    const double slower = waits_in_layers(use) ? list_.machine().software.collectives : 1;
    return count * slower * list_.collective(use.operation, span, bytes);
  }

  double copy(double bytes) const override { return list_.host_copy(bytes); }

  double hidden(int unit, ActionKind kind, const BlockForm& form) const override {
    return hidden_exchange(plan_, unit, kind, form, rates_over(experts_group, plan_.mesh.ep, unit));
  }
  double expert_work(int unit, bool all) const override {
    return slower_ * expert_seconds(list_, plan_, unit, all);
  }

  double products() const override {
    double seconds = 0;
    for (const UnitRange& range : rows_.units) {
      for (int unit = range.begin; unit < range.end; ++unit) {
        seconds += real(plan_.microbatches) * slower_ * product_part(unit);
      }
    }
    for (const Action& row : rows_.actions) {
      if (row.kind != ActionKind::repeat) continue;
      for (int unit = row.begin; unit < row.end; ++unit) {
        const BlockForm form = rows_.forms.of(unit, row.chunk, row.microbatch);
        seconds += slower_ * repeated_work(list_, plan_, unit, form).products;
      }
    }
    return seconds;
  }

  double in_layers() const override {
    double seconds = 0;
    for (const CollectiveUse& use : rows_.communication) {
      if (waits_in_layers(use)) seconds += wire(use);
    }
    for (const int unit : blocks_of(rows_.units, plan_.model.layers)) {
      const PassSeconds waits = ring(unit);
      const BlockPasses passes = passes_of(plan_, rows_, unit);
      seconds +=
          real(passes.of(BlockPart::attention)) * waits.forward + real(passes.once) * waits.input;
    }
    return seconds - beside_work();
  }

  double beside_work() const override {
    const bool tensor = plan_.overlap.any;
    if (!tensor && plan_.exchange.chunks == 1) return 0;
    double seconds = 0;
    for (const Action& row : rows_.actions) {
      if (!is_pass(row.kind)) continue;
      const int end = std::min(row.end, static_cast<int>(plan_.model.layers) + 1);
      for (int unit = std::max(1, row.begin); unit < end; ++unit) {
        const BlockForm form = rows_.forms.of(unit, row.chunk, row.microbatch);
        seconds += hidden_over_tp(row.kind, unit, form);
        const bool exchanges = plan_.exchange.chunks > 1 && plan_.model.kind(unit - 1).experts;
        if (exchanges && row.leg == ExchangePhase::whole) seconds += hidden(unit, row.kind, form);
      }
    }
    return seconds;
  }

  double optimizer() const override {
    const MemoryEstimate& memory = rows_.memory;
    double seconds =
        list_.memory(2 * real(memory.parameters + memory.gradients + memory.optimizer));
    for (const CollectiveUse& use : rows_.communication) {
      if (in_optimizer(use)) seconds += wire(use);
    }
    const auto work = busiest_work(rows_);
    if (work.empty()) return seconds;
    // Products in updates of matrices have their own dtype.
    const PriceList products(list_.machine(), plan_.mesh, plan_.matrix_products);
    for (const MatrixWork* one : work) seconds += matrix_steps(*one, products);
    return seconds;
  }

 private:
  /// All iterations of Muon for the matrices of a work item: three products each.
  static double matrix_steps(const MatrixWork& one, const PriceList& list) {
    const std::int64_t side = one.shorter();
    const std::int64_t longer = std::max(one.matrix_rows(), one.matrix_columns());
    const double flops = real(side) * real(side) * (4 * real(longer) + 2 * real(side));
    return one.cost / flops *
           (list.product({side, side, longer}) + list.product({side, side, side}) +
            list.product({side, longer, side}));
  }

  /// The expected share of a call's bytes. Calls for rows are planned for the maximum number of
  /// rows; expected is the number if experts are chosen equally often.
  double expected_share(const CollectiveUse& use) const {
    if (!moves_rows(use)) return 1;
    const LocalShape local = plan_.local_of(first_block_with(plan_.model, true));
    const double rows = real(local.sent_tokens * plan_.model.topk);
    if (use.cargo == Cargo::part_rows) {
      return std::min(1.0, rows * real(plan_.exchange.parts) /
                               real(std::max<std::int64_t>(1, local.gathered_rows)));
    }
    // The number of rows is equal in both directions, in F and in B.
    return std::min(
        1.0, 2 * rows / real(std::max<std::int64_t>(1, local.routed_rows + local.received_rows)));
  }
  const BlockPrice& price_of(int unit) const {
    const auto found = blocks_.find(unit);
    if (found != blocks_.end()) return found->second;
    return blocks_[unit] = block_price(list_, plan_, unit);
  }
  std::size_t level_of(GroupKind group, std::int64_t ranks) const {
    if (group == pipeline_group) {
      const std::int64_t stride = plan_.mesh.stride(Axis::pp);
      const std::int64_t world = plan_.mesh.world_size();
      const std::int64_t next =
          first_rank_ + stride < world ? first_rank_ + stride : first_rank_ - stride;
      return joining_level(list_.machine().levels, first_rank_, next);
    }
    const GroupSpan& span = list_.span(group, ranks, first_rank_);
    std::size_t level = 0;
    for (std::size_t index = 0; index < span.size(); ++index) {
      if (span[index] > 1) level = index;
    }
    return level;
  }

  LayerWire wire_of(int unit, const BlockPasses& passes) const {
    UseList list(plan_, rows_);
    trainctl::add_block(list, unit, passes);
    LayerWire found;
    for (const CollectiveUse& use : list.take()) {
      if (waits_in_layers(use)) (moves_rows(use) ? found.rows : found.waits) += wire(use);
    }
    return found;
  }

  /// Rates with which the functions for overlapped collectives give about the seconds of the price
  /// list: for products of the block and a gather of its residual stream over a group.
  Rates rates_over(GroupKind group, std::int64_t ranks, int unit) const {
    const BlockPrice& price = price_of(unit);
    Rates rates{.matmul_flops = price.flops / (slower_ * price.products.forward),
                .memory_bandwidth = 1 / list_.memory(1),
                .latency = 0,
                .bandwidth = 1};
    if (ranks < 2) return rates;
    const double bytes =
        std::max(1.0, real(plan_.local.tokens * plan_.model.hidden * size_of(plan_.compute)));
    const GroupSpan& span = list_.span(group, ranks, first_rank_);
    const GroupOperation operation =
        group.has(Axis::ep) ? GroupOperation::all_to_all : GroupOperation::all_gather;
    constexpr double few = 1;  // bytes, so that only latency counts
    const double slower = list_.machine().software.collectives;
    const double latency = slower * list_.collective(operation, span, few);
    const double seconds = slower * list_.collective(operation, span, bytes);
    rates.latency = latency / real(ranks - 1);
    rates.bandwidth = bytes * real(ranks - 1) / real(ranks) / std::max(1e-12, seconds - latency);
    return rates;
  }
  Rates tensor_rates(int unit) const { return rates_over(tensor_group, plan_.mesh.tp, unit); }

  double hidden_over_tp(ActionKind kind, int unit, const BlockForm& form) const {
    if (!plan_.overlap.any) return 0;
    return (1 - list_.machine().software.tensor_rest) *
           trainctl::hidden_over_tp(plan_, kind, unit, form, tensor_rates(unit));
  }

  /// The wait of ring attention, with the price of attention and the network level of the ring.
  PassSeconds ring(int unit) const {
    const ContextSplit split = plan_.context.of_unit(unit);
    if (split.ring == 1) return {};
    const LinkLevel& level = at(list_.machine().levels, level_of(ring_kind(split), split.ring));
    const BlockPrice& price = price_of(unit);
    return ring_wait(
        plan_, unit,
        {.matmul_flops = price.attention_flops / std::max(1e-12, slower_ * price.attention.forward),
         .memory_bandwidth = 1 / list_.memory(1),
         .latency = level.latency,
         .bandwidth = level.bandwidth});
  }

  double stream_seconds(double passes) const {
    return slower_ * list_.elements(passes * real(plan_.local.stream_rows) *
                                    real(plan_.model.hidden * size_of(plan_.compute)));
  }
  /// The seconds of collectives of one micro-batch, in F and B together.
  double unit_wire(UnitKind unit) const {
    double seconds = 0;
    for (const CollectiveUse& use : rows_.communication) {
      if (use.unit == unit && waits_in_layers(use)) seconds += wire(use);
    }
    return seconds / real(plan_.microbatches);
  }

  void add_embedding(UnitTimes& times) const {
    const double each_way = unit_wire(UnitKind::embedding) / 2;
    times.embedding.forward = stream_seconds(2) + each_way;
    times.embedding.weight = stream_seconds(2) + each_way;
  }

  void add_block(UnitTimes& times, int unit) const {
    const BlockPrice& price = price_of(unit);
    const BlockPasses passes = passes_of(plan_, rows_, unit).without_repeats();
    const double all = real(plan_.microbatches);
    const LayerWire wire = wire_of(unit, passes);
    const double partial = real(count_partial(rows_, unit)) / all;
    double waits = wire.waits / all;
    for (const ActionKind kind :
         {ActionKind::forward, ActionKind::backward_input, ActionKind::backward_weight}) {
      waits -= partial * hidden_over_tp(kind, unit, rows_.forms.of(unit, true)) +
               (1 - partial) * hidden_over_tp(kind, unit, rows_.forms.of(unit, false));
    }
    const PassSeconds keys = ring(unit);
    const double early =
        plan_.overlap.any ? early_weight_seconds(plan_, unit, tensor_rates(unit)) : 0;
    times.layer.forward =
        slower_ * (price.products.forward + price.attention.forward + price.elements.forward) +
        waits / 2 + keys.forward;
    times.layer.input =
        slower_ * (price.products.input + price.attention.input + price.elements.input) +
        waits / 2 + keys.input + early;
    times.layer.weight = std::max(0.0, slower_ * price.products.weight - early);
    if (!plan_.model.kind(unit - 1).experts) return;
    constexpr double ways = 4;  // transfers: to experts and back, in F and in B
    times.exchanged = wire.rows / all / ways;
    times.experts = expert_work(unit, true);
  }

  /// F of the head also computes its gradients.
  void add_head(UnitTimes& times) const {
    const double each_way = unit_wire(UnitKind::head) / 2;
    const PassSeconds head = head_price(list_, plan_);
    times.head.forward = slower_ * head.total() + stream_seconds(4) + each_way;
    times.head.input = stream_seconds(3) + each_way;
    times.deferred = slower_ * head.weight;
    times.repeated = slower_ * head.forward;
  }

  /// Seconds of the products for one micro-batch.
  double product_part(int unit) const {
    if (unit == 0) return 0;
    if (unit == head_unit(plan_.model.layers)) return head_products(list_, plan_).total();
    return price_of(unit).products.total();
  }

  const Plan& plan_;
  const StagePlan& rows_;
  std::int64_t first_rank_;
  PriceList list_;
  double slower_;                             // factor for the overhead of the software
  mutable std::map<int, BlockPrice> blocks_;  // by unit
};

/// The seconds of a stage's gradient sums and parameter gathers that overlap with its passes.
double beside_passes(const StagePlan& stage, const StagePrices& prices) {
  double seconds = prices.beside_work();
  for (const CollectiveUse& use : stage.communication) {
    const bool beside =
        use.purpose == TrafficPurpose::gradients || use.purpose == TrafficPurpose::parameters;
    if (beside && !in_optimizer(use)) seconds += prices.wire(use);
  }
  return seconds;
}

/// One rank for each stage, since the ranks of a stage take equal time.
SimulationInput one_replica(const Plan& plan) {
  SimulationInput input = simulation_input(plan);
  std::erase_if(input.ranks,
                [](const RankRows& rank) { return rank.replica > 0 || rank.inner > 0; });
  return input;
}

}  // namespace

PriceList price_list(const Plan& plan, const Machine& machine) {
  PriceList list(machine, plan.mesh, plan.compute);
  const auto& kernels = machine.device.attention;
  const bool own = machine.software.attention == "own";
  if (own && plan.cudnn && kernels.contains("cudnn")) list.use_attention("cudnn");
  return list;
}

StagePricesList device_prices(const Plan& plan, const PriceList& list) {
  StagePricesList prices;
  for (int stage = 0; stage < plan.map.stages; ++stage) {
    prices.push_back(std::make_unique<DevicePrices>(plan, stage, list));
  }
  return prices;
}

PlayedStep play_step(const Plan& plan, const Machine& machine, const StagePricesList& prices) {
  PlayedStep step{.time = {}, .input = one_replica(plan), .played = {}};
  step.input.keep_times = step.input.proven = true;
  TimeEstimate& time = step.time;
  time = estimate_time(plan, prices, step.input, &step.played);
  const SoftwareFigures& software = machine.software;
  double slowed = 0;
  for (std::size_t rank = 0; rank < step.input.ranks.size(); ++rank) {
    const int stage = step.input.ranks[rank].input.stage;
    const double beside = beside_passes(at(plan.stages, stage), *at(prices, stage));
    const double shared = std::min(beside, step.played.queues[rank].busy);
    slowed = std::max(slowed, machine.device.contention * shared + software.sums_rest * beside);
  }
  const double hosts = real(machine.hosts(plan.mesh.world_size()));
  const double apart = 1 + software.jitter * std::log2(std::max(1.0, hosts));
  time.forward_backward = (time.forward_backward + slowed) * apart;
  time.optimizer = time.optimizer * apart + software.fixed;
  return step;
}

namespace {

/// The estimate for a run with steps of `seconds`.
DeviceTime run_estimate(const Plan& plan, const Machine& machine,
                        const CheckpointConfig& checkpoint, const ClusterConfig& cluster,
                        std::int64_t steps, double seconds) {
  constexpr double restart = 600;  // seconds until a failed run resumes
  constexpr double hour = 3600;
  constexpr double billion = 1e9;
  const double ranks = real(plan.mesh.world_size());
  const MemoryEstimate& memory = plan.max_memory();
  const double stall = real(memory.parameters + memory.optimizer) / machine.device.host_bandwidth;
  const double between = machine.device.hours_between_failures.value_or(0) * hour / ranks;
  DeviceTime time;
  time.device = machine.device.name;
  time.software = machine.software.name;
  const ProductFigures* products = products_of(machine.device, plan.compute);
  const bool guessed = products != nullptr && products->guessed;
  const Trust trust = guessed ? "data sheet" : machine.device.trust;
  time.trust = word_of(trust);
  time.expected_error = expected_error(trust);
  const double best = between > 0 ? best_interval(seconds, stall, between) : 0;
  time.best_checkpoint_steps = best;
  const double every = checkpoint.every > 0 ? real(checkpoint.every)
                       : checkpoint.every_minutes > 0
                           ? std::max(1.0, checkpoint.every_minutes * 60 / seconds)
                           : best;
  time.goodput = goodput(seconds, every, stall, between, restart);
  const double tokens = real(plan.tokens_per_step());
  const double rate = tokens / seconds * time.goodput;  // tokens per second
  if (rate <= 0) return time;
  time.tokens_per_day = rate * 24 * hour;
  time.device_hours_per_billion_tokens = ranks * billion / rate / hour;
  if (steps > 0) time.days = real(steps) * tokens / time.tokens_per_day;
  if (cluster.price_per_hour) {
    const double price = *cluster.price_per_hour;
    time.cost_per_billion_tokens = time.device_hours_per_billion_tokens * price;
    if (time.days) time.cost = *time.days * 24 * ranks * price;
  }
  return time;
}

}  // namespace

TimeEstimate estimate_time(const Plan& plan, const Machine& machine,
                           const CheckpointConfig& checkpoint, const ClusterConfig& cluster,
                           std::int64_t steps) {
  const auto prices = device_prices(plan, price_list(plan, machine));
  TimeEstimate time = play_step(plan, machine, prices).time;
  time.on_device = run_estimate(plan, machine, checkpoint, cluster, steps, time.step());
  return time;
}

namespace {

/// Approximates the machine's prices by one rate each: products of a block's forward pass, and the
/// network between tensor-parallel ranks.
Rates effective_rates(const Plan& plan, const Machine& machine) {
  const PriceList list = price_list(plan, machine);
  const BlockPrice block = block_price(list, plan, 1);
  const LinkLevel& level = machine.levels.front();
  return {.matmul_flops = block.flops / block.products.forward,
          .memory_bandwidth = 1 / list.memory(1),
          .latency = level.latency,
          .bandwidth = level.bandwidth};
}

}  // namespace

std::optional<Rates> rates_for(const Plan& plan, const ClusterConfig& cluster) {
  if (!cluster.device) return given_rates(cluster);
  const auto machine = machine_of(cluster, plan.mesh.world_size());
  if (!machine || products_of(machine->device, plan.compute) == nullptr) return std::nullopt;
  return effective_rates(plan, *machine);
}

double goodput(double step, double every, double stall, double between, double restart) {
  const double saving = every > 0 ? stall / (every * step) : 0;
  const double failing = between > 0 ? (every * step / 2 + restart) / between : 0;
  return std::max(0.0, 1 - saving - failing);
}

double best_interval(double step, double stall, double between) {
  return std::max(1.0, std::sqrt(2 * stall * between) / step);
}

}  // namespace trainctl
