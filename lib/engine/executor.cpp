#include "engine/executor.h"

#include <algorithm>
#include <utility>

#include "base/at.h"
#include "base/error.h"
#include "engine/timers.h"

namespace trainctl {

namespace {

/// Of a batch of messages [begin, end) the first receive, which is waited for; else `begin`.
std::int64_t awaited_row(std::span<const Action> actions, std::size_t begin, std::size_t end) {
  std::size_t row = begin;
  while (row < end && !is_receive(actions[row].kind)) ++row;
  return static_cast<std::int64_t>(row < end ? row : begin);
}

/// "B2[1,2) (micro-batch 2, chunk 0)"
std::string row_text(const Action& row) {
  if (row.bucket >= 0 || row.kind == ActionKind::step) return to_string(row);
  return to_string(row) + " (micro-batch " + std::to_string(row.microbatch) + ", chunk " +
         std::to_string(row.chunk) + ")";
}

}  // namespace

Executor::Executor(ExecutorInput input) : in_(std::move(input)) {}

Executor::~Executor() {
  if (in_.activity != nullptr) in_.activity->name_actions({});
}

void Executor::use(const Plan& plan, int stage, std::vector<int> feed_places) {
  rows_ = &at(plan.stages, stage);
  feed_places_ = std::move(feed_places);
  passes_end_ = end_of_passes(rows().actions);
  in_.buffers.lay_out(rows());
  in_.pipeline.lay_out(plan);
  host_copies_ = std::make_unique<HostCopies>(rows(), in_.buffers);
  stage_ = in_.make_stage();
  passes_.clear();
  feeds_.clear();
  const int places = feed_places_.empty() ? 1 : *std::ranges::max_element(feed_places_) + 1;
  for (int view = 0; view < rows().activation_slots.views(); ++view) {
    for (int chunk = 0; chunk < std::ssize(rows().units); ++chunk) {
      passes_.push_back(in_.make_pass(view, chunk));
      feeds_.emplace_back(passes_.back().batch, in_.deadline_seconds, places);
    }
  }
  if (in_.trace != nullptr) in_.trace->change_rows(rows().actions);
  if (in_.activity == nullptr) return;
  in_.activity->name_actions(
      [all = std::span(rows().actions)](std::int64_t row) { return row_text(at(all, row)); });
}

int Executor::view_of(const Action& row) const {
  return at(rows().activation_slots.view_of, row.microbatch);
}

std::int64_t Executor::pass_number(int view, int chunk) const {
  return view * std::ssize(rows().units) + chunk;
}

const Pass& Executor::pass_of(const Action& row) const {
  return at(passes_, pass_number(view_of(row), row.chunk));
}

std::int64_t Executor::feed_bytes() const {
  std::int64_t bytes = 0;
  for (const Feed& feed : feeds_) bytes += feed.host_bytes();
  return bytes;
}

/// Of view 0, which both kinds of rows use.
void Executor::set_training(bool training) {
  training_ = training;
  for (int chunk = 0; chunk < std::ssize(rows().units); ++chunk) {
    at(passes_, pass_number(0, chunk)).training = training;
  }
}

void Executor::fill_feeds(std::span<const Batch> batches) {
  for (const Action& row : rows().actions) {
    if (row.kind != ActionKind::fetch) continue;
    at(feeds_, pass_number(view_of(row), row.chunk))
        .fill(at(feed_places_, row.microbatch), at(batches, row.microbatch), in_.share);
  }
}

void Executor::step(std::span<const Batch> batches) {
  set_training(true);
  trace_ = in_.trace;
  activity_ = in_.activity;
  if (trace_ != nullptr) trace_->begin_step();
  if (activity_ != nullptr) activity_->start_step();
  run(rows().actions, batches);
}

void Executor::forward(const Batch& batch) {
  set_training(false);
  trace_ = nullptr;
  activity_ = nullptr;
  run(rows().forward_actions, {&batch, 1});
}

void Executor::run(std::span<const Action> actions, std::span<const Batch> batches) {
  batches_ = batches;
  in_.pipeline.use(batches);
  for (std::size_t row = 0; row < actions.size();) {
    const std::size_t messages = in_.pipeline.posted_together(actions.subspan(row));
    if (activity_ != nullptr) activity_->start(awaited_row(actions, row, row + messages));
    meet_before(row, actions[row]);
    if (trace_ != nullptr) trace_->start_row();
    if (messages > 0) {
      in_.pipeline.exchange(actions.subspan(row, messages));
      if (trace_ != nullptr) trace_->finish_messages(messages);
      row += messages;
    } else {
      fit(actions[row]);
      run_row(actions[row]);
      if (trace_ != nullptr) trace_->finish_row();
      ++row;
    }
    if (activity_ != nullptr) activity_->finish();
  }
}

void Executor::run_row(const Action& row) {
  Stream& compute = *in_.ops.stream;
  switch (row.kind) {
    case ActionKind::gather: return in_.param_sync->start(row.bucket, compute);
    case ActionKind::wait_gather:
      in_.param_sync->wait(row.bucket, in_.ops, in_.deadline_seconds);
      return note_wait();
    case ActionKind::free: return;  // what comes there next is gathered after all that reads it
    case ActionKind::fetch: return fetch(row);
    case ActionKind::forward:
      in_.pipeline.await_output(row);
      note_wait();
      return run_forward(row);
    case ActionKind::offload:
    case ActionKind::reload: return host_copies_->start(row, compute);
    case ActionKind::wait_offload:
    case ActionKind::wait_reload: host_copies_->wait(row, compute); return note_wait();
    case ActionKind::repeat:
      return stage_->repeat(pass_of(row), view_of(row), {row.begin, row.end}, row.leg);
    case ActionKind::backward_input:
      in_.pipeline.await_gradient(row);
      note_wait();
      return backward_input(row);
    case ActionKind::backward_weight:
      return stage_->backward_weight(pass_of(row), view_of(row), row.begin, row.end);
    case ActionKind::reduce:
      if (in_.hooks.before_reduce) in_.hooks.before_reduce(row.bucket);
      return in_.grad_sync->reduce(row.bucket, row.visit, compute);
    case ActionKind::reduce_embedding: return in_.grad_sync->reduce_embedding(row.bucket, compute);
    case ActionKind::wait_reduce:
      in_.grad_sync->wait(row.bucket, compute, in_.deadline_seconds);
      return note_wait();
    case ActionKind::wait_forward:
    case ActionKind::wait_backward: in_.pipeline.await_received(row); return note_wait();
    case ActionKind::step: return in_.optimizer_step();
    default: break;
  }
  throw Error(ExitCode::internal, "the executor met " + to_string(row) + " by itself");
}

/// Forward passes follow one another in view 0, where what a chunk receives and makes may have the
/// place of what was sent before.
void Executor::fetch(const Action& row) {
  if (!training_) in_.pipeline.await_outputs();
  Feed& feed = at(feeds_, pass_number(view_of(row), row.chunk));
  Stream& compute = *in_.ops.stream;
  if (training_ && !feed_places_.empty()) {
    return feed.send(at(feed_places_, row.microbatch), compute);
  }
  feed.run(at(batches_, row.microbatch), in_.share, compute);
}

void Executor::run_forward(const Action& row) {
  if (row.begin == row.end) return in_.pipeline.pass_on(row);
  const Pass& pass = pass_of(row);
  const int view = view_of(row);
  const auto& hook = in_.hooks.after_forward;
  if (!hook || !training_) return stage_->forward(pass, view, {row.begin, row.end}, row.leg);
  const bool received = at(rows().units, row.chunk).begin == row.begin;
  if (received && row.begin > 0 && runs(row.leg, Leg::out)) hook(row, row.begin - 1, view);
  for (int unit = row.begin; unit < row.end; ++unit) {
    stage_->forward(pass, view, {unit, unit + 1}, row.leg);
    if (runs(row.leg, Leg::home)) hook(row, unit, view);
  }
}

void Executor::backward_input(const Action& row) {
  if (row.begin == row.end) return in_.pipeline.pass_on(row);
  const Pass& pass = pass_of(row);
  const int view = view_of(row);
  const auto& hook = in_.hooks.after_backward;
  if (!hook) return stage_->backward_input(pass, view, {row.begin, row.end}, row.leg);
  for (int unit = row.end - 1; unit >= row.begin; --unit) {
    stage_->backward_input(pass, view, {unit, unit + 1}, row.leg);
    if (unit > 0 && runs(row.leg, Leg::home)) hook(row, unit, view);
  }
}

/// Gives the tensors of a view the length of the batch's rows: its micro-batches may differ in
/// that, and their rows may come in turns.
void Executor::fit(const Action& row) {
  if (row.bucket >= 0 || row.kind == ActionKind::step) return;
  const int view = view_of(row);
  const std::int64_t length = at(batches_, row.microbatch).length;
  if (in_.buffers.length(view) == length) return;
  in_.buffers.set_length(view, length);
  stage_->place(view);
  host_copies_->place(view);
  for (int chunk = 0; chunk < std::ssize(rows().units); ++chunk) {
    const std::int64_t number = pass_number(view, chunk);
    Pass& pass = at(passes_, number) = in_.make_pass(view, chunk);
    pass.training = training_;
    at(feeds_, number).aim(pass.batch);
  }
}

/// The same number of times in every rank's step.
void Executor::meet_before(std::size_t row, const Action& action) {
  if (!training_ || !in_.meet) return;
  for (const bool here : {row == 0, row == passes_end_, action.kind == ActionKind::step}) {
    if (!here) continue;
    in_.meet();
    if (trace_ != nullptr) trace_->leave_out();
  }
}

void Executor::note_wait() {
  if (trace_ != nullptr) trace_->note_wait();
}

}  // namespace trainctl
