// A training step as data: for each rank, an ordered list of actions. Generators (plan/generators)
// emit rows for a whole stage; refine() splits them per unit and inserts communication; simulate()
// plays the rows of all ranks and proves them; the executor runs refined rows only.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "config/schema/choices.h"
#include "plan/schedule/action.h"
#include "plan/tables/params.h"
#include "plan/tables/recompute_form.h"
#include "plan/tables/stage_map.h"

namespace trainctl {

struct ScheduleInput {  // of one stage
  int stages = 1;
  int stage = 0;
  int microbatches = 1;
  int group_size = 1;            // microbatch_group_size_per_vp_stage
  std::vector<UnitRange> units;  // per chunk
  MessageRules messages{};
  ChunkRoute route = ChunkRoute::round_robin;
  StageForms forms{};  // what has an R before its B
  Deferral deferral{};
  bool late_weights = false;  // W comes behind the message with what its B made
  // By unit, whether its passes run in legs (Action::leg) between others; empty: none does.
  std::vector<char> legs{};
  bool forward_only = false;  // one micro-batch goes up and nothing comes back
  int chunks() const { return static_cast<int>(units.size()); }
  ChunkPlaces places() const { return {stages, chunks(), route}; }
};

/// One micro-batch of a chunk.
struct MicrobatchOfChunk {
  int chunk = 0, microbatch = 0;
};

/// The k-th forward of every stage of the interleaved schedule; the k-th backward has chunk
/// V - 1 - chunk (megatron.core get_schedule_table).
std::vector<MicrobatchOfChunk> schedule_table(int microbatches, int chunks, int group_size);
/// The number of forwards in the stage's rows before the first backward, without the one that
/// alternates with it where more follow.
int warmup_forwards(std::span<const Action> rows);

/// "none" with one stage, or a name of config/schema/schedules.h.
std::string_view schedule_name(PipelineScheduler scheduler, int stages, int chunks);

/// The generator's rows in the order that `input.messages` requires: batched messages unchanged;
/// single messages with the sends first; or receives posted one pass before the pass that needs
/// them, with a wait row before that pass.
std::vector<Action> arrange_messages(std::vector<Action> rows, const ScheduleInput& input);

/// How the gradients of one bucket are communicated between their last W and the step.
struct BucketSum {
  int ready_unit = 0;        // its lowest unit: the gradients are final after W of it
  bool reduced = false;      // summed over ranks of its stage, or kept in a narrower type
  bool embedding = false;    // a tied embedding with two homes: afterwards summed over both
  bool repeated = false;     // summed after every micro-batch, into memory of its own
  std::vector<int> units{};  // whose B and W add to the gradients, ascending
  int head = -1;             // the unit whose F adds to them as well; -1: none does
  int slot = -1;             // repeated: where the gradients of a micro-batch are made; see Ring
  bool has_rows() const { return reduced || embedding; }
  /// Whether the row adds to the gradients.
  bool adds(const Action& row) const;
};

/// Parameters that are gathered together, by the units that read them.
struct ReadBlock {
  UnitRange units;
  int also = -1;       // another unit: the head, where its matrix is the embedding's
  bool freed = false;  // gathered for each use; else once, before the first
  int slot = -1;       // freed: where they lie; see Ring
  bool holds(int unit) const { return units.holds(unit) || unit == also; }
  /// Whether the row reads them: F, B except the embedding's.
  bool read_by(const Action& row) const;
};

/// Memory that blocks of parameters or buckets of gradients share over time.
struct Ring {
  std::vector<int> slot;            // by block or bucket; -1: it takes none
  std::vector<std::int64_t> sizes;  // of each slot: that of the largest that takes it
  std::vector<std::int64_t> begin;  // of each slot
  std::int64_t length = 0;          // of all
};
/// For each bucket in buffer order. A bucket is reduced if the gradient of one of its parameters is
/// summed over an axis or shared by tp ranks (ParamSpec::gradient_sum, tp_copies).
std::vector<BucketSum> bucket_sums(const FlatBuffer& layout,
                                   const std::vector<ParamSpec>& parameters);

/// Two passes of different micro-batches in turns: each runs until its rows are on their way to
/// other ranks, or to its end.
std::vector<Action> in_turns(const std::vector<Action>& one, const std::vector<Action>& other);

/// Completes the rows of a stage. `gathers`: the blocks of parameters that other ranks update.
/// Starts the gather of every block that is not freed first, in order, and waits for each before
/// the first F of its units, which splits that F (before_forward: before everything else). Splits B
/// and W per unit and, where they are adjacent, interleaves them (B of a unit, its W, the next unit
/// below). Where an F is followed by a B of another micro-batch, both run in legs and in turns, B
/// first. Puts R before the B of a unit of which input.forms repeats parts. F of a unit that is
/// kept on the host is a row of its own.
/// Starts the reduction of each bucket in the last micro-batch as soon as its last unit is done
/// (without `overlap`: after the whole backward); if it is repeated, in each. After all passes come
/// the W of the head that input.deferral puts off, in the order in which they would have come, and
/// then the reductions that wait for them. Before the step, sums the tied embedding over its two
/// stages and waits for all sums.
std::vector<Action> refine(const std::vector<Action>& rows, const ScheduleInput& input,
                           const std::vector<BucketSum>& buckets,
                           const std::vector<ReadBlock>& gathers = {},
                           ParamSyncStart param_sync = "overlap", bool overlap = true);

/// Adds the copies of what input.forms keeps on the host to the rows of refine(). An F with its
/// copy out, and a copy back with what is read after it, are uses of a buffer; they come in the
/// order of their passes. While one is under way, `ahead` more may be: before the next begins, the
/// copies of earlier ones are awaited. A copy back starts at the earliest as its micro-batch's
/// backward does.
std::vector<Action> copy_to_host(const std::vector<Action>& rows, const ScheduleInput& input,
                                 int ahead);

/// Adds the rows of the blocks that are freed to the rows of refine(). While some are read, those
/// of the next `ahead` uses are gathered; what none of these uses reads is freed.
std::vector<Action> gather_freed(const std::vector<Action>& rows,
                                 const std::vector<ReadBlock>& blocks, int ahead);

/// As rows see `blocks` where those that are not freed are there before: nothing reads these.
std::vector<ReadBlock> freed_only(std::vector<ReadBlock> blocks);

/// The slots of the blocks that are freed: two that are held at once have different ones. `sizes`:
/// of each block, in any unit, which is that of the ring.
Ring weight_ring(const std::vector<Action>& rows, const std::vector<ReadBlock>& blocks,
                 const std::vector<std::int64_t>& sizes);

/// The slots of the buckets that are summed repeatedly. While the next one is made, the sum of one
/// may be under way.
Ring gradient_ring(const std::vector<Action>& rows, const std::vector<BucketSum>& buckets,
                   const std::vector<std::int64_t>& sizes);

/// Before a row adds to gradients in a slot, waits for the sum that is under way there.
std::vector<Action> await_slots(const std::vector<Action>& rows,
                                const std::vector<BucketSum>& buckets);

/// The largest number of micro-batches of one chunk that occupy a slot at once: from the first row
/// that fills it (data fetched, input received, F) to the last B or W.
int peak_microbatches(std::span<const Action> rows);

}  // namespace trainctl
