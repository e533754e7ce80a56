// Points in time that wait for each other: the mechanics of simulate(). Queue order, dependences
// and rendezvous are all edges.
#pragma once

#include <cstddef>
#include <vector>

namespace trainctl {

class WaitGraph {
 public:
  static constexpr int none = -1;

  /// A point that takes `cost` seconds after everything it waits for is done.
  int add(double cost);
  void raise_cost(int point, double cost);
  /// `point` starts when `earlier` is done; ignored if `earlier` is none.
  void wait(int point, int earlier);

  /// Computes the time of every point; false if some wait for each other.
  bool play();
  double start(int point) const { return start_[static_cast<std::size_t>(point)]; }
  double cost(int point) const { return cost_[static_cast<std::size_t>(point)]; }
  double finish(int point) const { return start(point) + cost(point); }

  /// After play() failed: a shortest list of points that wait for each other, each for the previous
  /// one and the first for the last.
  std::vector<int> shortest_cycle() const;

 private:
  void index_edges();
  std::vector<int> stuck_points() const;

  std::vector<double> cost_;
  std::vector<double> start_;
  std::vector<int> waits_;  // number of unsatisfied edges
  std::vector<int> from_;
  std::vector<int> to_;
  std::vector<std::size_t> first_;  // per point, into targets_
  std::vector<int> targets_;        // points that wait for it
};

}  // namespace trainctl
