// Assigns memory to the activations of each micro-batch on a rank. It follows the schedule, so all
// addresses are known before the first step, and memory is reused after its last read.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "plan/model/activations.h"
#include "plan/schedule/schedule.h"

namespace trainctl {

/// The memory of one rank's activations. Rows of a unit with equal storage and lifetime form a
/// group and are contiguous, each padded to 64 bytes as in device/slab.h. Groups of equal size take
/// slots from one pool, which has the maximum number in use at once. (The gradients for a layer's W
/// need the size of the activations that its B has read, so they share a pool.) Recomputed rows
/// have one pool, whose slots fit the largest group; so do device copies of offloaded rows. Rows
/// kept on the host, and rows that the host counts, have pools in host memory. A view is a set of
/// micro-batches with equal slots.
struct ActivationSlots {
  struct Pool {
    std::int64_t begin = 0;  // bytes from the start of the rank's device or host memory
    std::int64_t bytes = 0;  // bytes of one slot
    int slots = 1;
    bool on_host = false;
  };
  struct Group {
    int pool = 0;
    std::vector<int> slot;  // slot by view; -1 = micro-batches of the view lack these rows
    bool lasts = false;     // after the last micro-batch, the slot is not reused
  };
  struct Row {
    int group = 0;
    std::int64_t begin = 0;  // bytes from the start of the group's slot
  };

  std::vector<Pool> pools;
  std::vector<Group> groups;
  std::vector<Row> rows;        // place of each row of the activation table
  std::vector<int> view_of;     // view of each micro-batch
  std::int64_t bytes = 0;       // bytes of all pools in device memory
  std::int64_t host_bytes = 0;  // bytes of all pools in host memory

  int views() const;
  /// Whether the micro-batches of this view have row number `row` of the table.
  bool has(std::size_t row, int view) const;
  bool on_host(std::size_t row) const;
  /// Bytes from the start of the rank's device or host memory to a row of the table, for a view
  /// that has it.
  std::int64_t place(std::size_t row, int view) const;
  /// Whether the row of the last micro-batch still exists at the end of the step.
  bool lasts(std::size_t row) const;
};

/// `actions`: the refined rows of the stage, in the order of its compute queue.
ActivationSlots assign_slots(std::span<const ActivationSpec> table, std::span<const Action> actions,
                             const ScheduleInput& input);

/// Bytes of all pools of assign_slots(), in device and in host memory.
struct SlotBytes {
  std::int64_t device = 0, host = 0;
};
/// Bytes of the pools without assigning slots: a pool has the largest number of slots in use at
/// once. Only the order of `actions` matters; rows for moments that the table does not use have no
/// effect.
SlotBytes count_slots(std::span<const ActivationSpec> table, std::span<const Action> actions,
                      const ScheduleInput& input);

/// The least bytes of device memory for rows of the table at the end of a chunk's F: rows that are
/// alive then and kept between rows of the schedule, and shared rows.
std::int64_t min_slots(std::span<const ActivationSpec> table, std::span<const Action> actions,
                       const ScheduleInput& input, const Action& forward);

/// Bytes of a row on a rank, padded to 64.
std::int64_t padded_bytes(const ActivationSpec& row);

}  // namespace trainctl
