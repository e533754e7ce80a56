#include "plan/schedule/simulate.h"

#include <algorithm>
#include <map>
#include <utility>

#include "plan/schedule/play.h"

namespace trainctl {

std::string Play::cycle() const {
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

void Play::find_unmatched(std::vector<std::string>& violations) const {
  for (const auto& [key, meeting] : exchanges_) {
    const auto& [stage, kind, bucket, visit] = key;
    for (std::size_t rank = 0; rank < input_.ranks.size(); ++rank) {
      if (input_.ranks[rank].input.stage != stage) continue;
      const auto& joined = meeting.members;
      if (std::find(joined.begin(), joined.end(), static_cast<int>(rank)) != joined.end()) {
        continue;
      }
      violations.push_back("rank " + std::to_string(rank) + " never joins " +
                           to_string(Action{.kind = kind, .bucket = bucket, .visit = visit}));
    }
  }
  for (const auto& [row, meeting] : shared_rows_) {
    if (meeting.joined == group_sizes_[static_cast<std::size_t>(row.group)]) continue;
    violations.push_back(describe(meeting.point) + " is not run by all that share its layers");
  }
  for (const auto& [key, meeting] : embeddings_) {
    if (meeting.first && meeting.last) continue;
    violations.push_back(describe(meeting.point) + " is not joined by the " +
                         (meeting.first ? "last" : "first") + " stage");
  }
  for (const Message& message : messages_) {
    if (message.point == none) continue;
    if (!message.sent || !message.received) {
      violations.push_back(describe(message.point) +
                           (message.sent ? " is never received" : " is never sent"));
    } else if (message.sent_as != message.received_as) {
      violations.push_back(describe(message.point) + " is received as number " +
                           std::to_string(message.received_as) + ", but sent as number " +
                           std::to_string(message.sent_as));
    }
  }
}

void Play::measure(Simulation& result) const {
  const std::size_t ranks = input_.ranks.size();
  result.queues.resize(ranks);
  std::vector<double> free_at(ranks, 0.0);  // when the compute queue's last point ended
  for (std::size_t i = 0; i < points_.size(); ++i) {
    const Point& point = points_[i];
    const int index = static_cast<int>(i);
    result.seconds = std::max(result.seconds, graph_.finish(index));
    if (!point.computes) continue;
    const auto rank = static_cast<std::size_t>(point.rank);
    QueueTimes& times = result.queues[rank];
    times.busy += graph_.cost(index);
    if (input_.keep_times) add_times(index, result.times);
    // What waits for a tied embedding waits for the other end of the pipeline: that is bubble.
    const ActionKind kind = action(point).kind;
    const double waited = graph_.start(index) - std::max(free_at[rank], queued_after(index));
    if (kind == ActionKind::wait_gather) times.waited_gathers += waited;
    if (is_host_copy(kind)) times.waited_copies += waited;
    const Leg leg = action(point).leg;
    if (leg == Leg::work || leg == Leg::home) times.waited_rows += waited;
    if (kind == ActionKind::wait_reduce && !waits_for_embedding(point)) times.waited_sums += waited;
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

bool Play::waits_for_embedding(const Point& point) const {
  const RankRows& rank = input_.ranks[static_cast<std::size_t>(point.rank)];
  const auto stage = static_cast<std::size_t>(rank.input.stage);
  const auto bucket = static_cast<std::size_t>(action(point).bucket);
  return stage < input_.buckets.size() && bucket < input_.buckets[stage].size() &&
         input_.buckets[stage][bucket].embedding;
}

double Play::queued_after(int point) const {
  const auto found = after_batch_.find(point);
  return found == after_batch_.end() ? 0.0 : graph_.finish(found->second);
}

void Play::add_times(int index, std::vector<RowTime>& times) const {
  const Point& point = points_[static_cast<std::size_t>(index)];
  const RankRows& mine = input_.ranks[static_cast<std::size_t>(point.rank)];
  double at = graph_.start(index);
  for (int row = point.row; row < point.row + point.rows; ++row) {
    const Action& action = mine.rows[static_cast<std::size_t>(row)];
    const bool waits = names_bucket(action.kind) || is_host_copy(action.kind);
    const double end = at + (waits ? 0.0 : cost_of(mine, action));
    times.push_back({point.rank, row, at, end});
    at = end;
  }
}

std::string Play::describe(int index) const {
  const Point& point = points_[static_cast<std::size_t>(index)];
  std::string text = "rank " + std::to_string(point.rank) + " " + to_string(action(point));
  if (point.computes) return text;
  const auto rows = input_.ranks[static_cast<std::size_t>(point.rank)].rows;
  for (int row = point.row + 1; row < point.row + point.rows; ++row) {
    text += " + " + to_string(rows[static_cast<std::size_t>(row)]);
  }
  return text;
}

namespace {

void prove_ranks(const SimulationInput& input, Simulation& result) {
  const std::vector<BucketSum> no_buckets;
  const std::vector<ReadBlock> no_gathers;
  std::map<std::pair<int, const Action*>, bool> proven;  // replicas share their rows
  for (std::size_t rank = 0; rank < input.ranks.size(); ++rank) {
    const RankRows& mine = input.ranks[rank];
    const auto stage = static_cast<std::size_t>(mine.input.stage);
    if (!mine.rows.empty() && proven[{mine.input.stage, mine.rows.data()}]) continue;
    const std::size_t before = result.violations.size();
    prove_rows(mine, stage < input.buckets.size() ? input.buckets[stage] : no_buckets,
               stage < input.gathers.size() ? input.gathers[stage] : no_gathers,
               "rank " + std::to_string(rank), result.violations);
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
