#include "engine/executor.h"

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "base/text.h"
#include "comm/group.h"
#include "ops/elementwise.h"

namespace trainctl {

namespace {

/// Messages of one direction to one chunk share a tag; they match in order.
int tag_of(int receiving_chunk, bool backward) { return 2 * receiving_chunk + (backward ? 1 : 0); }

constexpr int result_tag = 1 << 20;  // above the tags of all chunks

/// The tensor of each view, or a single one if all views share it.
std::vector<Tensor> tensors_of(const Buffers& buffers, const StagePlan& stage,
                               const std::function<int(int view)>& row_of) {
  const bool shared = at(stage.activations, row_of(0)).storage == Storage::shared;
  const int count = shared ? 1 : stage.activation_slots.views();
  std::vector<Tensor> tensors;
  for (int view = 0; view < count; ++view) tensors.push_back(buffers.at(view, row_of(view)));
  return tensors;
}

}  // namespace

/// One of a chunk's four lines of messages; empty if the chunk has none. Tensors and events are by
/// view, or a single one for all views.
struct Pipeline::Line {
  std::vector<Tensor> value;  // the tensor of the layers
  std::vector<Tensor> wire;   // sent or received: `value`, or a buffer of the messages' dtype
  std::vector<Event> under_way;
};

struct Pipeline::Chunk {
  UnitRange units;
  Line input, input_gradient;    // received from and sent to the previous stage
  Line output, output_gradient;  // sent to and received from the next stage
};

Pipeline::Pipeline(const Plan& plan, const Buffers& buffers, const DeviceWorld& world,
                   const OpContext& ops, double deadline_seconds)
    : ops_(ops),
      rules_(plan.messages),
      places_(plan.map.places()),
      seq_length_(plan.model.seq_length),
      buffers_(buffers),
      view_of_(nullptr),
      deadline_seconds_(deadline_seconds),
      world_rank_(world.rank()),
      broadcasts_(plan.result_broadcast),
      reports_(plan.mesh.group(world.rank(), Axis::pp).front() == 0),
      group_(world.group(group_name(TrafficPurpose::messages, pipeline_group),
                         plan.mesh.group(world.rank(), Axis::pp), Lane::layers,
                         Carries::messages)) {
  open_lines();
  lay_out(plan);
}

Pipeline::~Pipeline() = default;

Pipeline::Chunk& Pipeline::chunk_of(const Action& row) { return at(chunks_, row.chunk); }

void Pipeline::open_lines() {
  std::vector<MessageLine> lines;
  const int stage = group_->rank();
  const auto add = [&](const std::optional<ChunkAt>& other, int receiver, bool backward,
                       bool sends) {
    lines.push_back({other->stage, tag_of(receiver, backward), sends});
  };
  for (int chunk = 0; chunk < places_.chunks; ++chunk) {
    if (places_.receives(stage, chunk)) {
      const auto before = places_.before(stage, chunk);
      add(before, chunk, false, false);
      add(before, before->chunk, true, true);
    }
    if (places_.sends(stage, chunk)) {
      const auto after = places_.after(stage, chunk);
      add(after, after->chunk, false, true);
      add(after, chunk, true, false);
    }
  }
  group_->open_lines(lines);
}

void Pipeline::lay_out(const Plan& plan) {
  for (const Chunk& chunk : chunks_) {
    for (const Line* line : {&chunk.output, &chunk.input_gradient}) {
      for (const Event& sent : line->under_way) finish(sent, "send");
    }
  }
  chunks_.clear();
  const StagePlan& stage = plan.stage_of(world_rank_);
  view_of_ = &stage.activation_slots.view_of;
  for (int i = 0; i < places_.chunks; ++i) {
    const UnitRange& units = at(stage.units, i);
    const MessageRows& messages = at(stage.declared.messages, i);
    Chunk& chunk = chunks_.emplace_back();
    chunk.units = units;
    const bool receives = places_.receives(group_->rank(), i);
    const bool sends = places_.sends(group_->rank(), i);
    const auto line = [&](int (ChunkRows::*value)(int) const, bool travels, const RowCopies& wire) {
      const auto row_of = [&, value](int view) {
        return (rows_in_view(plan, stage, group_->rank(), view).*value)(i);
      };
      Line made{.value = tensors_of(buffers_, stage, row_of), .wire = {}, .under_way = {}};
      made.wire = rules_.casts && travels
                      ? tensors_of(buffers_, stage, [&](int) { return wire.later; })
                      : made.value;
      made.under_way.resize(made.wire.size());
      return made;
    };
    if (receives || units.empty()) {
      chunk.input = line(&ChunkRows::input, receives, messages.received);
      chunk.input_gradient = line(&ChunkRows::input_gradient, receives, messages.d_sent);
    }
    if (sends || units.empty()) {
      chunk.output = line(&ChunkRows::output, sends, messages.sent);
      chunk.output_gradient = line(&ChunkRows::output_gradient, sends, messages.d_received);
    }
  }
}

Tensor Pipeline::part(std::vector<Tensor>& by_view, const Action& row) const {
  const Tensor& whole = own(by_view, row);
  return whole.slice(0, whole.shape[0] * at(batches_, row.microbatch).length / seq_length_);
}

std::size_t Pipeline::posted_together(std::span<const Action> rows) const {
  const std::size_t most = rules_.mode == MessageMode::batched ? rows.size() : 1;
  std::size_t count = 0;
  while (count < most && is_message(rows[count].kind)) ++count;
  return count;
}

void Pipeline::exchange(std::span<const Action> rows) {
  for (const Action& row : rows) {
    if (is_receive(row.kind)) {
      receive(row);
    } else {
      send(row);
    }
  }
  if (rules_.mode == MessageMode::overlapped) return;
  for (const Action& row : rows) {
    if (is_receive(row.kind)) await_received(row);
  }
}

void Pipeline::send(const Action& row) {
  const bool forward = row.kind == ActionKind::send_forward;
  Line& line = forward ? chunk_of(row).output : chunk_of(row).input_gradient;
  Event& sent = own(line.under_way, row);
  const Tensor wire = part(line.wire, row);
  if (rules_.casts) {
    finish(sent, "send");
    cast(ops_, {.x = part(line.value, row), .y = wire});
  }
  const int stage = group_->rank();
  const auto to = forward ? places_.after(stage, row.chunk) : places_.before(stage, row.chunk);
  sent = group_->send(wire, to->stage, tag_of(to->chunk, !forward), *ops_.stream);
}

Pipeline::Line& Pipeline::received_by(const Action& row) {
  const bool forward =
      row.kind == ActionKind::receive_forward || row.kind == ActionKind::wait_forward;
  return forward ? chunk_of(row).input : chunk_of(row).output_gradient;
}

void Pipeline::receive(const Action& row) {
  const int stage = group_->rank();
  const bool forward = row.kind == ActionKind::receive_forward;
  const auto from = forward ? places_.before(stage, row.chunk) : places_.after(stage, row.chunk);
  Line& line = received_by(row);
  own(line.under_way, row) =
      group_->receive(part(line.wire, row), from->stage, tag_of(row.chunk, !forward), *ops_.stream);
}

void Pipeline::await_received(const Action& row) {
  Line& line = received_by(row);
  Event& event = own(line.under_way, row);
  if (event.stream == nullptr) return;
  finish(event, "receive");
  event = {};
  if (rules_.casts) cast(ops_, {.x = part(line.wire, row), .y = part(line.value, row)});
}

void Pipeline::await_output(const Action& row) {
  Line& line = chunk_of(row).output;
  const bool writes = row.end == chunk_of(row).units.end && !line.under_way.empty();
  if (writes && !rules_.casts) finish(own(line.under_way, row), "send");
}

void Pipeline::await_outputs() {
  for (const Chunk& chunk : chunks_) {
    for (const Event& sent : chunk.output.under_way) finish(sent, "send");
  }
}

void Pipeline::await_gradient(const Action& row) {
  Line& line = chunk_of(row).input_gradient;
  const bool writes = row.begin == chunk_of(row).units.begin && !line.under_way.empty();
  if (writes && !rules_.casts) finish(own(line.under_way, row), "send");
}

void Pipeline::pass_on(const Action& row) {
  Chunk& chunk = chunk_of(row);
  const bool forward = row.kind == ActionKind::forward;
  const Tensor to = part((forward ? chunk.output : chunk.input_gradient).value, row);
  ops_.stream->copy(to, part((forward ? chunk.input : chunk.output_gradient).value, row));
}

bool Pipeline::share_result(const Tensor& data) {
  const int last = places_.last_stage();
  if (group_->size() == 1) return true;
  Group& group = group_->on_host();
  Stream stream(DeviceKind::cpu, "result", Stream::Mode::run_inline);
  if (broadcasts_) {
    group.broadcast(data, last, stream);
    stream.synchronize();
    return true;
  }
  if (last == 0) return group_->rank() == last;
  if (reports_ && group_->rank() == 0) {
    await_message(group.receive(data, last, result_tag, stream), "receive");
    return true;
  }
  if (group_->rank() != last) return false;
  if (reports_) await_message(group.send(data, 0, result_tag, stream), "send");
  return true;
}

std::string Pipeline::name_of(const char* operation) const {
  return formatted("stage {}: a {} over group '{}'", group_->rank(), operation, group_->name());
}

void Pipeline::finish(const Event& event, const char* operation) const {
  continue_after(*ops_.stream, event, deadline_seconds_, [&] { return name_of(operation); });
}

void Pipeline::await_message(const Event& event, const char* operation) const {
  await(event, deadline_seconds_, [&] { return name_of(operation); });
}

namespace {

/// The first receive row in the batch of messages [begin, end), which is the one that is waited
/// for; `begin` if there is none.
std::int64_t awaited_row(std::span<const Action> actions, std::size_t begin, std::size_t end) {
  std::size_t row = begin;
  while (row < end && !is_receive(actions[row].kind)) ++row;
  return static_cast<std::int64_t>(row < end ? row : begin);
}

/// The text of a row, for example "B2[1,2) (micro-batch 2, chunk 0)".
std::string row_text(const Action& row) {
  if (row.bucket >= 0 || row.kind == ActionKind::step) return to_string(row);
  return formatted("{} (micro-batch {}, chunk {})", to_string(row), row.microbatch, row.chunk);
}

}  // namespace

// Copies tensors that layers keep on the host: out after F and back before R or B, on a separate
// queue instead of the compute queue.

class HostCopies {
 public:
  /// `stage` and `buffers` must outlive this object. Forms no queue if it has nothing to copy.
  HostCopies(const StagePlan& stage, const Buffers& buffers);
  /// Call after the length of `view` changed: finds the addresses and sizes of its copies again.
  void place(int view);

  /// Starts the copy of an offload or reload row, after all work already enqueued on `compute`.
  void start(const Action& row, const Stream& compute);
  /// Makes `compute` wait for the copy of a wait_offload or wait_reload row.
  void wait(const Action& row, Stream& compute);

 private:
  struct Moved {  // the copies of one unit in one view, of [bytes] u8
    std::vector<Move> out, back;
    Event left, came;
  };
  static void add_copy(std::vector<Move>& copies, const Tensor& to, const Tensor& from,
                       std::int64_t bytes);
  Moved& moved(const Action& row);

  const StagePlan& stage_;
  const Buffers& buffers_;
  std::vector<Moved> moved_;  // [view][unit of the model]
  int units_ = 0;             // end of the stage's last unit in the model
  std::unique_ptr<Stream> queue_;
};

namespace {

const std::byte* end_of(const Tensor& x) { return static_cast<std::byte*>(x.data) + x.bytes(); }

}  // namespace

HostCopies::HostCopies(const StagePlan& stage, const Buffers& buffers)
    : stage_(stage), buffers_(buffers) {
  for (const UnitRange& range : stage.units) units_ = std::max(units_, range.end);
  const int views = stage.activation_slots.views();
  moved_.resize(static_cast<std::size_t>(units_ * views));
  for (int view = 0; view < views; ++view) place(view);
  const bool copies =
      std::ranges::any_of(moved_, [](const Moved& moved) { return !moved.out.empty(); });
  if (copies) {
    queue_ = std::make_unique<Stream>(buffers.device(), "host copies", Stream::Mode::queued);
  }
}

void HostCopies::place(int view) {
  for (int unit = 0; unit < units_; ++unit) {
    Moved& moved = at(moved_, view * units_ + unit);
    moved.out.clear();
    moved.back.clear();
  }
  for (const RowCopies& row : stage_.declared.host_rows) {
    if (!stage_.activation_slots.has(static_cast<std::size_t>(row.host), view)) continue;
    ActivationSpec spec = at(stage_.activations, row.host);
    Moved& moved = at(moved_, view * units_ + spec.unit);
    const Tensor host = buffers_.at(view, row.host);
    spec.shape = host.shape;
    add_copy(moved.out, host, buffers_.at(view, row.first), padded_bytes(spec));
    add_copy(moved.back, buffers_.at(view, row.later), host, padded_bytes(spec));
  }
}

/// Merges the copy with the previous one if they adjoin in both places. `bytes` includes padding.
void HostCopies::add_copy(std::vector<Move>& copies, const Tensor& to, const Tensor& from,
                          std::int64_t bytes) {
  const bool joins = !copies.empty() && end_of(copies.back().to) == to.data &&
                     end_of(copies.back().from) == from.data;
  if (joins) {
    copies.back().to.shape[0] += bytes;
    copies.back().from.shape[0] += bytes;
    return;
  }
  const auto whole = [bytes](const Tensor& x) {
    return Tensor{x.data, Shape{bytes}, DType::u8, x.device};
  };
  copies.push_back({whole(to), whole(from)});
}

HostCopies::Moved& HostCopies::moved(const Action& row) {
  return at(moved_, at(stage_.activation_slots.view_of, row.microbatch) * units_ + row.begin);
}

void HostCopies::start(const Action& row, const Stream& compute) {
  Moved& unit = moved(row);
  const bool out = row.kind == ActionKind::offload;
  queue_->wait(compute.record());
  for (const Move& copy : out ? unit.out : unit.back) queue_->copy(copy.to, copy.from);
  (out ? unit.left : unit.came) = queue_->record();
}

void HostCopies::wait(const Action& row, Stream& compute) {
  const Moved& unit = moved(row);
  compute.wait(row.kind == ActionKind::wait_offload ? unit.left : unit.came);
}

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

/// Sets the mode of view 0, which training and evaluation share.
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
    case ActionKind::free: return;  // no work: each gather waits for the compute work before it
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
      if (in_.before_reduce) in_.before_reduce(row.bucket);
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

/// Successive forward passes share view 0, so a fetch first waits until earlier outputs are sent:
/// the memory of those outputs may be overwritten.
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
  const auto& hook = in_.after_forward;
  if (!hook || !training_) return stage_->forward(pass, view, {row.begin, row.end}, row.leg);
  const bool received = at(rows().units, row.chunk).begin == row.begin;
  if (received && row.begin > 0 && runs(row.leg, ExchangePhase::out))
    hook(row, row.begin - 1, view);
  for (int unit = row.begin; unit < row.end; ++unit) {
    stage_->forward(pass, view, {unit, unit + 1}, row.leg);
    if (runs(row.leg, ExchangePhase::home)) hook(row, unit, view);
  }
}

void Executor::backward_input(const Action& row) {
  if (row.begin == row.end) return in_.pipeline.pass_on(row);
  const Pass& pass = pass_of(row);
  const int view = view_of(row);
  const auto& hook = in_.after_backward;
  if (!hook) return stage_->backward_input(pass, view, {row.begin, row.end}, row.leg);
  for (int unit = row.end - 1; unit >= row.begin; --unit) {
    stage_->backward_input(pass, view, {unit, unit + 1}, row.leg);
    if (unit > 0 && runs(row.leg, ExchangePhase::home)) hook(row, unit, view);
  }
}

/// Sets the tensors of the row's view to the sequence length of its micro-batch: micro-batches of
/// one view may differ in length, and their rows may alternate.
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

/// Calls the barrier `meet` where it applies, equally often on every rank in each step.
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
