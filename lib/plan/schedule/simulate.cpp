#include "plan/schedule/simulate.h"

#include <algorithm>
#include <cstddef>
#include <map>
#include <span>
#include <string>
#include <tuple>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/at.h"
#include "base/text.h"
#include "plan/schedule/action.h"
#include "plan/schedule/wait_graph.h"

namespace trainctl {

namespace {

/// A row that ranks of one stage and replica run together, because it contains collectives.
struct SharedRow {
  int group = 0;  // result of Play::group_of()
  Action action;
  friend bool operator==(const SharedRow&, const SharedRow&) = default;
};
struct SharedRowHash {
  std::size_t operator()(const SharedRow& row) const {
    const Action& action = row.action;
    std::size_t hash = static_cast<std::size_t>(action.kind);
    for (const int part : {row.group, action.chunk, action.microbatch, action.begin, action.end}) {
      hash = (hash ^ static_cast<std::size_t>(part)) * std::size_t{0x9E3779B97F4A7C15};
      hash ^= hash >> 29;
    }
    return hash;
  }
};

bool is_computed(ActionKind kind) {
  if (kind == ActionKind::free) return true;  // takes no time, but has a place in the compute queue
  return !is_message(kind) && !is_message_wait(kind) && !is_host_copy(kind) && !names_bucket(kind);
}
/// Whether the row is a pass of some units, which contain collectives.
bool has_collectives(const Action& action) {
  return is_pass(action.kind) && action.begin < action.end;
}
bool is_forward(ActionKind kind) {
  return kind == ActionKind::forward || kind == ActionKind::send_forward ||
         kind == ActionKind::receive_forward || kind == ActionKind::wait_forward;
}

// The graph of waits for simulate(), built from the rows of all ranks. Consecutive rows of the
// compute queue are one point, because nothing can come between them. If ranks that synchronise
// have different rows, each row is a point.
class Play {
 public:
  /// Keeps a reference to `input`.
  explicit Play(const SimulationInput& input)
      : input_(input), sent_seconds_(input.ranks.size(), 0.0) {
    measure_tables();
    find_apart();
    for (std::size_t rank = 0; rank < input.ranks.size(); ++rank) add_rank(static_cast<int>(rank));
  }

  /// Computes the time of every point; false if some points wait for each other.
  bool run() { return graph_.play(); }
  /// After run() failed: the shortest cycle of rows that wait for each other, as text.
  std::string cycle() const {
    std::vector<int> points = graph_.shortest_cycle();
    std::reverse(points.begin(), points.end());
    std::vector<std::string> names;
    for (const int point : points) {
      std::string name = describe(point);
      if (names.empty() || names.back() != name) names.push_back(std::move(name));
    }
    if (names.size() > 1 && names.front() == names.back()) names.pop_back();
    std::string text;
    for (const std::string& name : names) text += name + " waits for ";
    return text + names.front();
  }

  /// Appends an error for each rendezvous with a missing participant.
  void find_unmatched(std::vector<std::string>& violations) const {
    for (const auto& [key, meeting] : exchanges_) {
      const auto& [stage, kind, bucket, visit] = key;
      for (std::size_t rank = 0; rank < input_.ranks.size(); ++rank) {
        if (input_.ranks[rank].input.stage != stage) continue;
        const auto& joined = meeting.members;
        if (std::find(joined.begin(), joined.end(), static_cast<int>(rank)) != joined.end()) {
          continue;
        }
        violations.push_back(
            formatted("rank {} never joins {}", rank,
                      to_string(Action{.kind = kind, .bucket = bucket, .visit = visit})));
      }
    }
    for (const auto& [row, meeting] : shared_rows_) {
      if (meeting.joined == at(group_sizes_, row.group)) continue;
      violations.push_back(describe(meeting.point) + " is not run by all that share its layers");
    }
    for (const auto& [key, meeting] : embeddings_) {
      if (meeting.first && meeting.last) continue;
      violations.push_back(formatted("{} is not joined by the {} stage", describe(meeting.point),
                                     meeting.first ? "last" : "first"));
    }
    for (const Message& message : messages_) {
      if (message.point == none) continue;
      if (!message.sent || !message.received) {
        violations.push_back(describe(message.point) +
                             (message.sent ? " is never received" : " is never sent"));
      } else if (message.sent_as != message.received_as) {
        violations.push_back(formatted("{} is received as number {}, but sent as number {}",
                                       describe(message.point), message.received_as,
                                       message.sent_as));
      }
    }
  }

  /// Fills in the times of `result` after run().
  void measure(Simulation& result) const {
    const std::size_t ranks = input_.ranks.size();
    result.queues.resize(ranks);
    std::vector<double> free_at(ranks, 0.0);  // when the last point of the compute queue ended
    for (std::size_t i = 0; i < points_.size(); ++i) {
      const Point& point = points_[i];
      const int index = static_cast<int>(i);
      result.seconds = std::max(result.seconds, graph_.finish(index));
      if (!point.computes) continue;
      const auto rank = static_cast<std::size_t>(point.rank);
      QueueTimes& times = result.queues[rank];
      times.busy += graph_.cost(index);
      if (input_.keep_times) add_times(index, result.times);
      // Waiting for a tied embedding is waiting for the other end of the pipeline, which is bubble.
      const ActionKind kind = action(point).kind;
      const double waited = graph_.start(index) - std::max(free_at[rank], queued_after(index));
      if (kind == ActionKind::wait_gather) times.waited_gathers += waited;
      if (is_host_copy(kind)) times.waited_copies += waited;
      const ExchangePhase leg = action(point).leg;
      if (leg == ExchangePhase::work || leg == ExchangePhase::home) times.waited_rows += waited;
      if (kind == ActionKind::wait_reduce && !waits_for_embedding(point))
        times.waited_sums += waited;
      free_at[rank] = graph_.finish(index);
    }
    double idle = 0;
    for (std::size_t rank = 0; rank < ranks; ++rank) {
      QueueTimes& times = result.queues[rank];
      times.sent_rows = sent_seconds_[rank];
      idle += result.seconds - times.busy - times.exposed();
      result.exposed_communication = std::max(result.exposed_communication, times.exposed());
    }
    const double all = result.seconds * static_cast<double>(ranks);
    result.bubble_fraction = all > 0 ? std::max(0.0, idle / all) : 0.0;
  }

 private:
  static constexpr int none = WaitGraph::none;

  /// The rows that a point of the graph represents.
  struct Point {
    int rank = 0;  // rank named in error messages
    int row = 0;   // first row on that rank
    int rows = 1;
    bool computes = false;  // whether these rows are on the compute queue
  };
  /// One visit of a bucket's sum or of a block's gather.
  struct Exchange {
    int point = none;
    std::vector<int> members;  // ranks
  };
  struct EmbeddingSum {
    int point = none;
    bool first = false;  // the first stage has joined
    bool last = false;
  };
  struct RowMeeting {
    int point = none, joined = 0;
  };
  struct Message {
    int point = none;
    bool sent = false, received = false;
    int sent_as = 0;  // number among the messages between two chunks
    int received_as = 0;
  };
  /// The last point in each queue of one rank.
  struct Queues {
    int compute = none;
    int axis = none;       // sums and gathers, also of the tied embedding
    int launched = none;   // on devices: the previous collective
    int wire = none;       // last batch of messages
    int embedding = none;  // the last sum of the tied embedding
    int embedding_bucket = -1;
    int copies = none;           // copies to and from the host
    int rows = none;             // last transfer of rows to experts or back
    int sent[2] = {none, none};  // last sends of the open F, and of the open R or B
    std::map<std::tuple<ActionKind, int, int>, int> copied;  // copies by kind, micro-batch and unit
    std::map<std::pair<ActionKind, int>, int> lines;         // messages by kind and chunk
    std::vector<int> outputs;    // per chunk: the send that must end before its only output buffer
                                 // is filled again
    std::vector<int> gradients;  // per chunk: the same for gradients to the stage before
  };

  void measure_tables() {
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

  void find_apart() {
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

  int add_point(int rank, std::size_t begin, std::size_t end, double cost, bool computes = false) {
    points_.push_back(
        Point{rank, static_cast<int>(begin), static_cast<int>(end - begin), computes});
    return graph_.add(cost);
  }
  void add_rank(int rank) {
    const RankRows& mine = at(input_.ranks, rank);
    const std::span<const Action> rows = mine.rows;
    const bool apart = at(apart_, group_of(mine));
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
        const bool leg = rows[begin].leg != ExchangePhase::whole;
        while (!apart && !leg && row < rows.size() && is_computed(rows[row].kind) &&
               rows[row].leg == ExchangePhase::whole &&
               overwritten(mine, rows[row], queues) == nullptr) {
          ++row;
        }
        add_run(rank, begin, row, queues);
      }
    }
  }

  void add_run(int rank, std::size_t begin, std::size_t end, Queues& queues) {
    const RankRows& mine = at(input_.ranks, rank);
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
    if (first.leg == ExchangePhase::work || first.leg == ExchangePhase::home)
      graph_.wait(point, sent);
    if (!first.sends_rows()) return;
    const double seconds = input_.sent ? input_.sent(mine, first) : 0;
    sent = add_point(rank, begin, begin + 1, seconds);
    graph_.wait(sent, point);
    graph_.wait(sent, queues.rows);
    queues.rows = sent;
    at(sent_seconds_, rank) += seconds;
  }

  /// Lets the rank join the sum or gather at `point`, which is added if it is none.
  void meet(int rank, std::size_t row, int& point, Queues& queues) {
    const RankRows& mine = at(input_.ranks, rank);
    if (point == none) point = add_point(rank, row, row + 1, 0.0);
    graph_.raise_cost(point, cost_of(mine, mine.rows[row]));
    graph_.wait(point, queues.compute);
    if (queues.axis != point) graph_.wait(point, queues.axis);
    queues.axis = point;
    launch(point, point, queues);
    if (input_.hosts_meet) queues.compute = point;
  }

  /// Joins one visit of a bucket's sum or of a block's gather.
  void join(int rank, std::size_t row, Queues& queues) {
    const RankRows& mine = at(input_.ranks, rank);
    const Action& action = mine.rows[row];
    Exchange& meeting = exchanges_[{mine.input.stage, action.kind, action.bucket, action.visit}];
    meeting.members.push_back(rank);
    meet(rank, row, meeting.point, queues);
  }

  /// Joins the sum of a tied embedding, which follows the stage's own sum of the bucket.
  void join_embedding(int rank, std::size_t row, Queues& queues) {
    const RankRows& mine = at(input_.ranks, rank);
    EmbeddingSum& meeting = embeddings_[{mine.replica, mine.inner}];
    const ChunkPlaces places = mine.input.places();
    meeting.first = meeting.first || mine.input.stage == places.first_stage();
    meeting.last = meeting.last || mine.input.stage == places.last_stage();
    meet(rank, row, meeting.point, queues);
    queues.embedding = meeting.point;
    queues.embedding_bucket = mine.rows[row].bucket;
    const int stage = mine.input.stage;
    for (const auto& [key, sum] : exchanges_) {
      const auto& [of, kind, bucket, visit] = key;
      if (of != stage || kind != ActionKind::reduce || bucket != queues.embedding_bucket) continue;
      graph_.wait(meeting.point, sum.point);
    }
  }

  void await(int rank, std::size_t row, Queues& queues) {
    const RankRows& mine = at(input_.ranks, rank);
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

  /// Adds a copy between the rank and its host, which starts after all earlier rows of the rank;
  /// await_copy() adds the wait for it.
  void copy(int rank, std::size_t row, Queues& queues) {
    const RankRows& mine = at(input_.ranks, rank);
    const Action& action = mine.rows[row];
    const int point = add_point(rank, row, row + 1, cost_of(mine, action));
    graph_.wait(point, queues.compute);
    graph_.wait(point, queues.copies);
    queues.copies = point;
    queues.copied[{action.kind, action.microbatch, action.begin}] = point;
  }

  void await_copy(int rank, std::size_t row, Queues& queues) {
    const Action& action = at(input_.ranks, rank).rows[row];
    const int point = add_point(rank, row, row + 1, 0.0, true);
    graph_.wait(point, queues.compute);
    const bool out = action.kind == ActionKind::wait_offload;
    const auto found = queues.copied.find(
        {out ? ActionKind::offload : ActionKind::reload, action.microbatch, action.begin});
    if (found != queues.copied.end()) graph_.wait(point, found->second);
    note_batch_before(point, queues);
    queues.compute = point;
  }

  void await_message(int rank, std::size_t row, Queues& queues) {
    const RankRows& mine = at(input_.ranks, rank);
    const int point = add_point(rank, row, row + 1, 0.0);
    graph_.wait(point, queues.compute);
    const Message* message = find_message(mine, mine.rows[row]);
    if (message != nullptr) graph_.wait(point, message->point);
    queues.compute = point;
  }

  /// Adds the point at which the rows are posted; with casts, their buffers must be free by then.
  int post_batch(int rank, std::size_t begin, std::size_t end, Queues& queues) {
    const RankRows& mine = at(input_.ranks, rank);
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

  /// On devices, lets `point` wait for the rank's previous collective.
  void launch(int point, int done, Queues& queues) {
    if (!input_.on_devices) return;
    if (queues.launched != point) graph_.wait(point, queues.launched);
    queues.launched = done;
  }
  void add_message(int rank, std::size_t row, int posted, Message& message, Queues& queues) {
    const RankRows& mine = at(input_.ranks, rank);
    const Action& action = mine.rows[row];
    const bool receive = is_receive(action.kind);
    if (message.point == none) message.point = add_point(rank, row, row + 1, 0.0);
    (receive ? message.received : message.sent) = true;
    (receive ? message.received_as : message.sent_as) =
        ++counted_[{rank, action.kind, action.chunk}];
    if (receive) graph_.raise_cost(message.point, cost_of(mine, action));
    graph_.wait(message.point, posted);
    if (!input_.on_devices) return;
    int& before = queues.lines.try_emplace({action.kind, action.chunk}, none).first->second;
    if (before != message.point) graph_.wait(message.point, before);
    before = message.point;
  }

  /// Adds message rows that are posted together; the batch ends with its last message. Receives
  /// block the compute queue unless a wait row follows; sends block only later messages and rows
  /// that would overwrite their buffers.
  void add_batch(int rank, std::size_t begin, std::size_t end, Queues& queues) {
    const RankRows& mine = at(input_.ranks, rank);
    const int posted = post_batch(rank, begin, end, queues);
    const bool single = end - begin == 1;
    int done = single ? none : add_point(rank, begin, end, 0.0);
    bool receives = false;
    for (std::size_t row = begin; row < end; ++row) {
      const Action& action = mine.rows[row];
      Message* message = find_message(mine, action);
      if (message == nullptr) continue;  // out of range; prove_rows() reports it
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
      return;  // the compute queue then also waits for the sends
    }
    for (std::size_t row = begin; row < end; ++row) {
      if (is_receive(mine.rows[row].kind)) continue;
      if (int* sent = sent_from(mine, mine.rows[row], queues)) *sent = done;
    }
  }

  /// The message of a row, by direction, replica, inner rank, receiving place along the pipeline
  /// and micro-batch; null for a row out of range.
  Message* find_message(const RankRows& rank, const Action& action) {
    int place = rank.input.places().place(rank.input.stage, action.chunk);
    if (action.kind == ActionKind::send_forward) ++place;
    if (action.kind == ActionKind::send_backward) --place;
    const bool known = place >= -1 && place + 1 < places_ && action.microbatch >= 0 &&
                       action.microbatch < microbatches_;
    if (!known) return nullptr;
    const int line =
        ((is_forward(action.kind) ? replicas_ : 0) + rank.replica) * inner_ + rank.inner;
    const std::size_t index = (static_cast<std::size_t>(line) * static_cast<std::size_t>(places_) +
                               static_cast<std::size_t>(place + 1)) *
                                  static_cast<std::size_t>(microbatches_) +
                              static_cast<std::size_t>(action.microbatch);
    return &messages_[index];
  }

  /// The unfinished send whose buffer an F or B writes; null if there is none. With casts, only
  /// send rows write these buffers.
  static int* overwritten(const RankRows& rank, const Action& action, Queues& queues) {
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

  /// The unfinished send from the output buffer of an F or B row; null for a row out of range.
  /// A kept output is overwritten only after its gradient has arrived, and so after it was
  /// received.
  static int* sent_from(const RankRows& rank, const Action& action, Queues& queues) {
    const auto at = static_cast<std::size_t>(action.chunk);
    if (at >= queues.outputs.size()) return nullptr;
    if (!is_forward(action.kind)) return &queues.gradients[at];
    return rank.input.messages.keeps_outputs ? nullptr : &queues.outputs[at];
  }

  /// The index of a rank's stage and replica.
  int group_of(const RankRows& rank) const { return rank.input.stage * replicas_ + rank.replica; }
  const RankRows& rank_of(const Point& point) const { return at(input_.ranks, point.rank); }
  const Action& action(const Point& point) const { return at(rank_of(point).rows, point.row); }
  double cost_of(const RankRows& rank, const Action& action) const {
    if (action.kind == ActionKind::free) return 0;
    return input_.cost ? input_.cost(rank, action) : 1.0;
  }
  /// Whether the wait includes a tied embedding. queued_after(): end of the message batch before.
  bool waits_for_embedding(const Point& point) const {
    const RankRows& rank = at(input_.ranks, point.rank);
    const auto stage = static_cast<std::size_t>(rank.input.stage);
    const auto bucket = static_cast<std::size_t>(action(point).bucket);
    return stage < input_.buckets.size() && bucket < input_.buckets[stage].size() &&
           input_.buckets[stage][bucket].embedding;
  }

  double queued_after(int point) const {
    const auto found = after_batch_.find(point);
    return found == after_batch_.end() ? 0.0 : graph_.finish(found->second);
  }
  void note_batch_before(int point, const Queues& queues) {
    if (queues.compute == none || at(points_, queues.compute).computes) return;
    after_batch_[point] = queues.compute;
  }
  void add_times(int index, std::vector<RowTime>& times) const {
    const Point& point = at(points_, index);
    const RankRows& mine = at(input_.ranks, point.rank);
    double start = graph_.start(index);
    for (int row = point.row; row < point.row + point.rows; ++row) {
      const Action& action = at(mine.rows, row);
      const bool waits = names_bucket(action.kind) || is_host_copy(action.kind);
      const double end = start + (waits ? 0.0 : cost_of(mine, action));
      times.push_back({point.rank, row, start, end});
      start = end;
    }
  }

  /// Describes a batch by all its messages, other points by the first row.
  std::string describe(int index) const {
    const Point& point = at(points_, index);
    std::string text = formatted("rank {} {}", point.rank, to_string(action(point)));
    if (point.computes) return text;
    const auto rows = at(input_.ranks, point.rank).rows;
    for (int row = point.row + 1; row < point.row + point.rows; ++row) {
      text += " + " + to_string(at(rows, row));
    }
    return text;
  }

  const SimulationInput& input_;
  WaitGraph graph_;
  std::vector<Point> points_;  // point of the graph by index
  int replicas_ = 1, inner_ = 1, stages_ = 1;
  int places_ = 0;  // number of stages x chunks, plus one at each end
  int microbatches_ = 0;
  std::vector<bool> apart_;  // whether the ranks of a group have different rows
  std::vector<int> group_sizes_;
  // by stage, kind, bucket and visit
  std::map<std::tuple<int, ActionKind, int, int>, Exchange> exchanges_;
  std::map<std::pair<int, int>, EmbeddingSum> embeddings_;   // by replica and inner rank
  std::map<std::tuple<int, ActionKind, int>, int> counted_;  // messages, by rank, kind and chunk
  std::unordered_map<SharedRow, RowMeeting, SharedRowHash> shared_rows_;
  std::vector<Message> messages_;     // see find_message()
  std::map<int, int> after_batch_;    // see queued_after()
  std::vector<double> sent_seconds_;  // seconds of sent rows, by rank
};

void prove_ranks(const SimulationInput& input, Simulation& result) {
  const std::vector<BucketSum> no_buckets;
  const std::vector<GatherBlock> no_gathers;
  std::map<std::pair<int, const Action*>, bool> proven;  // replicas share rows
  for (std::size_t rank = 0; rank < input.ranks.size(); ++rank) {
    const RankRows& mine = input.ranks[rank];
    const auto stage = static_cast<std::size_t>(mine.input.stage);
    if (!mine.rows.empty() && proven[{mine.input.stage, mine.rows.data()}]) continue;
    const std::size_t before = result.violations.size();
    prove_rows(mine, stage < input.buckets.size() ? input.buckets[stage] : no_buckets,
               stage < input.gathers.size() ? input.gathers[stage] : no_gathers,
               formatted("rank {}", rank), result.violations);
    result.peak_microbatches = std::max(result.peak_microbatches, peak_microbatches(mine.rows));
    if (mine.rows.empty()) continue;
    proven[{mine.input.stage, mine.rows.data()}] = result.violations.size() == before;
  }
}

}  // namespace

Simulation simulate(const SimulationInput& input) {
  Simulation result;
  if (!input.proven) prove_ranks(input, result);
  Play play(input);
  play.find_unmatched(result.violations);
  if (play.run()) {
    play.measure(result);
  } else {
    result.violations.push_back("deadlock: " + play.cycle());
  }
  return result;
}

}  // namespace trainctl
