// The copies of what layers keep on the host: out after F and back before R or B, on a queue of
// their own beside the compute queue.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "engine/memory/buffers.h"
#include "plan/plan.h"

namespace trainctl {

class HostCopies {
 public:
  /// `stage` and `buffers` must outlive this object. Without such layers it has no queue.
  HostCopies(const StagePlan& stage, const Buffers& buffers);
  /// Finds what is copied of `view` again: its length has changed.
  void place(int view);

  /// Starts the copy of an offload or reload row, after all that `compute` has been given.
  void start(const Action& row, const Stream& compute);
  /// `compute` waits for the copy of a wait_offload or wait_reload row.
  void wait(const Action& row, Stream& compute);

 private:
  struct Copy {
    Tensor to, from;  // [bytes] u8
  };
  struct Moved {  // one unit of one view
    std::vector<Copy> out, back;
    Event left, came;
  };
  static void add_copy(std::vector<Copy>& copies, const Tensor& to, const Tensor& from,
                       std::int64_t bytes);
  Moved& moved(const Action& row);

  const StagePlan& stage_;
  const Buffers& buffers_;
  std::vector<Moved> moved_;  // [view][unit of the model]
  int units_ = 0;             // of the model, as far as the stage has them
  std::unique_ptr<Stream> queue_;
};

}  // namespace trainctl
