#include "plan/cost/estimate.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <set>

#include "base/at.h"
#include "base/collectives.h"
#include "base/integers.h"
#include "plan/cost/forms.h"
#include "plan/model/attention.h"
#include "plan/model/block.h"
#include "plan/model/experts.h"
#include "plan/ownership/matrix_exchange.h"
#include "plan/ownership/ownership.h"
#include "plan/ownership/parameter_places.h"

namespace trainctl {

namespace {

// Measured memory of the program, its libraries and their buffers in one process, and the addition
// per process if several communicate.
constexpr std::int64_t program_allowance = std::int64_t{16} << 20;
constexpr std::int64_t wire_allowance = std::int64_t{16} << 20;

// Assumed host memory of a process with a CUDA device, and memory on the device; not measured. The
// context with kernels of the module and of cuBLASLt takes about this much in other programs of
// this kind on Hopper.
constexpr std::int64_t driver_allowance = std::int64_t{512} << 20;
constexpr std::int64_t context_allowance = std::int64_t{640} << 20;
// NCCL's defaults: a channel's buffer has 4 MiB (NCCL_BUFFSIZE) and 4.7 MiB for the protocol with
// 128-byte lines, for each of two neighbours. Collectives have 16 channels, lines of messages 2.
constexpr std::int64_t channel_bytes = 2 * (std::int64_t{9} << 20);
constexpr std::int64_t group_channels = 16;
constexpr std::int64_t line_channels = 2;

// A prefetched token: input, label, weight, position, document (4 bytes each) and global index (8).
// A sequence: its number of real positions.
constexpr std::int64_t bytes_per_prefetched_token = 5 * 4 + 8;
constexpr std::int64_t bytes_per_prefetched_sequence = 8;

/// Elements of optimizer state on the rank that holds the most.
std::int64_t state_elements(const StagePlan& stage, const std::vector<OptimizerShard>& shards) {
  std::int64_t sliced = 0, held = 0;
  std::map<std::int64_t, std::int64_t> dealt;  // elements by owner
  bool any = false;
  for (const OptimizerShard& shard : shards) {
    any = any || shard.kind != ShardKind::whole;
    if (shard.kind == ShardKind::dealt) {
      dealt[shard.owner] += shard.elements;
    } else if (shard.kind != ShardKind::bucket) {
      held += shard.elements;
    }
  }
  if (!any) return stage.flat.length;
  for (const Bucket& bucket : stage.flat.buckets) {
    const OptimizerShard& first = shards[static_cast<std::size_t>(bucket.parameters.front())];
    if (first.kind == ShardKind::bucket) sliced += bucket.length / first.ranks;
  }
  std::int64_t most = 0;
  for (const auto& [owner, elements] : dealt) most = std::max(most, elements);
  return held + sliced + most;
}

/// The bytes of optimizer state on the rank that holds the most. `state` is the number of elements
/// that it owns. If optimizers of parameters differ, all ranks are compared.
std::int64_t max_state_bytes(const Plan& plan, const StagePlan& stage, std::int64_t state,
                             const OptimizerConfig& optimizer) {
  if (stage.parameters.empty()) return 0;  // a stage whose chunks have no layer
  const OptimizerType first = stage.parameters.front().update;
  const bool alike = std::ranges::all_of(stage.parameters,
                                         [&](const ParamSpec& one) { return one.update == first; });
  if (alike) {
    std::int64_t width = 0;
    for (const DType type : optimizer_values(first, optimizer)) width += size_of(type);
    return state * width;
  }
  std::int64_t most = 0;
  const auto number = &stage - plan.stages.data();
  const std::int64_t begin = number * plan.mesh.stride(Axis::pp);
  for (const int rank : plan.mesh.group(begin, {Axis::tp, Axis::cp, Axis::dp})) {
    const StatePlaces places = place_states(stage, make_ownership(plan, rank), optimizer);
    most =
        std::max(most, std::accumulate(places.bytes.begin(), places.bytes.end(), std::int64_t{0}));
  }
  return most;
}

/// The most bytes that a rank of the stage writes to a checkpoint.
std::int64_t max_saved_bytes(const Plan& plan, int stage, const OptimizerConfig& optimizer) {
  const Mesh& mesh = plan.mesh;
  const std::int64_t first = stage * mesh.stride(Axis::pp);
  std::int64_t most = 0;
  // Tensor-parallel ranks write different amounts; replicas differ by at most one row.
  for (const int rank : mesh.group(first, Axis::tp)) {
    const OwnershipTable table = make_ownership(plan, rank);
    most = std::max(most, saved_bytes(saved_parts(plan, table, rank),
                                      at(plan.stages, stage).parameters, optimizer));
  }
  return most;
}

/// Bytes of staging buffers, one for each group in which this rank sums. Threads need none, since
/// they read each other's memory.
std::int64_t staging_of(const StagePlan& stage) {
  std::map<std::pair<TrafficPurpose, GroupKind>, std::int64_t> groups;
  for (const CollectiveUse& use : stage.communication) {
    const bool sums = use.operation == GroupOperation::all_reduce ||
                      use.operation == GroupOperation::reduce_scatter;
    if (sums) groups[{use.purpose, use.group}] = staging_bytes(use.ranks);
  }
  std::int64_t bytes = 0;
  for (const auto& [group, staged] : groups) bytes += staged;
  return bytes;
}

/// Bytes of communicators: one for each group in which a rank has collectives (gradients and
/// parameters share a group), and one for each line of messages.
std::int64_t communicator_bytes(const Plan& plan, int number) {
  const StagePlan& stage = at(plan.stages, number);
  std::set<std::pair<bool, GroupKind>> groups;
  for (const CollectiveUse& use : stage.communication) {
    const bool message = is_message(use.operation);
    const bool late =
        use.purpose == TrafficPurpose::gradients || use.purpose == TrafficPurpose::parameters;
    if (!message) groups.insert({late, use.group});
  }
  const std::int64_t lines = count_streams(plan, number).lines();
  return (std::ssize(groups) * group_channels + lines * line_channels) * channel_bytes;
}

}  // namespace

std::int64_t feed_bytes(const Plan& plan, int stage, const DataConfig& data) {
  if (plan.device != DeviceKind::cuda) return 0;
  constexpr std::int64_t line = 64;  // alignment of tensors, in bytes
  const StagePlan& rows = at(plan.stages, stage);
  std::int64_t pass = 0;  // bytes for a pass of every chunk
  const auto add = [&](const RowCopies& fed) {
    if (fed.later < 0) return;
    const ActivationSpec& row = at(rows.activations, fed.later);
    pass += round_up(row.shape.numel() * size_of(row.dtype), line);
  };
  for (const BatchRows& batch : rows.declared.batches) {
    for (const RowCopies& row :
         {batch.tokens, batch.labels, batch.position, batch.global_token, batch.loss_weight,
          batch.real, batch.query_token, batch.real_query}) {
      add(row);
    }
    if (data.reset_attention_mask) add(batch.first_position);
  }
  std::map<int, std::int64_t> microbatches;  // number of micro-batches by view
  std::int64_t places = 1;
  for (const int view : rows.activation_slots.view_of) {
    const std::int64_t count = ++microbatches[view];
    if (plan.cuda_graphs) places = std::max(places, count);
  }
  return pass * rows.activation_slots.views() * places;
}

DeviceStreams count_streams(const Plan& plan, int stage) {
  const StagePlan& rows = at(plan.stages, stage);
  DeviceStreams count{.engine = 2};  // streams for rows and for gradients
  if (plan.overlap.any) ++count.engine;
  if (plan.exchange.overlaps()) ++count.engine;
  if (rows.activation_slots.host_bytes > 0) ++count.engine;
  if (std::ranges::any_of(rows.gathers, &GatherBlock::from_host)) ++count.engine;
  const ChunkPlaces places = plan.map.places();
  for (int chunk = 0; chunk < places.chunks; ++chunk) {
    if (places.receives(stage, chunk)) count.stages += 2;
    if (places.sends(stage, chunk)) count.stages += 2;
  }
  // A ring over all context-parallel ranks counts once for all kinds of layers.
  bool whole = false;
  for (const ContextSplit& split : plan.context.kinds()) {
    if (split.ring == 1) continue;
    if (split.ring < plan.mesh.cp) count.rings += 2 * ring_tags;
    whole = whole || split.ring == plan.mesh.cp;
  }
  if (whole) count.rings += 2 * ring_tags;
  return count;
}

std::int64_t MemoryEstimate::total() const {
  return parameters + gradients + optimizer + activations + offloaded + communication + data +
         checkpoint + runtime + library + communicators;
}

std::int64_t MemoryEstimate::host() const {
  return on_cuda ? offloaded + data + checkpoint + runtime : total();
}

MemoryEstimate estimate_memory(const Plan& plan, const StagePlan& stage,
                               const OptimizerConfig& optimizer, const DataConfig& data,
                               const CheckpointConfig& checkpoint) {
  constexpr std::int64_t fp32 = 4;
  const std::int64_t state = state_elements(stage, stage.shards);
  const int number = static_cast<int>(&stage - plan.stages.data());
  const OwnershipTable table = make_ownership(plan, number * plan.mesh.stride(Axis::pp));
  const ParameterPlaces places = place_parameters(stage, plan.compute, table);
  MemoryEstimate memory;
  memory.parameters = places.weight_bytes + places.master_bytes(state);
  memory.gradients =
      places.gradient_length * fp32 + places.sum_length * size_of(plan.gradient.kept);
  memory.optimizer = max_state_bytes(plan, stage, state, optimizer) + matrix_bytes(plan, number);
  memory.activations = plan.activation_bytes(number) + plan.scratch_bytes();
  for (const RopeForm& rope : plan.model.ropes) {  // tables of sines and cosines
    memory.activations += plan.model.positions * rope.size * fp32;
  }
  memory.activations +=
      std::ssize(plan.model.temperatures) * plan.model.positions * plan.model.head_dim * fp32;
  memory.offloaded = plan.host_bytes(number) + places.host_bytes;
  memory.communication = packed_gradients(plan, stage, table) * size_of(plan.gradient.dtype) +
                         packed_parameters(plan, stage, table);
  memory.on_cuda = plan.device == DeviceKind::cuda;
  if (memory.on_cuda) {
    memory.library = context_allowance;
    const bool nccl = plan.share_devices != DeviceSharing::without_nccl;
    memory.communicators = nccl ? communicator_bytes(plan, number) : 0;
  } else if (!plan.ranks_are_threads) {
    memory.communication += staging_of(stage);
  }
  // Batches are held for the current step and the prefetched ones. Context-parallel ranks read
  // whole sequences.
  const std::int64_t sequences = plan.microbatches * plan.fed_sequences();
  const std::int64_t sequence =
      plan.model.seq_length * bytes_per_prefetched_token + bytes_per_prefetched_sequence;
  memory.data = (data.prefetch + 1) * sequences * sequence + feed_bytes(plan, number, data);
  if (saves_in_background(checkpoint)) memory.checkpoint = max_saved_bytes(plan, number, optimizer);
  const bool wire = plan.mesh.world_size() > 1 && !plan.ranks_are_threads;
  memory.runtime =
      program_allowance + (wire ? wire_allowance : 0) + (memory.on_cuda ? driver_allowance : 0);
  return memory;
}

namespace {

/// The gradients of input and weight each cost the same as the forward.
constexpr double forward_and_backward = 3;

void add(FlopsEstimate& flops, const Products& products) {
  for (const Product& one : products) {
    if (one.is_attention()) {
      flops.attention_full += forward_and_backward * 4 * one.elements() * real(one.keys);
      flops.attention_causal += forward_and_backward * one.flops();
    } else {
      flops.matmul += forward_and_backward * one.flops();
    }
  }
}

double matmul_flops(const Products& products) {
  FlopsEstimate flops;
  add(flops, products);
  return flops.matmul;
}

}  // namespace

FlopsEstimate estimate_flops(const ModelShape& model, std::int64_t tokens,
                             const std::vector<UnitRange>& units) {
  FlopsEstimate flops;
  for (const int unit : blocks_of(units, model.layers)) {
    const LayerForm form = layer_form(model, unit - 1);
    add(flops, block_products(form, whole_shape(form, tokens)));
  }
  if (holds(units, head_unit(model.layers))) {
    add(flops, {{{}, tokens, model.hidden, model.padded_vocab}});
  }
  return flops;
}

FlopsEstimate estimate_flops(const ModelShape& model, std::int64_t tokens) {
  return estimate_flops(model, tokens, {all_units(model.layers)});
}

FlopsEstimate rank_flops(const Plan& plan, std::int64_t tokens, int unit) {
  const ModelShape& model = plan.model;
  const auto tp = static_cast<double>(plan.mesh.tp);
  const double ranks = static_cast<double>(plan.mesh.tp * plan.mesh.cp);
  const FlopsEstimate all = estimate_flops(model, tokens, {{unit, unit + 1}});
  double whole = 0;  // FLOPs of products that every tensor-parallel rank computes fully
  double attended = all.attention_causal / ranks;
  if (unit == head_unit(model.layers)) {
    if (plan.splits.head == SplitBy::whole) whole = all.matmul;
  } else if (unit > 0) {
    const BlockSplit split = plan.splits.of_unit(unit);
    const LayerForm form = layer_form(model, unit - 1);
    const LocalShape shape = whole_shape(form, tokens);
    const double attention = matmul_flops(attention_products(form, shape));
    if (split.attention == SplitBy::whole) {
      whole += attention;
      attended *= tp;
    }
    if (!form.has_experts()) {
      if (split.feed_forward == SplitBy::whole) whole += all.matmul - attention;
    } else if (!plan.sequence_parallel) {
      whole += matmul_flops(router_products(form, shape));
    }
  }
  FlopsEstimate own;
  own.matmul = all.matmul / ranks + whole * (1 - 1 / tp) * tp / ranks;
  own.attention_causal = attended;
  return own;
}

namespace {

void add_costs(const Plan& plan, int unit, KindCost& cost) {
  cost.flops = estimate_flops(plan.model, plan.tokens_per_step(), {{unit, unit + 1}}).total();
  for (int stage = 0; stage < plan.map.stages; ++stage) {
    const StagePlan& rows = at(plan.stages, stage);
    if (!holds(rows.units, unit)) continue;
    cost.kept = form_bytes(plan, stage, unit, rows.forms.of(unit, false)).kept;
    for (const ParamSpec& row : rows.parameters) {
      if (row.unit == unit) cost.parameters += row.global_shape.numel();
    }
  }
}

}  // namespace

std::vector<KindCost> kind_costs(const Plan& plan) {
  std::vector<KindCost> costs;
  for (const LayerKind& kind : plan.model.kinds) costs.push_back({.kind = kind});
  for (std::int64_t layer = 0; layer < plan.model.layers; ++layer) {
    at(costs, plan.model.kind_number(layer)).layers.push_back(layer);
  }
  for (KindCost& cost : costs) {
    if (!cost.layers.empty()) add_costs(plan, static_cast<int>(cost.layers.front()) + 1, cost);
  }
  return costs;
}

namespace {

SimulationInput without_rows(const Plan& plan) {
  SimulationInput simulation;
  const Mesh& mesh = plan.mesh;
  const bool experts = plan.model.experts > 1 && mesh.ep * mesh.etp > 1;
  const int inner = mesh.tp * mesh.cp > 1 || experts ? 2 : 1;
  const int replicas = mesh.dp > 1 ? 2 : 1;
  for (int stage = 0; stage < plan.map.stages; ++stage) {
    for (int rank = 0; rank < inner * replicas; ++rank) {
      simulation.ranks.push_back(
          RankRows{schedule_input(plan, stage), rank / inner, rank % inner, {}});
    }
  }
  return simulation;
}

}  // namespace

SimulationInput simulation_input(const Plan& plan) {
  SimulationInput simulation = without_rows(plan);
  for (RankRows& rank : simulation.ranks) rank.rows = at(plan.stages, rank.input.stage).actions;
  for (const StagePlan& rows : plan.stages) {
    simulation.buckets.push_back(rows.sums);
    simulation.gathers.push_back(rows.gathers);
  }
  return simulation;
}

SimulationInput forward_simulation(const Plan& plan) {
  SimulationInput simulation = without_rows(plan);
  for (RankRows& rank : simulation.ranks) {
    rank.input = forward_input(plan, rank.input.stage);
    rank.rows = at(plan.stages, rank.input.stage).forward_actions;
  }
  for (const StagePlan& rows : plan.stages) simulation.gathers.push_back(freed_only(rows.gathers));
  return simulation;
}

double layer_cost(const Action& action, std::int64_t layers) {
  if (!is_pass(action.kind)) return 0;
  // In legs, half of a pass's work is before its rows are sent, and half after the experts.
  const double part = action.leg == ExchangePhase::whole  ? 1
                      : action.leg == ExchangePhase::home ? 0
                                                          : 0.5;
  return part * static_cast<double>(count_blocks({action.begin, action.end}, layers));
}

}  // namespace trainctl
