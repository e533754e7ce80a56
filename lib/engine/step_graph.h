// The work of a step on a device, row by row or as one graph (parallel.cuda_graphs).
#pragma once

#include <functional>

#include "comm/host/activity.h"
#include "comm/traffic.h"
#include "device/work_graph.h"
#include "engine/trace.h"

namespace trainctl {

class StepGraph {
 public:
  struct Parts {
    Stream& compute;
    Traffic& traffic;
    Trace* trace = nullptr;         // may be null
    Activity* activity = nullptr;   // may be null
    std::function<void()> enqueue;  // the step, row by row; the same each time
    std::function<void()> settle;   // waits for the compute stream
  };
  /// Enqueues one step. The first two are not graphs: they load, connect and allocate what steps
  /// need, also once more after products were timed. The third is captured. That and all later ones
  /// are launches, which count the same traffic and have the same records in the trace. Between two
  /// steps the host waits for the compute stream.
  void run(const Parts& parts);

 private:
  void capture(const Parts& parts);

  int plain_ = 0;  // steps that were not graphs
  WorkGraph graph_;
  Traffic::Counts before_, after_;  // the capture
};

}  // namespace trainctl
