// Fields around the training itself: the machine, messages and files. See fields.h.
#pragma once

#include "config/schema/config.h"
#include "config/schema/field.h"

namespace trainctl {

template <class Visitor>
void fields(Visitor& visit, Is<ClusterConfig> auto& cluster) {
  constexpr const char* measured = "measured by a run";
  visit(cluster.matmul_flops, field("matmul_flops", "FLOP/s of its products in precision.compute")
                                  .above(0)
                                  .unset(measured));
  visit(cluster.memory_bandwidth,
        field("memory_bandwidth", "Bytes it reads and writes per second").above(0).unset(measured));
  visit(cluster.latency,
        field("latency", "Seconds of a message between ranks").from(0).unset(measured));
  visit(cluster.bandwidth,
        field("bandwidth", "Bytes it sends per second").above(0).unset(measured));
}

template <class Visitor>
void fields(Visitor& visit, Is<LogConfig> auto& log) {
  visit(log.level, field("level", "Least important messages that are shown"));
  visit(log.every,
        field("every", "Steps between progress lines when stderr is no terminal").from(1));
  visit(log.color, field("color", "Colours on a terminal"));
  visit(log.barrier_with_timers,
        field("barrier_with_timers", "With hooks.timers: all ranks meet before a phase is timed"));
  visit(log.trace, field("trace", "File for a Chrome/Perfetto trace of all ranks; empty: none"));
  visit(log.trace_steps,
        field("trace_steps", "Steps in the trace: the last ones of the run").from(1).to(1000));
}

template <class Visitor>
void fields(Visitor& visit, Is<OutputConfig> auto& output) {
  visit(output.dir, field("dir", "Folder for metrics, logs, weights and the config used").from(1));
  visit(output.overwrite, field("overwrite", "Replace the files of an earlier run there"));
  visit(output.save_weights, field("save_weights", "Write the final weights"));
}

}  // namespace trainctl
