// The whole model on rank 0, parameter by parameter, from the masters that all ranks own; for
// export.
#pragma once

#include <cstddef>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "comm/group.h"
#include "device/slab.h"
#include "engine/parameters/param_store.h"
#include "plan/plan.h"

namespace trainctl {

/// Rank 0 asks for one parameter after the other; meanwhile all others give their parts. So no rank
/// holds more than one whole parameter beside its own. Uses only messages. What rank 0 does with a
/// parameter may last longer than the others may wait: a thread of rank 0 tells them several times
/// per second that it still works. Where a disk or a server does not answer it (others_wait.h), its
/// process ends with ExitCode::io.
class WholeParams {
 public:
  /// `everyone`: the group of all ranks, of host memory, which nobody else uses meanwhile. `work`:
  /// host memory to use; what is missing there is allocated. All arguments must outlive this
  /// object, which rank 0 makes and uses on one thread.
  WholeParams(const Plan& plan, const ParamStore& store, Group& everyone, double deadline_seconds,
              std::span<std::byte> work = {});
  ~WholeParams();
  WholeParams(const WholeParams&) = delete;
  WholeParams& operator=(const WholeParams&) = delete;

  /// On rank 0: a whole parameter by its name, with the vocabulary's padding, in fp32 host memory;
  /// valid until the next call. Throws Error{peer} if a part does not come within the deadline.
  Tensor get(const std::string& name);
  /// On rank 0: lets the others go on. The last call.
  void end();
  /// On the other ranks: gives parts until rank 0 ends. Throws Error{peer} if it says nothing
  /// within the deadline.
  void give();

  /// What is left of `work`.
  std::span<std::byte> rest() const { return rest_; }

 private:
  struct Part {  // of a parameter
    int rank = 0;
    int index = 0;  // in the tables of its stage
    Slice owned;
  };
  struct Whole {
    Shape shape;
    std::vector<Part> parts;
  };
  class Signs;
  void find_parts();
  void take_memory(std::span<std::byte> work);
  void place(const Part& part, const Tensor& values, const Tensor& whole) const;
  void finish(const Event& event, const char* what, const std::string& name) const;

  const Plan& plan_;
  const ParamStore& store_;
  Group& everyone_;
  double deadline_;
  std::map<std::string, Whole> parameters_;  // rank 0
  Stream stream_{DeviceKind::cpu, "gather", Stream::Mode::run_inline};
  Slab own_;         // where `work` is too small
  Tensor whole_;     // [elements of the largest parameter]
  Tensor received_;  // [elements of the largest part of another rank]
  std::span<std::byte> rest_;
  std::unique_ptr<Signs> signs_;  // of rank 0, where there are others
};

}  // namespace trainctl
