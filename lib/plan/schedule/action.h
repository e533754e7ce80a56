// A row of a schedule: one action of a rank in a training step.
#pragma once

#include <cstdint>
#include <string>

namespace trainctl {

enum class ActionKind : std::uint8_t {
  gather,            // start gathering a block of parameters from the ranks that updated them
  wait_gather,       // the compute queue waits for the block
  free,              // the block's memory may be taken by another block
  fetch,             // the micro-batch's data is copied to its slot
  forward,           // F of units [begin, end)
  offload,           // start copying what F of one unit made to the host, on the copy queue
  wait_offload,      // the compute queue waits for that: what was copied may be overwritten
  reload,            // start copying it back, on the same queue
  wait_reload,       // the compute queue waits for that, before R or B
  repeat,            // R: F again, as far as the unit did not keep what it made
  backward_input,    // B
  backward_weight,   // W
  reduce,            // start summing a gradient bucket over its axes, on the communication queue
  reduce_embedding,  // start summing a tied embedding's bucket over the first and the last stage
  wait_reduce,       // the compute queue waits for a bucket's sums
  step,              // norm, clip and optimizer
  send_forward,
  receive_forward,
  send_backward,
  receive_backward,  // between stages
  wait_forward,
  wait_backward,  // the compute queue waits for a posted receive
};

/// F, repeated or not, B or W.
constexpr bool is_pass(ActionKind kind) {
  return kind == ActionKind::forward || kind == ActionKind::repeat ||
         kind == ActionKind::backward_input || kind == ActionKind::backward_weight;
}
/// A part of F, R or B of one block with experts (docs/experts.md): between two legs its rows are
/// on their way to other ranks, and another pass may run.
enum class ExchangePhase : std::uint8_t {
  whole,  // all of the pass
  out,    // until its rows are on their way to their experts
  work,   // run the experts, until the results are on their way back; the last of R
  home,   // the rest
};
/// Whether a row of `leg` runs what is part of `part`.
constexpr bool runs(ExchangePhase leg, ExchangePhase part) {
  return leg == ExchangePhase::whole || leg == part;
}
/// A copy to or from the host, or the wait for one; of one unit.
constexpr bool is_host_copy(ActionKind kind) {
  return kind == ActionKind::offload || kind == ActionKind::wait_offload ||
         kind == ActionKind::reload || kind == ActionKind::wait_reload;
}
constexpr bool is_receive(ActionKind kind) {
  return kind == ActionKind::receive_forward || kind == ActionKind::receive_backward;
}
/// A message between stages.
constexpr bool is_message(ActionKind kind) {
  return is_receive(kind) || kind == ActionKind::send_forward || kind == ActionKind::send_backward;
}

/// A row about one block of parameters.
constexpr bool names_block(ActionKind kind) {
  return kind == ActionKind::gather || kind == ActionKind::wait_gather || kind == ActionKind::free;
}
/// A row about one gradient bucket or one block of parameters.
constexpr bool names_bucket(ActionKind kind) {
  return names_block(kind) || kind == ActionKind::reduce || kind == ActionKind::reduce_embedding ||
         kind == ActionKind::wait_reduce;
}

/// A wait for a receive that was posted before.
constexpr bool is_message_wait(ActionKind kind) {
  return kind == ActionKind::wait_forward || kind == ActionKind::wait_backward;
}

struct Action {
  ActionKind kind = ActionKind::forward;
  int chunk = 0;  // model chunk on this rank
  int microbatch = 0;
  int begin = 0;  // units [begin, end), numbered over the whole model
  int end = 0;
  int bucket = -1;  // reduce, reduce_embedding, wait_reduce; gather, wait_gather, free: of
                    // plan/gradients/gathers.h
  int visit = 0;    // how many of the same row came before in the step
  ExchangePhase leg = ExchangePhase::whole;
  /// Whether rows are on their way to other ranks when it is over.
  bool sends_rows() const {
    return leg == ExchangePhase::out || (leg == ExchangePhase::work && kind != ActionKind::repeat);
  }
  friend bool operator==(const Action&, const Action&) = default;
};

/// "F0.1[1,2)": micro-batch 0 on chunk 1, units 1 to 1; "F0.1[1,2) out"; "offload 0.1[1,2)";
/// "reduce 3", and "reduce 3.1" for its second visit.
std::string to_string(const Action& action);
/// "F0.1": without the units.
std::string short_name(const Action& action);

/// The head's weight gradient of the first micro-batches is made after all passes of the step
/// (megatron.core defer_embedding_wgrad_compute).
struct Deferral {
  int unit = -1;         // the head, where the stage has it
  int microbatches = 0;  // how many
  /// Whether the row has to do with a deferred gradient.
  bool concerns(const Action& row) const {
    return row.begin <= unit && unit < row.end && row.microbatch < microbatches;
  }
};

}  // namespace trainctl
