// The messages between pipeline stages: rows of the schedule as sends and receives over the
// pipeline group. A send is posted and only waited for before its buffer is written again; a
// receive is waited for, on the host, where its rows end, or by a wait row.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "comm/world.h"
#include "engine/buffers.h"
#include "plan/plan.h"

namespace trainctl {

class Pipeline {
 public:
  /// Collective over each pipeline group. All that is given must outlive this.
  Pipeline(const Plan& plan, const Buffers& buffers, World& world, const OpContext& ops,
           double deadline_seconds);

  /// How many of the rows that `rows` begins with are posted together; 0 if it begins with none.
  std::size_t posted_together(std::span<const Action> rows) const;
  /// Posts message rows; then their receives are awaited, unless the plan has wait rows for them.
  /// Throws Error{peer} naming the message that did not come.
  void exchange(std::span<const Action> rows);
  /// What a receive row has posted is there. Nothing if it has been awaited.
  void await_received(const Action& row);
  /// The output of the row's chunk and micro-batch may be written.
  void await_output(const Action& row);
  /// All outputs that were sent have arrived.
  void await_outputs();
  /// The gradients of the residual stream may be written.
  void await_gradient();
  /// `values` of the last stage go to every stage where the plan broadcasts results, else to rank
  /// 0. Whether this rank has them. Collective over each pipeline group.
  bool share_result(std::span<double> values);
  int world_rank() const { return world_rank_; }

 private:
  /// One direction of a chunk's messages. Tensors and events by slot, or one for all slots.
  struct Line {
    std::vector<Tensor> value;  // as the layers have it
    std::vector<Tensor> wire;   // as it is sent: `value`, or buffers of the messages' dtype
    std::vector<Event> under_way;
  };
  struct Chunk {
    Line input, input_gradient;    // from the stage before, and to it
    Line output, output_gradient;  // to the next stage, and from it
  };
  Line make_line(const Buffers& buffers, const StagePlan& stage, const std::string& value,
                 const std::string& wire) const;
  Chunk& chunk_of(const Action& row) { return chunks_[static_cast<std::size_t>(row.chunk)]; }
  /// Of a kind of lists by slot, the row's own.
  template <class T>
  T& own(std::vector<T>& by_slot, const Action& row) const {
    return by_slot[static_cast<std::size_t>(row.microbatch % slots_) % by_slot.size()];
  }
  Line& received_by(const Action& row);
  void send(const Action& row);
  void receive(const Action& row);
  void finish(const Event& event, const char* operation) const;

  const OpContext& ops_;
  const MessageRules rules_;
  const int slots_;
  double deadline_seconds_;
  const int world_rank_;
  const bool broadcasts_;  // results
  const bool reports_;     // rank 0 is in this rank's group
  std::unique_ptr<Group> group_;
  std::vector<Chunk> chunks_;
  Event gradient_sent_;
};

}  // namespace trainctl
