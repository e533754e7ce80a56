// The waits that simulate() plays, built from the rows of all ranks. Rows of the compute queue that
// follow each other are one point of the graph, for nothing can come between them; where ranks that
// meet in rows have different ones, each row is its own.
#pragma once

#include <map>
#include <string>
#include <tuple>
#include <unordered_map>
#include <utility>
#include <vector>

#include "plan/schedule/simulate.h"
#include "plan/schedule/wait_graph.h"

namespace trainctl {

/// A row that the ranks of one stage and replica run together.
struct SharedRow {
  int group = 0;  // see Play::group_of()
  Action action;
  friend bool operator==(const SharedRow&, const SharedRow&) = default;
};
struct SharedRowHash {
  std::size_t operator()(const SharedRow& row) const;
};

class Play {
 public:
  /// Looks at `input` as long as it lives.
  explicit Play(const SimulationInput& input);

  /// Gives every point its time; false if some wait for each other.
  bool run() { return graph_.play(); }
  /// After run() failed: a shortest cycle of rows that wait for each other, in words.
  std::string cycle() const;
  /// Appends the rendezvous that somebody never joins.
  void find_unmatched(std::vector<std::string>& violations) const;
  /// Fills the times after run().
  void measure(Simulation& result) const;

 private:
  static constexpr int none = WaitGraph::none;

  /// What a point of the graph stands for.
  struct Point {
    int rank = 0;  // who is named in messages
    int row = 0;   // its first row there
    int rows = 1;
    bool computes = false;  // rows of the compute queue
  };
  /// A reduce of one bucket, or a gather of one block.
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
  };
  /// The queues of one rank: the last point of each.
  struct Queues {
    int compute = none;
    int axis = none;       // reductions and gathers
    int wire = none;       // batches of messages
    int embedding = none;  // the tied embedding's sum, of bucket
    int embedding_bucket = -1;
    std::vector<int> outputs;  // per output buffer: the send that the next to fill it waits for
    int gradient = none;       // the same of the stage's gradient buffer
  };

  void measure_tables();
  void find_apart();
  int add_point(int rank, std::size_t begin, std::size_t end, double cost, bool computes = false);
  void add_rank(int rank);
  void add_run(int rank, std::size_t begin, std::size_t end, Queues& queues);
  void join(int rank, std::size_t row, Queues& queues);
  void join_embedding(int rank, std::size_t row, Queues& queues);
  void await(int rank, std::size_t row, Queues& queues);
  void await_message(int rank, std::size_t row, Queues& queues);
  int post_batch(int rank, std::size_t begin, std::size_t end, Queues& queues);
  /// Message rows that are posted together, done when all are done. Receives hold up the compute
  /// queue unless a wait row does, sends only what comes behind on the wire and what would
  /// overwrite them.
  void add_batch(int rank, std::size_t begin, std::size_t end, Queues& queues);
  /// By direction, replica, place inside it, the place along the pipeline that receives, and
  /// micro-batch; null for a row out of range.
  Message* find_message(const RankRows& rank, const Action& action);
  static int* overwritten(const RankRows& rank, const Action& action, Queues& queues);
  /// The send under way from the buffer of a forward or backward row; null for a row out of range.
  static int* sent_from(const RankRows& rank, const Action& action, Queues& queues);

  /// Ranks of one stage and replica.
  int group_of(const RankRows& rank) const { return rank.input.stage * replicas_ + rank.replica; }
  const RankRows& rank_of(const Point& point) const {
    return input_.ranks[static_cast<std::size_t>(point.rank)];
  }
  const Action& action(const Point& point) const {
    return rank_of(point).rows[static_cast<std::size_t>(point.row)];
  }
  double cost_of(const RankRows& rank, const Action& action) const {
    return input_.cost ? input_.cost(rank, action) : 1.0;
  }
  /// When the batch before a wait_reduce was done: waiting for that is no exposed reduction.
  bool waits_for_embedding(const Point& point) const;
  double queued_after(int point) const;
  void add_times(int index, std::vector<RowTime>& times) const;
  /// A batch with all its messages, work by its first row.
  std::string describe(int index) const;

  const SimulationInput& input_;
  WaitGraph graph_;
  std::vector<Point> points_;  // of the graph
  int replicas_ = 1;
  int inner_ = 1;
  int stages_ = 1;
  int places_ = 0;  // along the pipeline: stages x chunks, and one beyond each end
  int microbatches_ = 0;
  std::vector<bool> apart_;  // per group: its ranks have different rows
  std::vector<int> group_sizes_;
  std::map<std::tuple<int, ActionKind, int>, Exchange> exchanges_;  // (stage, kind, bucket)
  std::map<std::pair<int, int>, EmbeddingSum> embeddings_;          // (replica, inner)
  std::unordered_map<SharedRow, RowMeeting, SharedRowHash> shared_rows_;
  std::vector<Message> messages_;   // see find_message()
  std::map<int, int> after_batch_;  // see queued_after()
};

}  // namespace trainctl
