// Where the activations of each micro-batch lie on a rank: decided from the rows of the schedule,
// so that every address is known before the first step and nothing is kept longer than it is read.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "plan/model/activations.h"
#include "plan/schedule/schedule.h"

namespace trainctl {

/// The memory of one rank's activations. Rows of a unit with equal storage that live equally long
/// form a group and lie side by side, each padded to 64 bytes as in device/slab.h. Groups of equal
/// size take their slots from one pool, which has the number that is ever in use at once. (The
/// gradients for a layer's W need as much as what its B has read, so the two take turns.) Repeated
/// rows have a pool of their own, whose slots hold the largest group: layers in different forms
/// take turns there. So have the rows that layers on the host have here for a while. Rows that
/// they keep there, and rows that the host counts, have pools in memory of the host.
struct ActivationSlots {
  struct Pool {
    std::int64_t begin = 0;  // bytes from the start of the rank's memory, or of that on the host
    std::int64_t bytes = 0;  // of one slot
    int slots = 1;
    bool on_host = false;
  };
  struct Group {
    int pool = 0;
    std::vector<int> slot;  // by view; -1: micro-batches of that view have no such rows
    bool lasts = false;     // after the last micro-batch, nothing else takes its slot
  };
  struct Row {
    int group = 0;
    std::int64_t begin = 0;  // bytes from the start of the group's slot
  };

  std::vector<Pool> pools;
  std::vector<Group> groups;
  std::vector<Row> rows;        // of the activation table
  std::vector<int> view_of;     // by micro-batch; two with equal slots throughout have one view
  std::int64_t bytes = 0;       // of all pools of the rank's memory
  std::int64_t host_bytes = 0;  // and of those on the host

  int views() const;
  /// Whether the micro-batches of a view have a row of the table.
  bool has(std::size_t row, int view) const;
  bool on_host(std::size_t row) const;
  /// Bytes from the start of the rank's memory, or of that on the host, to a row of the table, in a
  /// view that has it.
  std::int64_t place(std::size_t row, int view) const;
  /// Whether a row of the last micro-batch is still there at the end of the step.
  bool lasts(std::size_t row) const;
};

/// `actions`: the refined rows of the stage, in the order in which its compute queue runs them.
ActivationSlots assign_slots(std::span<const ActivationSpec> table, std::span<const Action> actions,
                             const ScheduleInput& input);

/// Bytes of all pools that assign_slots makes, of the rank's memory and on the host.
struct SlotBytes {
  std::int64_t device = 0, host = 0;
};
/// Counts these bytes without the slots: a pool has a slot for each of the most stays at once. Only
/// the order of `actions` counts, and rows about moments that the table does not name change
/// nothing.
SlotBytes count_slots(std::span<const ActivationSpec> table, std::span<const Action> actions,
                      const ScheduleInput& input);

/// Bytes of the rank's memory that rows of the table take at least while F of a chunk and
/// micro-batch ends: those that are alive then and kept between rows of the schedule, and the
/// shared ones.
std::int64_t min_slots(std::span<const ActivationSpec> table, std::span<const Action> actions,
                       const ScheduleInput& input, MicrobatchOfChunk pass);

/// Bytes that a rank keeps of a row, padded to 64.
std::int64_t padded_bytes(const ActivationSpec& row);

}  // namespace trainctl
