// Our schedules compared with the orders in which PyTorch runs its own of the same name
// (tests/reference/make_pipelines.py), played by the same rules: F, B and W take one unit of time
// each, messages none.

#include <algorithm>
#include <cstdio>
#include <fstream>
#include <map>
#include <sstream>

#include "catch.h"
#include "pipeline.h"
#include "plan/schedule/wait_graph.h"

using namespace trainctl;

namespace {

struct Work {
  ActionKind kind = ActionKind::forward;
  int microbatch = 0;
  int chunk = 0;
};
using Orders = std::vector<std::vector<Work>>;  // by rank

struct Played {
  double seconds = 0;
  int kept = 0;  // most micro-batches of a chunk, from F to W, on any rank
};

/// One unit of time for each piece of work of one pipeline.
class OrderPlay {
 public:
  OrderPlay(const Orders& orders, ChunkPlaces places) : orders_(orders), places_(places) {
    for (int rank = 0; rank < std::ssize(orders); ++rank) {
      for (const Work& work : orders_of(rank)) points_[key(rank, work)] = graph_.add(1);
    }
    for (int rank = 0; rank < std::ssize(orders); ++rank) {
      int before = WaitGraph::none;
      for (const Work& work : orders_of(rank)) {
        const int point = points_.at(key(rank, work));
        graph_.wait(point, before);
        graph_.wait(point, needed(rank, work));
        before = point;
      }
    }
  }

  Played play() {
    REQUIRE(graph_.play());
    Played result;
    for (int rank = 0; rank < std::ssize(orders_); ++rank) {
      int kept = 0;
      for (const Work& work : orders_of(rank)) {
        if (work.kind == ActionKind::forward) result.kept = std::max(result.kept, ++kept);
        if (work.kind == ActionKind::backward_weight) --kept;
        const double finish = graph_.finish(points_.at(key(rank, work)));
        result.seconds = std::max(result.seconds, finish);
      }
      REQUIRE(kept == 0);
    }
    return result;
  }

 private:
  using Key = std::tuple<ActionKind, int, int>;  // micro-batch, place along the pipeline

  const std::vector<Work>& orders_of(int rank) const {
    return orders_[static_cast<std::size_t>(rank)];
  }
  Key key(int rank, const Work& work) const {
    return {work.kind, work.microbatch, places_.place(rank, work.chunk)};
  }
  /// The number of the work that gives a piece of work its input.
  int needed(int rank, const Work& work) const {
    const int place = places_.place(rank, work.chunk);
    const int m = work.microbatch;
    switch (work.kind) {
      case ActionKind::forward: return found({work.kind, m, place - 1});
      case ActionKind::backward_weight: return found({ActionKind::backward_input, m, place});
      default: break;
    }
    if (place + 1 < places_.count()) return found({work.kind, m, place + 1});
    return found({ActionKind::forward, m, place});
  }
  int found(const Key& wanted) const {
    if (std::get<2>(wanted) < 0) return WaitGraph::none;
    return points_.at(wanted);
  }

  const Orders& orders_;
  ChunkPlaces places_;
  WaitGraph graph_;
  std::map<Key, int> points_;
};

Orders our_orders(PipelineScheduler scheduler, const PipelineSizes& sizes) {
  Orders orders;
  for (int stage = 0; stage < sizes.stages; ++stage) {
    ScheduleInput input = stage_input(sizes, stage, traits_of(scheduler).route);
    if (traits_of(scheduler).apart) input.messages.mode = MessageMode::single;
    orders.emplace_back();
    for (const Action& row : make_schedule(scheduler, input)) {
      if (is_pass(row.kind)) orders.back().push_back({row.kind, row.microbatch, row.chunk});
    }
  }
  return orders;
}

/// "F2.1 B0.0 W0.0".
std::vector<Work> parse(const std::string& line) {
  const std::map<char, ActionKind> kinds = {{'F', ActionKind::forward},
                                            {'B', ActionKind::backward_input},
                                            {'W', ActionKind::backward_weight}};
  std::vector<Work> order;
  std::istringstream words(line);
  for (std::string word; words >> word;) {
    const std::size_t point = word.find('.');
    order.push_back({kinds.at(word[0]), std::stoi(word.substr(1, point - 1)),
                     std::stoi(word.substr(point + 1))});
  }
  return order;
}

PipelineScheduler scheduler_of(const std::string& name, int chunks) {
  for (const ScheduleTraits& traits : schedules) {
    if (name == (chunks > 1 ? traits.chunked_name : traits.name)) return traits.value;
  }
  throw std::runtime_error("no schedule " + name);
}

}  // namespace

TEST_CASE("no schedule is slower or keeps more than PyTorch's", "[pipeline]") {
  std::ifstream file(TRAINCTL_SOURCE_DIR "/tests/reference/pipelines/torch.txt");
  REQUIRE(file);
  int played = 0;
  int better = 0;
  std::string line;
  std::getline(file, line);
  std::printf("%s: time and kept micro-batches of a chunk\n", line.c_str());
  std::printf("%-20s %4s %4s %4s %14s %14s\n", "schedule", "pp", "vp", "M", "ours", "PyTorch");
  while (std::getline(file, line)) {
    std::string name;
    PipelineSizes sizes;
    std::istringstream(line) >> name >> sizes.stages >> sizes.chunks >> sizes.microbatches;
    Orders theirs;
    for (int rank = 0; rank < sizes.stages; ++rank) {
      std::getline(file, line);
      theirs.push_back(parse(line));
    }
    const PipelineScheduler scheduler = scheduler_of(name, sizes.chunks);
    const ChunkPlaces places{sizes.stages, sizes.chunks, traits_of(scheduler).route};
    const Played other = OrderPlay(theirs, places).play();
    const Orders ours = our_orders(scheduler, sizes);
    const Played own = OrderPlay(ours, places).play();
    INFO(name << " pp " << sizes.stages << " vp " << sizes.chunks << " M " << sizes.microbatches);
    CHECK(own.seconds <= other.seconds);
    CHECK(own.kept <= other.kept);
    better += own.seconds < other.seconds || own.kept < other.kept ? 1 : 0;
    ++played;
    std::printf("%-20s %4d %4d %4d %8.0f %5d %8.0f %5d\n", name.c_str(), sizes.stages, sizes.chunks,
                sizes.microbatches, own.seconds, own.kept, other.seconds, other.kept);
  }
  std::printf("better in %d of %d\n", better, played);
  CHECK(played == 36);
}
