// A world that makes mistakes on purpose: chosen calls on its groups are left out, exchanged, held
// up or damaged, everything else goes through. For tests of what finds such mistakes. Wrap each
// rank's world; the faults of other ranks do not act.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/collectives.h"
#include "comm/world.h"

namespace trainctl {

/// A call as the program made it. `make` carries it out, also later.
struct GroupCall {
  GroupOperation operation;
  Group* group;    // of the wrapped world
  Stream* stream;  // as given; an inline one runs the call before make() returns
  Tensor input;    // what this rank contributes; empty for receive, barrier, broadcast but the root
  Tensor output;   // what the call fills on this rank; empty for send and barrier
  int peer = -1;   // the root, or the other end of a message
  std::function<Event()> make;  // a default event except for messages
};

/// The action instead of a call. A message's caller waits for its event.
using FaultAction = std::function<Event(const GroupCall&)>;

struct GroupFault {
  int rank = 0;                               // of the world
  std::string group;                          // its name; "" for any
  std::optional<GroupOperation> operation{};  // any, if not given
  int occurrence = 1;                         // 1 for the first such call; 0 for every one
  FaultAction act;
};

/// The call is not made.
FaultAction left_out();
/// The call is made, then made once more.
FaultAction made_twice();
/// `change` is applied to what the rank contributes, in the order of the stream, before the call;
/// to what it gets, after it. A received message is awaited first.
FaultAction with_input(std::function<void(const Tensor&)> change);
FaultAction with_output(std::function<void(const Tensor&)> change);
/// `wait` runs on the thread that makes the call, before it.
FaultAction after(std::function<void()> wait);
/// The call meant by `first` is kept and made right after the one meant by `second`, which must not
/// be a message that `first` holds up. Both of one rank.
std::vector<GroupFault> exchanged(GroupFault first, GroupFault second);

/// `world` and `faults` must outlive the result; groups count their calls each for themselves.
std::unique_ptr<World> faulty_world(World& world, const std::vector<GroupFault>& faults);

}  // namespace trainctl
