#include "plan/cost/step_time.h"

#include <algorithm>
#include <map>
#include <memory>

#include "base/at.h"
#include "base/collectives.h"
#include "plan/cost/communication.h"
#include "plan/cost/estimate.h"
#include "plan/cost/overlap.h"
#include "plan/model/block.h"
#include "plan/ownership/matrix_exchange.h"
#include "plan/schedule/schedule.h"

namespace trainctl {

namespace {

template <class Matches>
double wire_seconds_of(const StagePlan& stage, const Rates& rates, const Matches& matches) {
  double seconds = 0;
  for (const CollectiveUse& use : stage.communication) {
    if (matches(use)) seconds += wire_seconds(use, rates);
  }
  return seconds;
}

/// Bytes of the rows of `unit` for which counts(row) is true, for one micro-batch.
template <class Counts>
double row_bytes(const StagePlan& stage, int unit, const Counts& counts) {
  double bytes = 0;
  for (const ActivationSpec& row : stage.activations) {
    if (row.unit == unit && counts(row)) bytes += real(row.shape.numel() * size_of(row.dtype));
  }
  return bytes;
}

/// Bytes of the rows of `unit` that are kept from F to B or W, for one micro-batch.
double kept_bytes(const StagePlan& stage, int unit) {
  return row_bytes(stage, unit, [](const ActivationSpec& row) {
    return row.kind != RowKind::partial && row.from != Moment::gradient &&
           row.from != Moment::backward && row.storage != Storage::message &&
           row.storage != Storage::batch && row.storage != Storage::exchanged &&
           row.until != Moment::forward && row.until != Moment::offload && !row.on_host();
  });
}

/// Bytes of the rows of `unit` in host memory, for one micro-batch.
double host_bytes(const StagePlan& stage, int unit, bool partial) {
  const RowKind other = partial ? RowKind::usual : RowKind::partial;
  return row_bytes(stage, unit, [other](const ActivationSpec& row) {
    return row.storage == Storage::host && row.kind != other;
  });
}

double gradient_bytes(const StagePlan& stage, int unit) {
  double bytes = 0;
  for (const ParamSpec& row : stage.parameters) {
    if (row.unit == unit) bytes += real(row.shape.numel()) * 4;
  }
  return bytes;
}

/// The first block of a stage that costs the same as `unit`, or 0.
int block_like(const StagePlan& stage, const Plan& plan, int unit) {
  for (const UnitRange& range : stage.units) {
    const UnitRange blocks = blocks_in(range, plan.model.layers);
    for (int one = blocks.begin; one < blocks.end; ++one) {
      if (cost_alike(plan, one, unit)) return one;
    }
  }
  return 0;
}

/// Seconds of a block's exchanges with one micro-batch, without a ring of keys.
struct BlockWire {
  double waits = 0;  // waiting for collectives, less the time that overlaps with products
  double rows = 0;   // exchange of rows with experts of other ranks, with overlapped time
};

/// Seconds of the calls of block `unit` in these passes.
BlockWire wire_of(const Plan& plan, const StagePlan& stage, int unit, const BlockPasses& passes,
                  const Rates& rates) {
  UseList list(plan, stage);
  add_block(list, unit, passes);
  BlockWire wire;
  for (const CollectiveUse& use : list.take()) {
    if (!waits_in_layers(use)) continue;
    (moves_rows(use) ? wire.rows : wire.waits) += wire_seconds(use, rates);
  }
  return wire;
}

/// The exchanges of F, B and W on a rank of `stage`, one of plan.stages: the mean over its
/// micro-batches.
BlockWire block_wire(const Plan& plan, const StagePlan& stage, int unit, const Rates& rates) {
  const double all = real(plan.microbatches);
  const double partial = real(count_partial(stage, unit)) / all;
  BlockWire wire =
      wire_of(plan, stage, unit, passes_of(plan, stage, unit).without_repeats(), rates);
  wire = {wire.waits / all, wire.rows / all};
  for (const ActionKind kind :
       {ActionKind::forward, ActionKind::backward_input, ActionKind::backward_weight}) {
    const auto hidden = [&](bool keeps_more) {
      return hidden_over_tp(plan, kind, unit, stage.forms.of(unit, keeps_more), rates);
    };
    wire.waits -= partial * hidden(true) + (1 - partial) * hidden(false);
  }
  return wire;
}

/// The time of the units of one stage for one micro-batch on one rank, from the bytes that they
/// move and their operations. Blocks are those that cost the same as `block`.
class UnitCosts {
 public:
  UnitCosts(const Plan& plan, int stage, const Rates& rates)
      : plan_(plan),
        rows_(at(plan.stages, stage)),
        rates_(rates),
        tokens_(plan.micro_batch_size * plan.model.seq_length) {}

  UnitTimes times(int block) const {
    UnitTimes times;
    add_embedding(times);
    if (block > 0) add_block(times, block);
    add_head(times);
    return times;
  }

 private:
  double memory(double bytes) const { return bytes / rates_.memory_bandwidth; }
  double products(double flops) const { return flops / rates_.matmul_flops; }
  /// Seconds of the collectives of the embedding or the head for one micro-batch, in F and B
  /// together.
  double wire(UnitKind unit) const {
    const auto of_layers = [unit](const CollectiveUse& use) {
      return use.unit == unit && waits_in_layers(use);
    };
    return wire_seconds_of(rows_, rates_, of_layers) / real(plan_.microbatches);
  }
  double stream_bytes() const {
    return real(plan_.local.stream_rows) * real(plan_.model.hidden * size_of(plan_.compute));
  }

  void add_embedding(UnitTimes& times) const {
    const double each_way = wire(UnitKind::embedding) / 2;
    times.embedding.forward = memory(2 * stream_bytes()) + each_way;
    times.embedding.weight = memory(2 * stream_bytes()) + each_way;
  }

  void add_block(UnitTimes& times, int unit) const {
    const FlopsEstimate flops = rank_flops(plan_, tokens_, unit);
    const double product = products(flops.matmul) / 3;
    const double attention = products(flops.attention_causal) / 3;
    const double kept = memory(kept_bytes(rows_, unit));
    const BlockWire wire = block_wire(plan_, rows_, unit, rates_);
    const double each_way = wire.waits / 2;
    const double early = early_weight_seconds(plan_, unit, rates_);
    const PassSeconds ring = ring_wait(plan_, unit, rates_);
    times.layer.forward = product + attention + 2 * kept + each_way + ring.forward;
    times.layer.input = product + early + 2 * attention + 3 * kept + each_way + ring.input;
    times.layer.weight = product - early + memory(2 * gradient_bytes(rows_, unit));
    if (!plan_.model.kind(unit - 1).experts) return;
    constexpr double ways = 4;  // transfers: to experts and back, in F and in B
    times.exchanged = wire.rows / ways;
    times.experts = expert_products(plan_, unit, true, rates_);
  }

  void add_head(UnitTimes& times) const {
    const int unit = head_unit(plan_.model.layers);
    const FlopsEstimate flops = rank_flops(plan_, tokens_, unit);
    const double logits = real(plan_.local.head_rows) * real(plan_.local.vocabulary);
    const double kept = kept_bytes(rows_, unit);
    const double each_way = wire(UnitKind::head) / 2;
    times.head.forward = products(flops.matmul) + each_way +
                         memory(2 * kept + 4 * logits * real(size_of(plan_.compute)) +
                                2 * gradient_bytes(rows_, unit));
    times.head.input = memory(3 * stream_bytes()) + each_way;
    const double product = products(flops.matmul) / 3;
    times.deferred = product + memory(2 * gradient_bytes(rows_, unit));
    times.repeated = product + memory(4 * logits * real(size_of(plan_.compute)));
  }

  const Plan& plan_;
  const StagePlan& rows_;
  const Rates& rates_;
  std::int64_t tokens_;  // tokens of a micro-batch
};

/// The seconds of the rows of one stage.
class RowCosts {
 public:
  /// `prices` must outlive this object.
  RowCosts(const Plan& plan, int stage, const StagePrices& prices)
      : plan_(plan), rows_(at(plan.stages, stage)), prices_(prices) {
    const std::vector<int> blocks = blocks_of(rows_.units, plan.model.layers);
    times_[0] = prices.units(blocks.empty() ? 0 : blocks.front());
    for (const UnitRange& range : rows_.units) {
      for (int unit = range.begin; unit < range.end; ++unit) {
        const int like = block_like(rows_, plan, unit);
        like_[unit] = like;
        if (!times_.contains(like)) times_[like] = prices.units(like);
        if (unit < 1 || unit > plan.model.layers) continue;
        for (const bool partial : {false, true}) {
          repeats_[{unit, partial}] = prices.repeat(unit, rows_.forms.of(unit, partial));
        }
      }
    }
    for (const CollectiveUse& use : rows_.communication) {
      const double seconds = prices.wire(use);
      if (use.cargo == Cargo::tied_embedding) {
        embedding_sum_ += seconds;
      } else if (use.purpose == TrafficPurpose::gradients) {
        gradients_ += seconds;
      } else if (use.purpose == TrafficPurpose::parameters) {
        parameters_ += seconds;
      } else if (use.purpose == TrafficPurpose::messages) {
        message_ = seconds / real(use.count);  // all messages have one size
      }
    }
    for (const Action& row : rows_.actions) {
      if (row.kind == ActionKind::reduce) bucket_elements_ += real(bucket_of(row.bucket).length);
      if (row.kind != ActionKind::gather || at(rows_.gathers, row.bucket).from_host) continue;
      gathered_elements_ += elements_of(at(rows_.gathers, row.bucket));
    }
  }

  /// Seconds of the transfers that are in progress when the row ends.
  double sent_by(const Action& row) const {
    if (row.kind == ActionKind::repeat) return repeated(row, row.begin).rows;
    return times_.at(like_.at(row.begin)).exchanged;
  }

  double of(const Action& row) const {
    if (row.kind == ActionKind::repeat) return repeat_of(row);
    if (is_pass(row.kind)) return pass_of(row) + deferred_of(row);
    if (is_receive(row.kind)) return message_;
    switch (row.kind) {
      case ActionKind::reduce:
        return gradients_ * real(bucket_of(row.bucket).length) / bucket_elements_;
      case ActionKind::reduce_embedding: return embedding_sum_;
      case ActionKind::offload:
      case ActionKind::reload: return copy_of(row);
      case ActionKind::gather: return gather_of(at(rows_.gathers, row.bucket));
      default: return 0;
    }
  }

 private:
  double pass_of(const Action& row) const {
    double seconds = 0;
    for (Action one = row; one.begin < row.end; ++one.begin) {
      one.end = one.begin + 1;
      const UnitTimes& times = times_.at(like_.at(one.begin));
      const double pass = times.of(one, plan_.model.layers);
      seconds += one.leg == ExchangePhase::whole ? pass + exchange_of(one)
                                                 : leg_of(one, pass, times.experts);
    }
    return seconds;
  }
  /// Seconds for which a whole pass through one unit waits for its exchange of rows.
  double exchange_of(const Action& row) const {
    const bool block = row.begin > 0 && row.begin <= plan_.model.layers;
    if (!block || !plan_.model.kind(row.begin - 1).experts) return 0;
    if (row.kind == ActionKind::backward_weight) return 0;
    const BlockForm form = rows_.forms.of(row.begin, row.chunk, row.microbatch);
    return 2 * times_.at(like_.at(row.begin)).exchanged - prices_.hidden(row.begin, row.kind, form);
  }
  /// Seconds of one leg of a pass of `seconds`, of which `products` are products of experts. Other
  /// work is before these in F and R, after them in B.
  static double leg_of(const Action& row, double seconds, double products) {
    const double work = std::min(seconds, products);
    if (row.leg == ExchangePhase::work) return work;
    const ExchangePhase rest =
        row.kind == ActionKind::backward_input ? ExchangePhase::home : ExchangePhase::out;
    return row.leg == rest ? seconds - work : 0;
  }
  double deferred_of(const Action& row) const {
    const UnitTimes& head = times_.at(0);
    if (!rows_.deferral.concerns(row)) return 0;
    if (row.kind == ActionKind::forward) return -head.deferred;
    return row.kind == ActionKind::backward_weight ? head.deferred + head.repeated : 0;
  }
  const RepeatPrice& repeated(const Action& row, int unit) const {
    return repeats_.at({unit, rows_.forms.in_partial(row.chunk, row.microbatch)});
  }
  double repeat_of(const Action& row) const {
    double seconds = 0;
    for (int unit = row.begin; unit < row.end; ++unit) {
      const RepeatPrice& price = repeated(row, unit);
      seconds += row.leg == ExchangePhase::whole
                     ? price.whole()
                     : leg_of(row, price.work + price.waits, prices_.expert_work(unit, false));
    }
    return seconds;
  }
  double copy_of(const Action& row) const {
    const bool partial = rows_.forms.in_partial(row.chunk, row.microbatch);
    return prices_.copy(host_bytes(rows_, row.begin, partial));
  }
  double gather_of(const GatherBlock& block) const {
    if (!block.from_host) return parameters_ * elements_of(block) / gathered_elements_;
    return prices_.copy(elements_of(block) * real(size_of(plan_.compute)));
  }
  const Bucket& bucket_of(int index) const { return at(rows_.flat.buckets, index); }
  double elements_of(const GatherBlock& block) const {
    if (block.bucket >= 0) return real(bucket_of(block.bucket).length);
    double elements = 0;
    for (const int index : block.parameters) {
      elements += real(at(rows_.parameters, index).shape.numel());
    }
    return elements;
  }

  const Plan& plan_;
  const StagePlan& rows_;
  const StagePrices& prices_;
  std::map<int, UnitTimes> times_;  // by block_like() of a unit; 0 = the stage's first block
  std::map<int, int> like_;         // by unit: the block that stands for it
  std::map<std::pair<int, bool>, RepeatPrice> repeats_;  // by block, and whether it keeps more
  double message_ = 0;                                   // seconds of one message
  double embedding_sum_ = 0;                             // seconds, of a tied embedding
  double gradients_ = 0;                                 // seconds, of all buckets of the stage
  double parameters_ = 0;                                // seconds, of all blocks
  double bucket_elements_ = 0;                           // elements of all sums
  double gathered_elements_ = 0;
};

/// Prices that follow from the rates of a rank.
class RatePrices : public StagePrices {
 public:
  RatePrices(const Plan& plan, int stage, const Rates& rates)
      : plan_(plan), stage_(stage), rows_(at(plan.stages, stage)), rates_(rates) {}

  UnitTimes units(int block) const override {
    return UnitCosts(plan_, stage_, rates_).times(block);
  }
  RepeatPrice repeat(int unit, const BlockForm& form) const override {
    return price_repeat(plan_, stage_, unit, form, rates_);
  }
  double wire(const CollectiveUse& use) const override { return wire_seconds(use, rates_); }
  double copy(double bytes) const override { return 2 * bytes / rates_.memory_bandwidth; }
  double hidden(int unit, ActionKind kind, const BlockForm& form) const override {
    return hidden_exchange(plan_, unit, kind, form, rates_);
  }
  double expert_work(int unit, bool all) const override {
    return expert_products(plan_, unit, all, rates_);
  }
  double products() const override { return product_seconds(plan_, rows_, rates_); }
  double in_layers() const override { return layer_wire_seconds(plan_, rows_, rates_); }
  double beside_work() const override { return hidden_seconds(plan_, rows_, rates_); }
  double optimizer() const override { return optimizer_seconds(rows_, rates_); }

 private:
  const Plan& plan_;
  int stage_;
  const StagePlan& rows_;
  Rates rates_;
};

}  // namespace

StagePricesList rate_prices(const Plan& plan, const Rates& rates) {
  StagePricesList prices;
  for (int stage = 0; stage < plan.map.stages; ++stage) {
    prices.push_back(std::make_unique<RatePrices>(plan, stage, rates));
  }
  return prices;
}

bool cost_alike(const Plan& plan, int block, int other) {
  return plan.model.kind(block - 1) == plan.model.kind(other - 1) &&
         plan.splits.of_unit(block) == plan.splits.of_unit(other) &&
         plan.context.of_unit(block) == plan.context.of_unit(other);
}

bool waits_in_layers(const CollectiveUse& use) {
  return use.purpose == TrafficPurpose::layers && !is_message(use.operation);
}

std::optional<Rates> given_rates(const ClusterConfig& cluster) {
  if (!cluster.matmul_flops || !cluster.memory_bandwidth || !cluster.latency ||
      !cluster.bandwidth) {
    return std::nullopt;
  }
  return Rates{*cluster.matmul_flops, *cluster.memory_bandwidth, *cluster.latency,
               *cluster.bandwidth};
}

double wire_seconds(const CollectiveUse& use, const Rates& rates) {
  const double others = real(use.ranks - 1);
  const double share = others / real(use.ranks);
  double rounds = 1;
  double sent = 1;  // share of the bytes
  if (use.operation == GroupOperation::all_reduce) {
    rounds = 2 * others;
    sent = 2 * share;
  } else if (use.operation == GroupOperation::broadcast) {
    rounds = others;
  } else if (!is_message(use.operation)) {
    rounds = use.operation == GroupOperation::all_gather
                 ? real(gather_rounds(use.ranks, use.bytes / std::max<std::int64_t>(1, use.count)))
                 : others;
    sent = share;
  }
  return real(use.count) * rounds * rates.latency + real(use.bytes) * sent / rates.bandwidth;
}

double UnitTimes::of(const Action& row, std::int64_t layers) const {
  double PassSeconds::*const pass = row.kind == ActionKind::forward          ? &PassSeconds::forward
                                    : row.kind == ActionKind::backward_input ? &PassSeconds::input
                                                                             : &PassSeconds::weight;
  double seconds = 0;
  for (int unit = row.begin; unit < row.end; ++unit) seconds += of_unit(unit, layers).*pass;
  return seconds;
}

double optimizer_seconds(const StagePlan& stage, const Rates& rates) {
  const MemoryEstimate& memory = stage.memory;
  const double bytes = 2 * real(memory.parameters + memory.gradients + memory.optimizer);
  double flops = 0;
  for (const MatrixWork* one : busiest_work(stage)) flops += one->cost;
  return bytes / rates.memory_bandwidth + flops / rates.matmul_flops +
         wire_seconds_of(stage, rates, in_optimizer);
}

void set_seconds(const Plan& plan, const StagePricesList& prices, SimulationInput& input) {
  const auto costs = std::make_shared<std::vector<RowCosts>>();
  for (int stage = 0; stage < plan.map.stages; ++stage) {
    costs->emplace_back(plan, stage, *at(prices, stage));
  }
  input.cost = [costs](const RankRows& rank, const Action& row) {
    return at(*costs, rank.input.stage).of(row);
  };
  input.sent = [costs](const RankRows& rank, const Action& row) {
    return at(*costs, rank.input.stage).sent_by(row);
  };
}

std::function<double(const RankRows&, const Action&)> row_seconds(const Plan& plan,
                                                                  const Rates& rates) {
  const auto prices = std::make_shared<const StagePricesList>(rate_prices(plan, rates));
  SimulationInput input;
  set_seconds(plan, *prices, input);
  // The function shares ownership of its prices.
  return [prices, cost = input.cost](const RankRows& rank, const Action& row) {
    return cost(rank, row);
  };
}

TimeEstimate estimate_time(const Plan& plan, const StagePricesList& prices, SimulationInput& input,
                           Simulation* simulation) {
  TimeEstimate time;
  for (const auto& stage : prices) time.optimizer = std::max(time.optimizer, stage->optimizer());
  set_seconds(plan, prices, input);
  Simulation played = simulate(input);
  for (std::size_t rank = 0; rank < input.ranks.size(); ++rank) {
    const double beside = at(prices, input.ranks[rank].input.stage)->beside_work();
    time.hidden = std::max(time.hidden, beside + played.queues[rank].hidden_rows());
  }
  time.forward_backward = played.seconds;
  time.exposed = played.exposed_communication;
  time.bubble_fraction = played.bubble_fraction;
  if (simulation != nullptr) *simulation = std::move(played);
  return time;
}

TimeEstimate estimate_time(const Plan& plan, const Rates& rates) {
  SimulationInput input = simulation_input(plan);
  return estimate_time(plan, rate_prices(plan, rates), input);
}

namespace {

/// The products of the block that its R row recomputes.
Products repeated_products(const Plan& plan, int unit, const BlockForm& form) {
  Products products = block_products(plan.form_of(unit), plan.local_of(unit));
  std::erase_if(products,
                [&](const Product& one) { return !one.part || !form.repeats(*one.part); });
  return products;
}

}  // namespace

double repeat_flops(const Plan& plan, int unit, const BlockForm& form) {
  double flops = 0;
  for (const Product& one : repeated_products(plan, unit, form)) flops += one.flops();
  return flops;
}

double repeat_seconds(const Plan& plan, int unit, const BlockForm& form, const Rates& rates) {
  double bytes = 0;
  for (const Product& one : repeated_products(plan, unit, form)) {
    bytes += 2 * one.elements() * real(size_of(plan.compute));
  }
  return repeat_flops(plan, unit, form) / rates.matmul_flops + bytes / rates.memory_bandwidth;
}

RepeatPrice price_repeat(const Plan& plan, int stage, int unit, const BlockForm& form,
                         const Rates& rates) {
  BlockPasses passes;
  passes.add_repeats(form, 1);
  const BlockWire wire = wire_of(plan, at(plan.stages, stage), unit, passes, rates);
  RepeatPrice price;
  price.waits = wire.waits - hidden_over_tp(plan, ActionKind::repeat, unit, form, rates);
  price.rows = wire.rows;
  price.work = repeat_seconds(plan, unit, form, rates);
  if (form.repeats(BlockPart::attention)) price.waits += ring_wait(plan, unit, rates).forward;
  if (plan.model.kind(unit - 1).experts) {
    price.hidden = hidden_exchange(plan, unit, ActionKind::repeat, form, rates);
  }
  return price;
}

}  // namespace trainctl
