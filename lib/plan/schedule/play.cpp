#include "plan/schedule/play.h"

#include <algorithm>
#include <span>

namespace trainctl {

namespace {

bool is_computed(ActionKind kind) {
  if (kind == ActionKind::free) return true;  // takes no time, on its place in the compute queue
  return !is_message(kind) && !is_message_wait(kind) && !is_host_copy(kind) && !names_bucket(kind);
}
/// F, B or W of some unit.
bool has_collectives(const Action& action) {
  return is_pass(action.kind) && action.begin < action.end;
}
bool is_forward(ActionKind kind) {
  return kind == ActionKind::forward || kind == ActionKind::send_forward ||
         kind == ActionKind::receive_forward || kind == ActionKind::wait_forward;
}

}  // namespace

Play::Play(const SimulationInput& input) : input_(input), sent_seconds_(input.ranks.size(), 0.0) {
  measure_tables();
  find_apart();
  for (std::size_t rank = 0; rank < input.ranks.size(); ++rank) add_rank(static_cast<int>(rank));
}

void Play::measure_tables() {
  for (const RankRows& rank : input_.ranks) {
    replicas_ = std::max(replicas_, rank.replica + 1);
    inner_ = std::max(inner_, rank.inner + 1);
    stages_ = std::max(stages_, rank.input.stage + 1);
    places_ = std::max(places_, rank.input.stages * rank.input.chunks() + 2);
    microbatches_ = std::max(microbatches_, rank.input.microbatches);
  }
  messages_.resize(2 * static_cast<std::size_t>(replicas_ * inner_) *
                   static_cast<std::size_t>(places_) * static_cast<std::size_t>(microbatches_));
}

void Play::find_apart() {
  const auto groups = static_cast<std::size_t>(stages_ * replicas_);
  std::vector<const RankRows*> first(groups, nullptr);
  apart_.assign(groups, false);
  group_sizes_.assign(groups, 0);
  for (const RankRows& rank : input_.ranks) {
    const auto group = static_cast<std::size_t>(group_of(rank));
    ++group_sizes_[group];
    if (first[group] == nullptr) first[group] = &rank;
    const auto one = first[group]->rows;
    const bool same = one.data() == rank.rows.data() && one.size() == rank.rows.size();
    if (same || std::equal(one.begin(), one.end(), rank.rows.begin(), rank.rows.end())) continue;
    apart_[group] = true;
  }
}

int Play::add_point(int rank, std::size_t begin, std::size_t end, double cost, bool computes) {
  points_.push_back(Point{rank, static_cast<int>(begin), static_cast<int>(end - begin), computes});
  return graph_.add(cost);
}

void Play::add_rank(int rank) {
  const RankRows& mine = input_.ranks[static_cast<std::size_t>(rank)];
  const std::span<const Action> rows = mine.rows;
  const bool apart = apart_[static_cast<std::size_t>(group_of(mine))];
  Queues queues;
  queues.outputs.assign(mine.input.units.size(), none);
  queues.gradients.assign(mine.input.units.size(), none);
  const bool batches = mine.input.messages.mode == MessageMode::batched;
  for (std::size_t row = 0; row < rows.size();) {
    const ActionKind kind = rows[row].kind;
    const std::size_t begin = row++;
    if (kind == ActionKind::reduce || kind == ActionKind::gather) {
      join(rank, begin, queues);
    } else if (kind == ActionKind::reduce_embedding) {
      join_embedding(rank, begin, queues);
    } else if (kind == ActionKind::wait_reduce || kind == ActionKind::wait_gather) {
      await(rank, begin, queues);
    } else if (kind == ActionKind::offload || kind == ActionKind::reload) {
      copy(rank, begin, queues);
    } else if (is_host_copy(kind)) {
      await_copy(rank, begin, queues);
    } else if (is_message(kind)) {
      while (batches && row < rows.size() && is_message(rows[row].kind)) ++row;
      add_batch(rank, begin, row, queues);
    } else if (is_message_wait(kind)) {
      await_message(rank, begin, queues);
    } else {
      const bool leg = rows[begin].leg != Leg::whole;
      while (!apart && !leg && row < rows.size() && is_computed(rows[row].kind) &&
             rows[row].leg == Leg::whole && overwritten(mine, rows[row], queues) == nullptr) {
        ++row;
      }
      add_run(rank, begin, row, queues);
    }
  }
}

void Play::add_run(int rank, std::size_t begin, std::size_t end, Queues& queues) {
  const RankRows& mine = input_.ranks[static_cast<std::size_t>(rank)];
  const Action* shared = nullptr;
  double cost = 0;
  for (std::size_t row = begin; row < end; ++row) {
    cost += cost_of(mine, mine.rows[row]);
    if (shared == nullptr && has_collectives(mine.rows[row])) shared = &mine.rows[row];
  }
  const int point = add_point(rank, begin, end, cost, true);
  int arrives = point;
  if (inner_ > 1 && shared != nullptr) {
    RowMeeting& meeting = shared_rows_[{group_of(mine), *shared}];
    if (meeting.point == none) meeting.point = add_point(rank, begin, begin + 1, 0.0);
    ++meeting.joined;
    arrives = meeting.point;
    graph_.wait(point, arrives);
    launch(arrives, point, queues);
  }
  graph_.wait(arrives, queues.compute);
  if (int* sent = overwritten(mine, mine.rows[begin], queues)) {
    graph_.wait(arrives, std::exchange(*sent, none));
  }
  queues.compute = point;
  const Action& first = mine.rows[begin];
  int& sent = queues.sent[first.kind == ActionKind::forward ? 0 : 1];
  if (first.leg == Leg::work || first.leg == Leg::home) graph_.wait(point, sent);
  if (!first.sends_rows()) return;
  const double seconds = input_.sent ? input_.sent(mine, first) : 0;
  sent = add_point(rank, begin, begin + 1, seconds);
  graph_.wait(sent, point);
  graph_.wait(sent, queues.rows);
  queues.rows = sent;
  sent_seconds_[static_cast<std::size_t>(rank)] += seconds;
}

/// The send whose buffer F or B writes into; null where none is under way. What is cast lies in a
/// buffer that only the send rows write.
int* Play::overwritten(const RankRows& rank, const Action& action, Queues& queues) {
  const auto chunk = static_cast<std::size_t>(action.chunk);
  if (rank.input.messages.casts || chunk >= rank.input.units.size()) return nullptr;
  const UnitRange& units = rank.input.units[chunk];
  const bool makes_output = action.kind == ActionKind::forward && action.end == units.end;
  const bool makes_gradient = action.kind == ActionKind::backward_input &&
                              action.begin == units.begin &&
                              rank.input.places().receives(rank.input.stage, action.chunk);
  if (!makes_output && !makes_gradient) return nullptr;
  int* sent = sent_from(rank, action, queues);
  return sent != nullptr && *sent != none ? sent : nullptr;
}

/// A kept output is overwritten only after its gradient has come, and so after it was received.
int* Play::sent_from(const RankRows& rank, const Action& action, Queues& queues) {
  const auto at = static_cast<std::size_t>(action.chunk);
  if (at >= queues.outputs.size()) return nullptr;
  if (!is_forward(action.kind)) return &queues.gradients[at];
  return rank.input.messages.keeps_outputs ? nullptr : &queues.outputs[at];
}

void Play::join(int rank, std::size_t row, Queues& queues) {
  const RankRows& mine = input_.ranks[static_cast<std::size_t>(rank)];
  const Action& action = mine.rows[row];
  Exchange& meeting = exchanges_[{mine.input.stage, action.kind, action.bucket, action.visit}];
  if (meeting.point == none) meeting.point = add_point(rank, row, row + 1, 0.0);
  graph_.raise_cost(meeting.point, cost_of(mine, action));
  meeting.members.push_back(rank);
  graph_.wait(meeting.point, queues.compute);
  if (queues.axis != meeting.point) graph_.wait(meeting.point, queues.axis);
  queues.axis = meeting.point;
  launch(meeting.point, meeting.point, queues);
  if (input_.hosts_meet) queues.compute = meeting.point;
}

void Play::launch(int point, int done, Queues& queues) {
  if (!input_.on_devices) return;
  if (queues.launched != point) graph_.wait(point, queues.launched);
  queues.launched = done;
}

/// After the stage's own sum of the bucket.
void Play::join_embedding(int rank, std::size_t row, Queues& queues) {
  const RankRows& mine = input_.ranks[static_cast<std::size_t>(rank)];
  EmbeddingSum& meeting = embeddings_[{mine.replica, mine.inner}];
  if (meeting.point == none) meeting.point = add_point(rank, row, row + 1, 0.0);
  graph_.raise_cost(meeting.point, cost_of(mine, mine.rows[row]));
  const ChunkPlaces places = mine.input.places();
  meeting.first = meeting.first || mine.input.stage == places.first_stage();
  meeting.last = meeting.last || mine.input.stage == places.last_stage();
  graph_.wait(meeting.point, queues.compute);
  if (queues.axis != meeting.point) graph_.wait(meeting.point, queues.axis);
  queues.axis = queues.embedding = meeting.point;
  launch(meeting.point, meeting.point, queues);
  if (input_.hosts_meet) queues.compute = meeting.point;
  queues.embedding_bucket = mine.rows[row].bucket;
  const int stage = mine.input.stage;
  for (const auto& [key, sum] : exchanges_) {
    const auto& [of, kind, bucket, visit] = key;
    if (of != stage || kind != ActionKind::reduce || bucket != queues.embedding_bucket) continue;
    graph_.wait(meeting.point, sum.point);
  }
}

void Play::await(int rank, std::size_t row, Queues& queues) {
  const RankRows& mine = input_.ranks[static_cast<std::size_t>(rank)];
  const int point = add_point(rank, row, row + 1, 0.0, true);
  graph_.wait(point, queues.compute);
  const bool gather = mine.rows[row].kind == ActionKind::wait_gather;
  const int bucket = mine.rows[row].bucket;
  const ActionKind awaited = gather ? ActionKind::gather : ActionKind::reduce;
  const auto found = exchanges_.find({mine.input.stage, awaited, bucket, mine.rows[row].visit});
  if (found != exchanges_.end()) graph_.wait(point, found->second.point);
  if (!gather && queues.embedding_bucket == bucket) graph_.wait(point, queues.embedding);
  note_batch_before(point, queues);
  queues.compute = point;
}

/// It starts after all rows before it.
void Play::copy(int rank, std::size_t row, Queues& queues) {
  const RankRows& mine = input_.ranks[static_cast<std::size_t>(rank)];
  const Action& action = mine.rows[row];
  const int point = add_point(rank, row, row + 1, cost_of(mine, action));
  graph_.wait(point, queues.compute);
  graph_.wait(point, queues.copies);
  queues.copies = point;
  queues.copied[{action.kind, action.microbatch, action.begin}] = point;
}

void Play::await_copy(int rank, std::size_t row, Queues& queues) {
  const Action& action = input_.ranks[static_cast<std::size_t>(rank)].rows[row];
  const int point = add_point(rank, row, row + 1, 0.0, true);
  graph_.wait(point, queues.compute);
  const bool out = action.kind == ActionKind::wait_offload;
  const auto found = queues.copied.find(
      {out ? ActionKind::offload : ActionKind::reload, action.microbatch, action.begin});
  if (found != queues.copied.end()) graph_.wait(point, found->second);
  note_batch_before(point, queues);
  queues.compute = point;
}

void Play::note_batch_before(int point, const Queues& queues) {
  if (queues.compute == none || points_[static_cast<std::size_t>(queues.compute)].computes) return;
  after_batch_[point] = queues.compute;
}

void Play::await_message(int rank, std::size_t row, Queues& queues) {
  const RankRows& mine = input_.ranks[static_cast<std::size_t>(rank)];
  const int point = add_point(rank, row, row + 1, 0.0);
  graph_.wait(point, queues.compute);
  const Message* message = find_message(mine, mine.rows[row]);
  if (message != nullptr) graph_.wait(point, message->point);
  queues.compute = point;
}

/// The point at which the rows are posted: with casts their buffers must be free by then.
int Play::post_batch(int rank, std::size_t begin, std::size_t end, Queues& queues) {
  const RankRows& mine = input_.ranks[static_cast<std::size_t>(rank)];
  const int posted = add_point(rank, begin, end, 0.0);
  graph_.wait(posted, queues.compute);
  if (mine.input.messages.mode == MessageMode::batched) graph_.wait(posted, queues.wire);
  for (std::size_t row = begin; row < end && mine.input.messages.casts; ++row) {
    if (is_receive(mine.rows[row].kind)) continue;
    int* sent = sent_from(mine, mine.rows[row], queues);
    if (sent == nullptr || *sent == none) continue;
    graph_.wait(posted, *sent);
    queues.compute = posted;
  }
  return posted;
}

void Play::add_batch(int rank, std::size_t begin, std::size_t end, Queues& queues) {
  const RankRows& mine = input_.ranks[static_cast<std::size_t>(rank)];
  const int posted = post_batch(rank, begin, end, queues);
  const bool single = end - begin == 1;
  int done = single ? none : add_point(rank, begin, end, 0.0);
  bool receives = false;
  for (std::size_t row = begin; row < end; ++row) {
    const Action& action = mine.rows[row];
    Message* message = find_message(mine, action);
    if (message == nullptr) continue;  // out of range: prove_rows says so
    receives = receives || is_receive(action.kind);
    add_message(rank, row, posted, *message, queues);
    if (single) {
      done = message->point;
    } else {
      graph_.wait(done, message->point);
    }
  }
  if (done == none) done = posted;
  const MessageMode mode = mine.input.messages.mode;
  if (mode == MessageMode::batched) queues.wire = done;
  if (mode != MessageMode::overlapped && receives) {
    queues.compute = done;
    return;  // and with it for the sends
  }
  for (std::size_t row = begin; row < end; ++row) {
    if (is_receive(mine.rows[row].kind)) continue;
    if (int* sent = sent_from(mine, mine.rows[row], queues)) *sent = done;
  }
}

void Play::add_message(int rank, std::size_t row, int posted, Message& message, Queues& queues) {
  const RankRows& mine = input_.ranks[static_cast<std::size_t>(rank)];
  const Action& action = mine.rows[row];
  const bool receive = is_receive(action.kind);
  if (message.point == none) message.point = add_point(rank, row, row + 1, 0.0);
  (receive ? message.received : message.sent) = true;
  (receive ? message.received_as : message.sent_as) = ++counted_[{rank, action.kind, action.chunk}];
  if (receive) graph_.raise_cost(message.point, cost_of(mine, action));
  graph_.wait(message.point, posted);
  if (!input_.on_devices) return;
  int& before = queues.lines.try_emplace({action.kind, action.chunk}, none).first->second;
  if (before != message.point) graph_.wait(message.point, before);
  before = message.point;
}

Play::Message* Play::find_message(const RankRows& rank, const Action& action) {
  int place = rank.input.places().place(rank.input.stage, action.chunk);
  if (action.kind == ActionKind::send_forward) ++place;
  if (action.kind == ActionKind::send_backward) --place;
  const bool known = place >= -1 && place + 1 < places_ && action.microbatch >= 0 &&
                     action.microbatch < microbatches_;
  if (!known) return nullptr;
  const int line = ((is_forward(action.kind) ? replicas_ : 0) + rank.replica) * inner_ + rank.inner;
  const std::size_t index = (static_cast<std::size_t>(line) * static_cast<std::size_t>(places_) +
                             static_cast<std::size_t>(place + 1)) *
                                static_cast<std::size_t>(microbatches_) +
                            static_cast<std::size_t>(action.microbatch);
  return &messages_[index];
}

}  // namespace trainctl
