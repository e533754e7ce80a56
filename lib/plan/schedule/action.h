// A row of a schedule: one action of a rank in a training step.
#pragma once

#include <cstdint>
#include <string>

namespace trainctl {

enum class ActionKind : std::uint8_t {
  gather,            // start gathering a block of parameters from the ranks that updated it
  wait_gather,       // the compute queue waits for the gathered block
  free,              // the block's memory may be used for another block
  fetch,             // the micro-batch's data is copied to its slot
  forward,           // F of units [begin, end)
  offload,           // start copying the results of one unit's F to the host, on the copy queue
  wait_offload,      // the compute queue waits for the offload; the device copy may be overwritten
  reload,            // start copying the results back, on the same queue
  wait_reload,       // the compute queue waits for the reload, before R or B
  repeat,            // R: recomputes parts of F whose results the unit did not keep
  backward_input,    // B
  backward_weight,   // W
  reduce,            // start summing a gradient bucket over its axes, on the communication queue
  reduce_embedding,  // start summing a tied embedding's bucket over the first and the last stage
  wait_reduce,       // the compute queue waits for a bucket's sums
  step,              // gradient norm, clipping and optimizer
  send_forward,
  receive_forward,
  send_backward,
  receive_backward,  // messages between stages (these four)
  wait_forward,
  wait_backward,  // the compute queue waits for a posted receive
};

/// Whether the action is F, R, B or W.
constexpr bool is_pass(ActionKind kind) {
  return kind == ActionKind::forward || kind == ActionKind::repeat ||
         kind == ActionKind::backward_input || kind == ActionKind::backward_weight;
}
/// A leg of F, R or B of one block with experts (docs/experts.md). Between two legs, its rows are
/// sent to other ranks and another pass may run.
enum class ExchangePhase : std::uint8_t {
  whole,  // the pass is not divided
  out,    // until its rows are sent to their experts
  work,   // runs the experts, until their results are sent back; the last leg of R
  home,   // the rest of the pass, after results arrive
};
/// Whether a row of `leg` includes the work of phase `part`.
constexpr bool runs(ExchangePhase leg, ExchangePhase part) {
  return leg == ExchangePhase::whole || leg == part;
}
/// Whether the action is a copy to or from the host of one unit, or the wait for one.
constexpr bool is_host_copy(ActionKind kind) {
  return kind == ActionKind::offload || kind == ActionKind::wait_offload ||
         kind == ActionKind::reload || kind == ActionKind::wait_reload;
}
constexpr bool is_receive(ActionKind kind) {
  return kind == ActionKind::receive_forward || kind == ActionKind::receive_backward;
}
/// Whether the action is a message between stages.
constexpr bool is_message(ActionKind kind) {
  return is_receive(kind) || kind == ActionKind::send_forward || kind == ActionKind::send_backward;
}

/// Whether the action refers to one block of parameters.
constexpr bool names_block(ActionKind kind) {
  return kind == ActionKind::gather || kind == ActionKind::wait_gather || kind == ActionKind::free;
}
/// Whether the action refers to one gradient bucket or one block of parameters.
constexpr bool names_bucket(ActionKind kind) {
  return names_block(kind) || kind == ActionKind::reduce || kind == ActionKind::reduce_embedding ||
         kind == ActionKind::wait_reduce;
}

/// Whether the action waits for a receive that was posted before.
constexpr bool is_message_wait(ActionKind kind) {
  return kind == ActionKind::wait_forward || kind == ActionKind::wait_backward;
}

struct Action {
  ActionKind kind = ActionKind::forward;
  int chunk = 0;  // model chunk of this rank
  int microbatch = 0;
  int begin = 0;  // units [begin, end), numbered over the whole model
  int end = 0;
  int bucket = -1;  // for sums: index of the bucket; for gather, wait_gather, free: of the block
  int visit = 0;    // number of earlier rows of this kind and bucket in the step
  ExchangePhase leg = ExchangePhase::whole;
  /// Whether rows are being sent to other ranks at the end of this action.
  bool sends_rows() const {
    return leg == ExchangePhase::out || (leg == ExchangePhase::work && kind != ActionKind::repeat);
  }
  friend bool operator==(const Action&, const Action&) = default;
};

/// The action as text: "F0.1[1,2)" is micro-batch 0 on chunk 1, units 1 to 1; "F0.1[1,2) out";
/// "offload 0.1[1,2)"; "reduce 3", and "reduce 3.1" for its second visit.
std::string to_string(const Action& action);
/// The action as text without units: "F0.1".
std::string short_name(const Action& action);

/// For the first micro-batches, the head's weight gradient is computed after all passes of the step
/// (megatron.core defer_embedding_wgrad_compute).
struct Deferral {
  int unit = -1;         // unit of the head, if it is on the stage
  int microbatches = 0;  // number of micro-batches with deferred gradient
  /// Whether the row includes the head's pass of a micro-batch with deferred gradient.
  bool concerns(const Action& row) const {
    return row.begin <= unit && unit < row.end && row.microbatch < microbatches;
  }
};

}  // namespace trainctl
