#include "plan/simulate.h"

#include <algorithm>
#include <map>
#include <tuple>
#include <utility>

namespace trainctl {

namespace {

constexpr int none = -1;

bool is_message(ActionKind kind) {
  return kind == ActionKind::send_forward || kind == ActionKind::receive_forward ||
         kind == ActionKind::send_backward || kind == ActionKind::receive_backward;
}
bool is_receive(ActionKind kind) {
  return kind == ActionKind::receive_forward || kind == ActionKind::receive_backward;
}

/// A point in time of one rank, or one rendezvous of several. It starts when all that it waits for
/// are done; queue order, dependence and rendezvous are all edges.
struct Node {
  double cost = 0;
  double start = 0;
  double finish = 0;
  int rank = 0;       // who is named in messages
  int row = none;     // its row there
  int queue = none;   // the node before it on its rank's compute queue, for waits
  int waits_for = 0;  // edges not yet satisfied
};

/// Turns rows into nodes and edges.
class Graph {
 public:
  explicit Graph(const SimulationInput& input) : input_(input) {
    for (std::size_t rank = 0; rank < input.ranks.size(); ++rank) add_rank(static_cast<int>(rank));
  }

  /// Start and finish of every node; false if some wait for each other.
  bool play() {
    index_edges();
    std::vector<int> ready;
    for (std::size_t i = 0; i < nodes_.size(); ++i) {
      if (nodes_[i].waits_for == 0) ready.push_back(static_cast<int>(i));
    }
    std::size_t played = 0;
    while (!ready.empty()) {
      Node& node = nodes_[static_cast<std::size_t>(ready.back())];
      const auto index = static_cast<std::size_t>(ready.back());
      ready.pop_back();
      ++played;
      node.finish = node.start + node.cost;
      for (std::size_t e = first_edge_[index]; e < first_edge_[index + 1]; ++e) {
        Node& next = nodes_[static_cast<std::size_t>(edges_[e].second)];
        next.start = std::max(next.start, node.finish);
        if (--next.waits_for == 0) ready.push_back(edges_[e].second);
      }
    }
    return played == nodes_.size();
  }

  /// After play() failed: one cycle of nodes that wait for each other, in words.
  std::string cycle() const {
    std::vector<int> before(nodes_.size(), none);  // an unplayed node that each unplayed waits for
    int at = none;
    for (const auto& [from, to] : edges_) {
      if (nodes_[static_cast<std::size_t>(from)].waits_for == 0) continue;
      before[static_cast<std::size_t>(to)] = from;
      at = to;
    }
    std::vector<int> path;
    while (std::find(path.begin(), path.end(), at) == path.end()) {
      path.push_back(at);
      at = before[static_cast<std::size_t>(at)];
    }
    std::string text;
    for (auto i = std::find(path.begin(), path.end(), at); i != path.end(); ++i) {
      text += describe(*i) + " waits for ";
    }
    return text + describe(at);
  }

  /// Rendezvous that somebody never joins.
  void find_unmatched(std::vector<std::string>& violations) const {
    for (const auto& [key, meeting] : reduces_) {
      const int stage = key.first;
      for (std::size_t rank = 0; rank < input_.ranks.size(); ++rank) {
        if (input_.ranks[rank].input.stage != stage) continue;
        const auto& joined = meeting.members;
        if (std::find(joined.begin(), joined.end(), static_cast<int>(rank)) != joined.end()) {
          continue;
        }
        violations.push_back("rank " + std::to_string(rank) + " never joins reduce " +
                             std::to_string(key.second));
      }
    }
    for (const auto& [key, meeting] : messages_) {
      if (meeting.sent && meeting.received) continue;
      violations.push_back(describe(meeting.node) +
                           (meeting.sent ? " is never received" : " is never sent"));
    }
  }

  const std::vector<Node>& nodes() const { return nodes_; }
  const Action& action(const Node& node) const {
    return input_.ranks[static_cast<std::size_t>(node.rank)]
        .rows[static_cast<std::size_t>(node.row)];
  }

 private:
  struct Reduce {
    int node = none;
    std::vector<int> members;  // ranks
  };
  struct Message {
    int node = none;
    bool sent = false;
    bool received = false;
  };
  /// Direction, replica, virtual stage that receives, micro-batch.
  using MessageKey = std::tuple<bool, int, int, int>;

  int add_node(int rank, int row, double cost) {
    nodes_.push_back(Node{.cost = cost, .rank = rank, .row = row});
    return static_cast<int>(nodes_.size()) - 1;
  }
  void add_edge(int from, int to) {
    if (from != none) edges_.emplace_back(from, to);
  }
  double cost_of(const RankRows& rank, const Action& action) const {
    return input_.cost ? input_.cost(rank, action) : 1.0;
  }

  void add_rank(int rank) {
    const RankRows& mine = input_.ranks[static_cast<std::size_t>(rank)];
    int compute = none;  // last node of the compute queue
    int axis = none;     // last node of the data-parallel queue
    int wire = none;     // last batch of the message queue
    for (std::size_t row = 0; row < mine.rows.size(); ++row) {
      const Action& action = mine.rows[row];
      if (action.kind == ActionKind::reduce) {
        axis = join_reduce(rank, static_cast<int>(row), compute, axis);
      } else if (is_message(action.kind)) {
        std::size_t end = row;
        while (end < mine.rows.size() && is_message(mine.rows[end].kind)) ++end;
        const auto [done, receives] = add_batch(rank, row, end, compute, wire);
        wire = done;
        if (receives) compute = done;
        row = end - 1;
      } else {
        const bool waits = action.kind == ActionKind::wait_reduce;
        const int node = add_node(rank, static_cast<int>(row), waits ? 0.0 : cost_of(mine, action));
        nodes_.back().queue = compute;
        add_edge(compute, node);
        if (waits) {
          const auto found = reduces_.find({mine.input.stage, action.bucket});
          if (found != reduces_.end()) add_edge(found->second.node, node);
        }
        compute = node;
      }
    }
  }

  int join_reduce(int rank, int row, int compute, int axis) {
    const RankRows& mine = input_.ranks[static_cast<std::size_t>(rank)];
    const Action& action = mine.rows[static_cast<std::size_t>(row)];
    Reduce& meeting = reduces_[{mine.input.stage, action.bucket}];
    if (meeting.node == none) meeting.node = add_node(rank, row, 0.0);
    Node& node = nodes_[static_cast<std::size_t>(meeting.node)];
    node.cost = std::max(node.cost, cost_of(mine, action));
    meeting.members.push_back(rank);
    add_edge(compute, meeting.node);
    if (axis != meeting.node) add_edge(axis, meeting.node);
    return meeting.node;
  }

  /// One batch of message rows: posted together, done when all are done.
  std::pair<int, bool> add_batch(int rank, std::size_t begin, std::size_t end, int compute,
                                 int wire) {
    const RankRows& mine = input_.ranks[static_cast<std::size_t>(rank)];
    const int posted = add_node(rank, static_cast<int>(begin), 0.0);
    add_edge(compute, posted);
    add_edge(wire, posted);
    const int done = add_node(rank, static_cast<int>(begin), 0.0);
    add_edge(posted, done);
    bool receives = false;
    for (std::size_t row = begin; row < end; ++row) {
      const Action& action = mine.rows[row];
      const bool receive = is_receive(action.kind);
      receives = receives || receive;
      Message& message = messages_[key_of(mine, action)];
      if (message.node == none) message.node = add_node(rank, static_cast<int>(row), 0.0);
      (receive ? message.received : message.sent) = true;
      if (receive) nodes_[static_cast<std::size_t>(message.node)].cost = cost_of(mine, action);
      add_edge(posted, message.node);
      add_edge(message.node, done);
    }
    return {done, receives};
  }

  static MessageKey key_of(const RankRows& rank, const Action& action) {
    const int here = action.chunk * rank.input.stages + rank.input.stage;
    switch (action.kind) {
      case ActionKind::send_forward: return {true, rank.replica, here + 1, action.microbatch};
      case ActionKind::receive_forward: return {true, rank.replica, here, action.microbatch};
      case ActionKind::send_backward: return {false, rank.replica, here - 1, action.microbatch};
      default: return {false, rank.replica, here, action.microbatch};
    }
  }

  std::string describe(int index) const {
    const Node& node = nodes_[static_cast<std::size_t>(index)];
    return "rank " + std::to_string(node.rank) + " " + to_string(action(node));
  }

  /// Groups the edges by where they start and counts those that end at each node.
  void index_edges() {
    std::stable_sort(edges_.begin(), edges_.end(),
                     [](const auto& a, const auto& b) { return a.first < b.first; });
    first_edge_.assign(nodes_.size() + 1, 0);
    for (const auto& [from, to] : edges_) {
      ++first_edge_[static_cast<std::size_t>(from) + 1];
      ++nodes_[static_cast<std::size_t>(to)].waits_for;
    }
    for (std::size_t i = 1; i < first_edge_.size(); ++i) first_edge_[i] += first_edge_[i - 1];
  }

  const SimulationInput& input_;
  std::vector<Node> nodes_;
  std::vector<std::pair<int, int>> edges_;
  std::vector<std::size_t> first_edge_;
  std::map<std::pair<int, int>, Reduce> reduces_;  // (stage, bucket)
  std::map<MessageKey, Message> messages_;
};

/// Fills the times from a graph that has been played.
void measure(const Graph& graph, std::size_t ranks, Simulation& result) {
  std::vector<double> busy(ranks, 0.0);
  std::vector<double> exposed(ranks, 0.0);
  for (const Node& node : graph.nodes()) {
    result.seconds = std::max(result.seconds, node.finish);
    const ActionKind kind = graph.action(node).kind;
    if (kind == ActionKind::reduce || is_message(kind)) continue;
    const auto rank = static_cast<std::size_t>(node.rank);
    busy[rank] += node.cost;
    if (kind != ActionKind::wait_reduce) continue;
    const double free_at =
        node.queue == none ? 0.0 : graph.nodes()[static_cast<std::size_t>(node.queue)].finish;
    exposed[rank] += node.start - free_at;
  }
  double idle = 0;
  for (std::size_t rank = 0; rank < ranks; ++rank) {
    idle += result.seconds - busy[rank] - exposed[rank];
    result.exposed_communication = std::max(result.exposed_communication, exposed[rank]);
  }
  const double all = result.seconds * static_cast<double>(ranks);
  result.bubble_fraction = all > 0 ? std::max(0.0, idle / all) : 0.0;
}

}  // namespace

Simulation simulate(const SimulationInput& input) {
  Simulation result;
  const std::vector<int> no_buckets;
  for (std::size_t rank = 0; rank < input.ranks.size(); ++rank) {
    const RankRows& mine = input.ranks[rank];
    const auto stage = static_cast<std::size_t>(mine.input.stage);
    prove_rows(mine, stage < input.buckets.size() ? input.buckets[stage] : no_buckets,
               "rank " + std::to_string(rank), result.violations);
    result.peak_microbatches = std::max(result.peak_microbatches, peak_microbatches(mine.rows));
  }
  Graph graph(input);
  graph.find_unmatched(result.violations);
  if (graph.play()) {
    measure(graph, input.ranks.size(), result);
  } else {
    result.violations.push_back("deadlock: " + graph.cycle());
  }
  return result;
}

}  // namespace trainctl
