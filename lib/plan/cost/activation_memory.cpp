#include "plan/cost/activation_memory.h"

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "base/at.h"
#include "plan/cost/estimate.h"

namespace trainctl {

namespace {

constexpr std::int64_t row_alignment = 64;  // bytes, as device/slab.h

std::int64_t round_up(std::int64_t bytes) {
  return (bytes + row_alignment - 1) / row_alignment * row_alignment;
}

std::int64_t padded_bytes(const ActivationSpec& row) {
  return round_up(row.shape.numel() * size_of(row.dtype));
}

/// Bytes of one stage, gathered row by row.
struct Tally {
  std::vector<std::int64_t> per_chunk;     // of one micro-batch
  std::int64_t shared = 0;                 // once
  std::map<int, std::int64_t> recomputed;  // per block, what is there for one at a time
  std::map<int, std::int64_t> offloaded;
};

std::int64_t largest(const std::map<int, std::int64_t>& blocks) {
  std::int64_t most = 0;
  for (const auto& [unit, bytes] : blocks) most = std::max(most, bytes);
  return most;
}

class Counting {
 public:
  Counting(const StagePlan& stage, std::int64_t layers, const ActivationSavings& savings)
      : stage_(stage), layers_(layers), savings_(savings) {
    tally_.per_chunk.resize(std::max<std::size_t>(1, stage.units.size()));
  }

  Tally count() {
    for (const ActivationSpec& row : stage_.activations) add(row);
    return std::move(tally_);
  }

 private:
  /// The place of a block among those of the stage.
  std::int64_t place_of(int unit) const {
    std::int64_t before = 0;
    for (const UnitRange& range : stage_.units) {
      if (unit < range.end) return before + count_blocks({range.begin, unit}, layers_);
      before += count_blocks(range, layers_);
    }
    return before;
  }

  void add(const ActivationSpec& row) {
    const std::int64_t bytes = padded_bytes(row);
    if (row.lifetime == Lifetime::transient) {
      tally_.shared += bytes;
      return;
    }
    if (row.lifetime == Lifetime::batch) {
      for (std::int64_t& chunk : tally_.per_chunk) chunk += bytes;
      return;
    }
    std::int64_t& chunk = at(tally_.per_chunk, row.chunk);
    if (kind_of_unit(row.unit, layers_) != UnitKind::block) {
      chunk += bytes;
    } else if (place_of(row.unit) < savings_.offloaded_layers) {
      tally_.offloaded[row.unit] += bytes;
    } else if (place_of(row.unit) >= savings_.recomputed_layers) {
      chunk += bytes;
    } else if (row.unit_input) {
      chunk += round_up(bytes / savings_.input_parts);
    } else {
      tally_.recomputed[row.unit] += bytes;
    }
  }

  const StagePlan& stage_;
  std::int64_t layers_;
  const ActivationSavings& savings_;
  Tally tally_;
};

/// The fullest moment of the schedule: rows of a chunk's micro-batch live from the receive of its
/// input, or where there is none from its forward, to its weight gradient.
std::int64_t peak_bytes(const std::vector<Action>& rows, const std::vector<std::int64_t>& chunks) {
  std::set<std::pair<int, int>> received;  // and not yet used
  std::int64_t alive = 0;
  std::int64_t peak = 0;
  for (const Action& row : rows) {
    const std::int64_t bytes = at(chunks, row.chunk);
    const std::pair place{row.chunk, row.microbatch};
    if (row.kind == ActionKind::receive_forward) received.insert(place);
    const bool made = row.kind == ActionKind::forward && received.erase(place) == 0;
    if (made || row.kind == ActionKind::receive_forward) peak = std::max(peak, alive += bytes);
    if (row.kind == ActionKind::backward_weight) alive -= bytes;
  }
  return peak;
}

}  // namespace

ActivationSavings activation_savings(const Plan& plan, int stage, const Config& config) {
  const RecomputeConfig& recompute = config.recompute;
  ActivationSavings savings;
  if (recompute.enable) {
    const IntList given = recompute.layers_per_stage.value_or(IntList{});
    savings.recomputed_layers = stage < std::ssize(given) ? at(given, stage) : plan.model.layers;
    // With sequence parallelism the inputs are cut over tp already.
    if (recompute.slice_activation && !plan.sequence_parallel) savings.input_parts = plan.mesh.tp;
  }
  if (config.offload.enable && config.offload.activations) {
    savings.offloaded_layers = config.offload.num_layers;
  }
  savings.offload_buffers = config.offload.double_buffering ? 2 : 1;
  return savings;
}

std::int64_t activation_bytes(const std::vector<ActivationSpec>& rows, int slots) {
  std::int64_t per_slot = 0;
  std::int64_t shared = 0;
  for (const ActivationSpec& row : rows) {
    (row.lifetime == Lifetime::transient ? shared : per_slot) += padded_bytes(row);
  }
  return per_slot * slots + shared;
}

std::int64_t stage_activation_bytes(const StagePlan& stage, std::int64_t layers,
                                    const ActivationSavings& savings) {
  const Tally tally = Counting(stage, layers, savings).count();
  const std::int64_t kept = tally.per_chunk.size() == 1
                                ? tally.per_chunk[0] * stage.slots
                                : peak_bytes(stage.schedule, tally.per_chunk);
  return kept + tally.shared + largest(tally.recomputed) +
         savings.offload_buffers * largest(tally.offloaded);
}

}  // namespace trainctl
