// A graph of points in time that wait for each other, for simulate(). Queue order, dependences and
// rendezvous are all edges.
#pragma once

#include <cstddef>
#include <vector>

namespace trainctl {

class WaitGraph {
 public:
  static constexpr int none = -1;

  /// Adds a point that takes `cost` seconds after all points that it waits for.
  int add(double cost);
  void raise_cost(int point, double cost);
  /// Lets `point` start after the end of `earlier`; ignored if `earlier` is none.
  void wait(int point, int earlier);

  /// Computes the time of every point; false if some points wait for each other.
  bool play();
  double start(int point) const { return start_[static_cast<std::size_t>(point)]; }
  double cost(int point) const { return cost_[static_cast<std::size_t>(point)]; }
  double finish(int point) const { return start(point) + cost(point); }

  /// After play() failed: a shortest cycle of points, each of which waits for the one before.
  std::vector<int> shortest_cycle() const;

 private:
  void index_edges();
  std::vector<int> stuck_points() const;

  std::vector<double> cost_;
  std::vector<double> start_;
  std::vector<int> waits_;  // number of unsatisfied edges of each point
  std::vector<int> from_;
  std::vector<int> to_;
  std::vector<std::size_t> first_;  // index in targets_ of a point's first target
  std::vector<int> targets_;        // points that wait for a point, grouped by it
};

}  // namespace trainctl
