#include "engine/executor.h"

#include "base/at.h"
#include "base/error.h"

namespace trainctl {

namespace {

int view_of(const Action& row, const ExecutorParts& parts) {
  return at(parts.plan->activation_slots.view_of, row.microbatch);
}

std::int64_t pass_number(const Action& row, const ExecutorParts& parts) {
  return view_of(row, parts) * std::ssize(parts.plan->units) + row.chunk;
}

const Pass& pass_of(const Action& row, const ExecutorParts& parts) {
  return at(parts.passes, pass_number(row, parts));
}

void forward(const Action& row, const ExecutorParts& parts) {
  if (row.begin == row.end) return parts.pipeline->pass_on(row);
  const Pass& pass = pass_of(row, parts);
  const int view = view_of(row, parts);
  const auto& hook = parts.hooks.after_forward;
  if (!hook) return parts.stage->forward(pass, view, {row.begin, row.end}, row.leg);
  const bool received = at(parts.plan->units, row.chunk).begin == row.begin;
  if (received && row.begin > 0 && runs(row.leg, Leg::out)) hook(row, row.begin - 1, view);
  for (int unit = row.begin; unit < row.end; ++unit) {
    parts.stage->forward(pass, view, {unit, unit + 1}, row.leg);
    if (runs(row.leg, Leg::home)) hook(row, unit, view);
  }
}

void backward_input(const Action& row, const ExecutorParts& parts) {
  if (row.begin == row.end) return parts.pipeline->pass_on(row);
  const Pass& pass = pass_of(row, parts);
  const int view = view_of(row, parts);
  const auto& hook = parts.hooks.after_backward;
  if (!hook) return parts.stage->backward_input(pass, view, {row.begin, row.end}, row.leg);
  for (int unit = row.end - 1; unit >= row.begin; --unit) {
    parts.stage->backward_input(pass, view, {unit, unit + 1}, row.leg);
    if (unit > 0 && runs(row.leg, Leg::home)) hook(row, unit, view);
  }
}

void fetch(const Action& row, std::span<const Batch> batches, const ExecutorParts& parts) {
  Feed& feed = at(parts.feeds, pass_number(row, parts));
  Stream& compute = *parts.ops->stream;
  if (!parts.feed_places.empty()) return feed.send(at(parts.feed_places, row.microbatch), compute);
  feed.run(at(batches, row.microbatch), parts.share, compute);
}

void execute_one(const Action& action, std::span<const Batch> batches, const ExecutorParts& parts) {
  Stream& compute = *parts.ops->stream;
  switch (action.kind) {
    case ActionKind::gather: return parts.param_sync->start(action.bucket, compute);
    case ActionKind::wait_gather:
      parts.param_sync->wait(action.bucket, *parts.ops, parts.deadline_seconds);
      if (parts.trace != nullptr) parts.trace->note_wait();
      return;
    case ActionKind::free: return;  // what comes there next is gathered after all that reads it
    case ActionKind::fetch: return fetch(action, batches, parts);
    case ActionKind::forward:
      parts.pipeline->await_output(action);
      if (parts.trace != nullptr) parts.trace->note_wait();
      return forward(action, parts);
    case ActionKind::offload:
    case ActionKind::reload: return parts.host_copies->start(action, compute);
    case ActionKind::wait_offload:
    case ActionKind::wait_reload:
      parts.host_copies->wait(action, compute);
      if (parts.trace != nullptr) parts.trace->note_wait();
      return;
    case ActionKind::repeat:
      return parts.stage->repeat(pass_of(action, parts), view_of(action, parts),
                                 {action.begin, action.end}, action.leg);
    case ActionKind::backward_input:
      parts.pipeline->await_gradient(action);
      if (parts.trace != nullptr) parts.trace->note_wait();
      return backward_input(action, parts);
    case ActionKind::backward_weight:
      return parts.stage->backward_weight(pass_of(action, parts), view_of(action, parts),
                                          action.begin, action.end);
    case ActionKind::reduce:
      if (parts.hooks.before_reduce) parts.hooks.before_reduce(action.bucket);
      return parts.grad_sync->reduce(action.bucket, action.visit, compute);
    case ActionKind::reduce_embedding:
      return parts.grad_sync->reduce_embedding(action.bucket, compute);
    case ActionKind::wait_reduce:
      parts.grad_sync->wait(action.bucket, compute, parts.deadline_seconds);
      if (parts.trace != nullptr) parts.trace->note_wait();
      return;
    case ActionKind::wait_forward:
    case ActionKind::wait_backward:
      parts.pipeline->await_received(action);
      if (parts.trace != nullptr) parts.trace->note_wait();
      return;
    case ActionKind::step: return parts.step();
    default: break;
  }
  throw Error(ExitCode::internal, "the executor met " + to_string(action) + " by itself");
}

/// Of a batch of messages [begin, end) the first receive, which is waited for; else `begin`.
std::int64_t awaited_row(const std::vector<Action>& actions, std::size_t begin, std::size_t end) {
  std::size_t row = begin;
  while (row < end && !is_receive(actions[row].kind)) ++row;
  return static_cast<std::int64_t>(row < end ? row : begin);
}

/// The same number of times in every rank's step.
void meet_before(std::size_t row, const ExecutorParts& parts) {
  if (!parts.meet) return;
  const bool steps = parts.plan->actions[row].kind == ActionKind::step;
  for (const bool here : {row == 0, row == parts.passes_end, steps}) {
    if (!here) continue;
    parts.meet();
    if (parts.trace != nullptr) parts.trace->leave_out();
  }
}

/// The micro-batches of a view may differ in their length, and their rows may come in turns.
void fit(const Action& row, std::span<const Batch> batches, const ExecutorParts& parts) {
  const bool of_batch = row.bucket < 0 && row.kind != ActionKind::step;
  if (of_batch && parts.fit) parts.fit(view_of(row, parts), at(batches, row.microbatch));
}

/// "B2[1,2) (micro-batch 2, chunk 0)"
std::string row_text(const Action& row) {
  if (row.bucket >= 0 || row.kind == ActionKind::step) return to_string(row);
  return to_string(row) + " (micro-batch " + std::to_string(row.microbatch) + ", chunk " +
         std::to_string(row.chunk) + ")";
}

}  // namespace

void name_rows(Activity& activity, std::span<const Action> rows) {
  activity.name_actions([rows](std::int64_t row) { return row_text(at(rows, row)); });
}

void fill_feeds(std::span<const Batch> batches, const ExecutorParts& parts) {
  for (const Action& row : parts.plan->actions) {
    if (row.kind != ActionKind::fetch) continue;
    at(parts.feeds, pass_number(row, parts))
        .fill(at(parts.feed_places, row.microbatch), at(batches, row.microbatch), parts.share);
  }
}

void execute(std::span<const Batch> batches, const ExecutorParts& parts) {
  const std::vector<Action>& actions = parts.plan->actions;
  if (parts.trace != nullptr) parts.trace->begin_step();
  if (parts.activity != nullptr) parts.activity->start_step();
  parts.pipeline->use(batches);
  for (std::size_t row = 0; row < actions.size();) {
    const std::size_t messages =
        parts.pipeline->posted_together({&actions[row], actions.size() - row});
    if (parts.activity != nullptr) {
      parts.activity->start(awaited_row(actions, row, row + messages));
    }
    meet_before(row, parts);
    if (parts.trace != nullptr) parts.trace->start_row();
    if (messages > 0) {
      parts.pipeline->exchange({&actions[row], messages});
      if (parts.trace != nullptr) parts.trace->finish_messages(messages);
      row += messages;
    } else {
      fit(actions[row], batches, parts);
      execute_one(actions[row], batches, parts);
      if (parts.trace != nullptr) parts.trace->finish_row();
      ++row;
    }
    if (parts.activity != nullptr) parts.activity->finish();
  }
}

}  // namespace trainctl
