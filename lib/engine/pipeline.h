// The messages between pipeline stages: executes rows of the schedule as sends and receives over
// the pipeline group. A send is posted and awaited only before its buffer is overwritten; a receive
// is awaited at the end of its rows or by a wait row.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/at.h"
#include "comm/nccl/device_world.h"
#include "data/batch.h"
#include "engine/memory/buffers.h"
#include "plan/plan.h"

namespace trainctl {

class Pipeline {
 public:
  /// Collective over each pipeline group. All arguments must outlive this object.
  Pipeline(const Plan& plan, const Buffers& buffers, const DeviceWorld& world, const OpContext& ops,
           double deadline_seconds);
  /// Between two steps: places in the buffers are now those of `plan`. Waits for what is still
  /// being sent.
  void lay_out(const Plan& plan);

  /// The micro-batches that the next rows are about.
  void use(std::span<const Batch> batches) { batches_ = batches; }
  /// The number of rows at the start of `rows` that are posted together; 0 if there are none.
  std::size_t posted_together(std::span<const Action> rows) const;
  /// Posts message rows and then waits for their receives, unless the plan has wait rows for them.
  /// Throws Error{peer} naming the message that did not arrive.
  void exchange(std::span<const Action> rows);
  /// Waits for what a receive row posted; does nothing if it has been awaited.
  void await_received(const Action& row);
  /// Waits until what the F row leaves for another stage may be overwritten.
  void await_output(const Action& row);
  /// Waits until all sent outputs have arrived.
  void await_outputs();
  /// Waits until what the B row leaves for another stage may be overwritten.
  void await_gradient(const Action& row);
  /// F or B of a chunk without units: what it receives is what it sends.
  void pass_on(const Action& row);
  /// Sends `values` (on the host) of the stage with the model's last chunk to every stage if the
  /// plan broadcasts results, else to rank 0. Returns whether this rank has them. Collective over
  /// each pipeline group.
  bool share_result(const Tensor& values);
  int world_rank() const { return world_rank_; }

 private:
  /// One direction of a chunk's messages, empty without them. Tensors and events by view, or one
  /// for all views.
  struct Line {
    std::vector<Tensor> value;  // as the layers use it
    std::vector<Tensor> wire;   // as it is sent: `value`, or buffers of the messages' dtype
    std::vector<Event> under_way;
  };
  struct Chunk {
    UnitRange units;
    Line input, input_gradient;    // from the stage before, and to it
    Line output, output_gradient;  // to the stage after, and from it
  };
  Chunk& chunk_of(const Action& row) { return chunks_[static_cast<std::size_t>(row.chunk)]; }
  /// The row's entry of a list by view.
  template <class T>
  T& own(std::vector<T>& by_view, const Action& row) const {
    return by_view.size() == 1 ? by_view.front() : at(by_view, at(*view_of_, row.microbatch));
  }
  /// The same of a tensor, as long as the row's micro-batch.
  Tensor part(std::vector<Tensor>& by_view, const Action& row) const;
  Line& received_by(const Action& row);
  void send(const Action& row);
  void receive(const Action& row);
  void open_lines();
  std::string name_of(const char* operation) const;
  void finish(const Event& event, const char* operation) const;         // see continue_after
  void await_message(const Event& event, const char* operation) const;  // on the host

  const OpContext& ops_;
  const MessageRules rules_;
  const ChunkPlaces places_;
  const std::int64_t seq_length_;
  std::span<const Batch> batches_;
  const Buffers& buffers_;
  const std::vector<int>* view_of_;  // by micro-batch
  double deadline_seconds_;
  const int world_rank_;
  const bool broadcasts_;  // results
  const bool reports_;     // rank 0 is in this rank's group
  std::unique_ptr<Group> group_;
  std::vector<Chunk> chunks_;
};

}  // namespace trainctl
