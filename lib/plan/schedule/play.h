// The waits that simulate() plays, built from the rows of all ranks. Consecutive rows of the
// compute queue are one point of the graph, because nothing can come between them; if ranks that
// meet in rows have different rows, each row is its own point.
#pragma once

#include <map>
#include <string>
#include <tuple>
#include <unordered_map>
#include <utility>
#include <vector>

#include "plan/schedule/shared_row.h"
#include "plan/schedule/simulate.h"
#include "plan/schedule/wait_graph.h"

namespace trainctl {

class Play {
 public:
  /// Keeps a reference to `input`.
  explicit Play(const SimulationInput& input);

  /// Computes the time of every point; false if some wait for each other.
  bool run() { return graph_.play(); }
  /// After run() failed: a shortest cycle of rows that wait for each other, as text.
  std::string cycle() const;
  /// Appends each rendezvous in which a participant is missing.
  void find_unmatched(std::vector<std::string>& violations) const;
  /// Fills in the times after run().
  void measure(Simulation& result) const;

 private:
  static constexpr int none = WaitGraph::none;

  /// What a point of the graph represents.
  struct Point {
    int rank = 0;  // the rank that messages name
    int row = 0;   // its first row on that rank
    int rows = 1;
    bool computes = false;  // rows of the compute queue
  };
  /// One visit of a bucket's reduce or of a block's gather.
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
    int point = none;
    int joined = 0;
  };
  struct Message {
    int point = none;
    bool sent = false;
    bool received = false;
    int sent_as = 0;  // its number among those from one chunk to the next
    int received_as = 0;
  };
  /// The queues of one rank: the last point of each.
  struct Queues {
    int compute = none;
    int axis = none;       // reductions and gathers, and sums of the tied embedding
    int launched = none;   // on devices: the collective before
    int wire = none;       // batches of messages
    int embedding = none;  // the last sum of the tied embedding
    int embedding_bucket = -1;
    int copies = none;           // to and from the host
    int rows = none;             // on their way to experts or back
    int sent[2] = {none, none};  // of them, those of the F and of the R or B that are open
    std::map<std::tuple<ActionKind, int, int>, int> copied;  // by kind, micro-batch and unit
    std::map<std::pair<ActionKind, int>, int> lines;         // by kind of message and chunk
    std::vector<int> outputs;    // per chunk: the send that must end before its only output buffer
                                 // is filled again
    std::vector<int> gradients;  // the same for what it gives to the stage before
  };

  void measure_tables();
  void find_apart();
  int add_point(int rank, std::size_t begin, std::size_t end, double cost, bool computes = false);
  void add_rank(int rank);
  void add_run(int rank, std::size_t begin, std::size_t end, Queues& queues);
  void join(int rank, std::size_t row, Queues& queues);
  void join_embedding(int rank, std::size_t row, Queues& queues);
  void await(int rank, std::size_t row, Queues& queues);
  /// A copy between the rank and its host, and the wait for it.
  void copy(int rank, std::size_t row, Queues& queues);
  void await_copy(int rank, std::size_t row, Queues& queues);
  void await_message(int rank, std::size_t row, Queues& queues);
  int post_batch(int rank, std::size_t begin, std::size_t end, Queues& queues);
  /// On devices, `point` comes after the rank's collective before it.
  void launch(int point, int done, Queues& queues);
  void add_message(int rank, std::size_t row, int posted, Message& message, Queues& queues);
  /// Message rows that are posted together; the batch is done when all are. Receives block the
  /// compute queue unless a wait row follows; sends block only later messages and what would
  /// overwrite their buffers.
  void add_batch(int rank, std::size_t begin, std::size_t end, Queues& queues);
  /// Indexed by direction, replica, place inside it, receiving place along the pipeline and
  /// micro-batch; null for a row out of range.
  Message* find_message(const RankRows& rank, const Action& action);
  static int* overwritten(const RankRows& rank, const Action& action, Queues& queues);
  /// The unfinished send from the buffer of a forward or backward row; null for a row out of range.
  static int* sent_from(const RankRows& rank, const Action& action, Queues& queues);

  /// The index of a stage and replica.
  int group_of(const RankRows& rank) const { return rank.input.stage * replicas_ + rank.replica; }
  const RankRows& rank_of(const Point& point) const {
    return input_.ranks[static_cast<std::size_t>(point.rank)];
  }
  const Action& action(const Point& point) const {
    return rank_of(point).rows[static_cast<std::size_t>(point.row)];
  }
  double cost_of(const RankRows& rank, const Action& action) const {
    if (action.kind == ActionKind::free) return 0;
    return input_.cost ? input_.cost(rank, action) : 1.0;
  }
  /// When the batch before a wait was done; waiting for it is not exposed communication.
  bool waits_for_embedding(const Point& point) const;
  double queued_after(int point) const;
  void note_batch_before(int point, const Queues& queues);
  void add_times(int index, std::vector<RowTime>& times) const;
  /// A batch is represented with all its messages, work by its first row.
  std::string describe(int index) const;

  const SimulationInput& input_;
  WaitGraph graph_;
  std::vector<Point> points_;  // of the graph
  int replicas_ = 1;
  int inner_ = 1;
  int stages_ = 1;
  int places_ = 0;  // along the pipeline: stages x chunks, plus one beyond each end
  int microbatches_ = 0;
  std::vector<bool> apart_;  // per group: its ranks have different rows
  std::vector<int> group_sizes_;
  // By (stage, kind, bucket, visit).
  std::map<std::tuple<int, ActionKind, int, int>, Exchange> exchanges_;
  std::map<std::pair<int, int>, EmbeddingSum> embeddings_;   // (replica, inner)
  std::map<std::tuple<int, ActionKind, int>, int> counted_;  // messages, by rank, kind and chunk
  std::unordered_map<SharedRow, RowMeeting, SharedRowHash> shared_rows_;
  std::vector<Message> messages_;     // see find_message()
  std::map<int, int> after_batch_;    // see queued_after()
  std::vector<double> sent_seconds_;  // by rank: of rows on their way
};

}  // namespace trainctl
