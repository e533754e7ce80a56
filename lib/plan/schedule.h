// A training step as data: for each rank an ordered list of actions. Generators (schedule_*.cpp)
// emit rows for a whole stage; refine() splits them per unit and inserts communication; simulate()
// plays and proves them; the executor runs refined rows only.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "plan/params.h"

namespace trainctl {

enum class ActionKind : std::uint8_t {
  fetch,            // the micro-batch's data is copied to its slot
  forward,          // F of units [begin, end)
  backward_input,   // B
  backward_weight,  // W
  reduce,           // start summing a gradient bucket over its axes, on the communication queue
  wait_reduce,      // the compute queue waits for a bucket
  step,             // norm, clip and optimizer
  send_forward,
  receive_forward,
  send_backward,
  receive_backward,  // between stages
};

struct Action {
  ActionKind kind = ActionKind::forward;
  int chunk = 0;  // model chunk on this rank
  int microbatch = 0;
  int begin = 0;  // units [begin, end) of the stage
  int end = 0;
  int bucket = -1;  // reduce, wait_reduce
  friend bool operator==(const Action&, const Action&) = default;
};

/// "F0.0[1,2)", "reduce 3"
std::string to_string(const Action& action);

struct ScheduleInput {
  int stages = 1;
  int stage = 0;
  int chunks = 1;
  int microbatches = 1;
  int units = 0;  // of the stage: embedding, blocks, head
};

/// One stage: fetch, F, B, W for each micro-batch in turn (gradient accumulation), then step.
std::vector<Action> schedule_no_pipelining(const ScheduleInput& input);

/// Splits B and W per unit, interleaved (B of a unit, its W, the next unit below), starts each
/// bucket's reduce in the last micro-batch as soon as its last unit is done, and waits for all of
/// them before the step. One rank needs no reduce rows: with data_parallel = 1 there are none.
std::vector<Action> refine(const std::vector<Action>& rows, const ScheduleInput& input,
                           const FlatLayout& layout, std::int64_t data_parallel);

/// Most micro-batches whose kept activations are alive at once.
int peak_microbatches(const std::vector<Action>& rows);

}  // namespace trainctl
