#include "engine/executor.h"

#include "base/error.h"

namespace trainctl {

namespace {

void execute_one(const Action& action, int slot, const ExecutorParts& parts) {
  const auto pass = [&]() -> const Pass& { return parts.passes[static_cast<std::size_t>(slot)]; };
  switch (action.kind) {
    case ActionKind::fetch: return parts.fetch(action.microbatch, slot);
    case ActionKind::forward: return parts.stage->forward(pass(), slot, action.begin, action.end);
    case ActionKind::backward_input:
      return parts.stage->backward_input(pass(), slot, action.begin, action.end);
    case ActionKind::backward_weight:
      return parts.stage->backward_weight(pass(), slot, action.begin, action.end);
    case ActionKind::reduce:
      if (parts.before_reduce) parts.before_reduce(action.bucket);
      return parts.grad_sync->reduce(action.bucket, *parts.compute);
    case ActionKind::wait_reduce:
      return parts.grad_sync->wait(action.bucket, *parts.compute, parts.deadline_seconds);
    case ActionKind::step: return parts.step();
    case ActionKind::reduce_embedding:
    case ActionKind::send_forward:
    case ActionKind::receive_forward:
    case ActionKind::send_backward:
    case ActionKind::receive_backward: break;
  }
  throw Error(ExitCode::internal, "the executor met " + to_string(action) +
                                      ", which only plans with pipeline stages contain");
}

}  // namespace

void execute(const std::vector<Action>& actions, int slots, const ExecutorParts& parts) {
  for (const Action& action : actions) execute_one(action, action.microbatch % slots, parts);
}

}  // namespace trainctl
