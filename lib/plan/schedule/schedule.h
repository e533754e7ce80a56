// A training step as data: for each rank, an ordered list of actions. Generators (plan/generators)
// emit rows for a whole stage; refine() splits them per unit and inserts communication; simulate()
// simulates and proves the rows of all ranks; the executor runs refined rows only.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "config/schema/choices.h"
#include "plan/gradients/gathers.h"
#include "plan/schedule/action.h"
#include "plan/tables/params.h"
#include "plan/tables/recompute_form.h"
#include "plan/tables/stage_map.h"

namespace trainctl {

struct ScheduleInput {  // input for the schedule of one stage
  int stages = 1;
  int stage = 0;
  int microbatches = 1;
  int group_size = 1;            // microbatch_group_size_per_vp_stage
  std::vector<UnitRange> units;  // units by chunk
  MessageRules messages{};
  ChunkRoute route = "round_robin";
  StageForms forms{};  // units with an R before B
  Deferral deferral{};
  bool late_weights = false;  // W comes after the message with the input gradient of its B
  // By unit, whether passes run in legs (Action::leg) between other passes; empty if none does.
  std::vector<char> legs{};
  bool forward_only = false;  // one micro-batch runs F, and nothing else
  int chunks() const { return static_cast<int>(units.size()); }
  ChunkPlaces places() const { return {stages, chunks(), route}; }
};

/// The k-th forward of every stage in the interleaved schedule, without units; the k-th backward is
/// in chunk V - 1 - chunk (megatron.core get_schedule_table).
std::vector<Action> schedule_table(int microbatches, int chunks, int group_size);
/// The number of forwards in the stage's rows before the first backward. If more forwards follow,
/// the one that alternates with this backward does not count.
int warmup_forwards(std::span<const Action> rows);

/// "none" with one stage, otherwise a name in config/schema/schedules.h.
std::string_view schedule_name(PipelineScheduler scheduler, int stages, int chunks);

/// The generator's rows in the order that `input.messages` requires. Batched messages are
/// unchanged. Single messages have the sends first. Overlapped receives are posted one pass before
/// the pass that needs them, which has a wait row before it.
std::vector<Action> arrange_messages(std::vector<Action> rows, const ScheduleInput& input);

/// How the gradients of one bucket are summed between their last W and the step.
struct BucketSum {
  int ready_unit = 0;        // lowest unit, whose last W makes the gradients final
  bool reduced = false;      // summed over ranks of the stage, or kept in a narrower dtype
  bool embedding = false;    // whether a tied embedding is also summed over its two stages
  bool repeated = false;     // summed after every micro-batch, from its own slot
  std::vector<int> units{};  // units whose B and W add to the gradients, ascending
  int head = -1;             // unit whose F also adds to the gradients, or -1
  int slot = -1;             // slot for a micro-batch's gradients, if `repeated`; see Ring
  bool has_rows() const { return reduced || embedding; }
  /// Whether the row adds to the gradients.
  bool adds(const Action& row) const;
};

/// Whether the row reads the parameters of the block: F, R, and B of units except the embedding.
bool reads(const Action& row, const GatherBlock& block);

/// Memory that blocks of parameters or buckets of gradients share at different times.
struct Ring {
  std::vector<int> slot;            // slot by block or bucket; -1 = none
  std::vector<std::int64_t> sizes;  // size of the largest block or bucket, by slot
  std::vector<std::int64_t> begin;  // offset by slot
  std::int64_t length = 0;          // length of all slots
};
/// A BucketSum for each bucket in buffer order. It is `reduced` if one of its parameters' gradients
/// is summed over an axis or shared by tp ranks (ParamSpec::gradient_sum, tp_copies).
std::vector<BucketSum> bucket_sums(const FlatBuffer& layout,
                                   const std::vector<ParamSpec>& parameters);

/// Interleaves two passes of different micro-batches: each runs until it sends rows to other ranks,
/// or to its end, before the other continues.
std::vector<Action> in_turns(const std::vector<Action>& one, const std::vector<Action>& other);

/// Completes the rows of a stage. `gathers`: blocks of parameters that other ranks update. First
/// starts the gather of every block that is not freed, in order, and waits for each before the
/// first F of its units, which splits that F (with before_forward, waits before everything else).
/// Splits B and W per unit and interleaves adjacent ones (B of a unit, its W, the next unit below).
/// If an F is followed by a B of another micro-batch, both run in legs, interleaved, B first. Puts
/// R before the B of a unit that input.forms recomputes. F of a unit that is kept on the host
/// becomes a row of its own. Starts the sum of each bucket in the last micro-batch after its last
/// unit (without `overlap`, after all passes), or, if it is repeated, in each. After all passes
/// come the head's W that input.deferral delays, in the same order, and the sums that need them.
/// Before the step, sums the tied embedding over its two stages and waits for all sums.
std::vector<Action> refine(const std::vector<Action>& rows, const ScheduleInput& input,
                           const std::vector<BucketSum>& buckets,
                           const std::vector<GatherBlock>& gathers = {},
                           ParamSyncStart param_sync = "overlap", bool overlap = true);

/// Adds copies of activations that input.forms keeps on the host to rows of refine(). A use of a
/// buffer is an F with its copy to the host, or a copy back with the rows that read it; uses have
/// the order of their passes. At most `ahead` uses overlap with another: before the next one
/// begins, copies of earlier uses are awaited. A copy back starts no earlier than its micro-batch's
/// backward.
std::vector<Action> copy_to_host(const std::vector<Action>& rows, const ScheduleInput& input,
                                 int ahead);

/// Adds the rows for freed blocks to rows of refine(). While a use reads its blocks, those of the
/// next `ahead` uses are gathered. A block that none of these uses reads is freed.
std::vector<Action> gather_freed(const std::vector<Action>& rows,
                                 const std::vector<GatherBlock>& blocks, int ahead);

/// Replaces blocks that are not freed by empty ones, for rows before which they are present.
std::vector<GatherBlock> freed_only(std::vector<GatherBlock> blocks);

/// Assigns slots to the freed blocks. Blocks that exist at the same time get different slots.
/// `sizes` of blocks may have any unit, which the ring keeps.
Ring weight_ring(const std::vector<Action>& rows, const std::vector<GatherBlock>& blocks,
                 const std::vector<std::int64_t>& sizes);

/// Assigns slots to the buckets that are summed repeatedly. The sum of one bucket may overlap with
/// the computation of the next.
Ring gradient_ring(const std::vector<Action>& rows, const std::vector<BucketSum>& buckets,
                   const std::vector<std::int64_t>& sizes);

/// Adds, before a row that adds to gradients in a slot, a wait for an unfinished sum there.
std::vector<Action> await_slots(const std::vector<Action>& rows,
                                const std::vector<BucketSum>& buckets);

/// The largest number of micro-batches of one chunk that occupy slots at once: from the first row
/// that fills a slot (data fetched, input received, F) to the last B or W.
int peak_microbatches(std::span<const Action> rows);

}  // namespace trainctl
