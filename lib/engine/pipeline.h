// The messages between pipeline stages: rows of the schedule as sends and receives over the
// pipeline group. A send is posted and only waited for before its buffer is written again; a
// receive is waited for, on the host, by the end of the batch of rows it stands in.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "comm/world.h"
#include "engine/buffers.h"
#include "plan/plan.h"

namespace trainctl {

class Pipeline {
 public:
  /// Collective over each pipeline group. All that is given must outlive this.
  Pipeline(const Plan& plan, const Buffers& buffers, World& world, Stream& compute,
           double deadline_seconds);

  /// Neighbouring message rows: all are posted, then the receives awaited. `slots`: micro-batch m
  /// lives in slot m % slots. Throws Error{peer} naming the message that did not come.
  void exchange(std::span<const Action> rows, int slots);
  /// The chunk's output may be written again.
  void await_output(int chunk) { finish(chunks_[static_cast<std::size_t>(chunk)].sent, "send"); }
  /// The gradients of the residual stream may be written again.
  void await_gradient() { finish(gradient_sent_, "send"); }

 private:
  struct Chunk {
    std::vector<Tensor> input;  // by slot, from the stage before; empty on the model's first chunk
    Tensor input_gradient;      // to it
    Tensor output, output_gradient;  // to the next stage, and from it
    Event sent;
  };
  Event post(const Action& row, int slot);
  void finish(const Event& event, const char* operation) const;

  Stream& compute_;
  double deadline_seconds_;
  std::unique_ptr<Group> group_;
  std::vector<Chunk> chunks_;
  Event gradient_sent_;
};

}  // namespace trainctl
