// `trainctl bench`: the speed of a step and its ops, relative to the peak rates of this machine
// measured in the same run.
#pragma once

#include <cstdint>
#include <filesystem>
#include <iosfwd>
#include <string>
#include <vector>

#include "base/kinds.h"

namespace trainctl {

struct BenchRequest {
  std::string config;
  std::vector<std::string> set_options;
  int pairs = 7;            // pairs of a step and a replay of its matrix products
  bool json = false;        // one JSON object on one line instead of a table
  std::string json_file{};  // file that also gets the object; none if empty
  std::string only{};       // regular expression for the names of cases of bench ops
};

/// On the config's device, alternates training steps on random tokens with replays of the step's
/// own list of matrix products; prints tokens/s, the median ratio and its spread, and the rate of
/// each product. Throws Error{config} with the diagnostics if the config is wrong.
void bench_step(const BenchRequest& request, std::ostream& out);

/// The time of each operation, copy and memset of a step while it runs, row by row: calls, bytes,
/// FLOP, the share of the step, and the share of the time that a copy of the same bytes or a
/// product of the same FLOP takes on this machine; the last row has the time between operations.
/// `pairs` is the number of steps timed in this way, alternating with plain steps. Throws as
/// bench_step.
void bench_by_op(const BenchRequest& request, std::ostream& out);

/// Alternates steps of the config with steps of the config changed by `changes` (PATH=VALUE each):
/// time and memory of both, the median ratio of their times and its spread. Throws as bench_step.
void bench_against(const BenchRequest& request, const std::vector<std::string>& changes,
                   std::ostream& out);

/// For each entry of the table of kernels, on one micro-batch of the config, and for matrix
/// products of several sizes: time, bytes and FLOP per second and the fraction of the machine's
/// ceiling (matrix rate or memory bandwidth, whichever bounds it). On the config's device.
void bench_ops(const BenchRequest& request, std::ostream& out);

/// Alternates a layer of experts on one micro-batch of the config with its own matrix products and
/// with those of a plain MLP that has the same number of parameters for each token: times, and the
/// ratio to the MLP next to its limit. `pairs` is the number of rounds. Throws Error{config} if the
/// model has no experts.
void bench_experts(const BenchRequest& request, std::ostream& out);

/// On an emulated wire, over threads: how much of the gradient sums the backward pass hides (two
/// replicas), how much of the collectives in layers tp_comm_overlap hides behind products (two
/// tensor-parallel ranks), how much of the keys and values a ring hides behind attention (two
/// context-parallel ranks), how much of the exchange of experts' rows is hidden, how close the
/// bubble of two stages is to the simulation, and the simulated bubble of more stages at the
/// measured times. Each ratio is printed next to its limit. `pairs` is the number of rounds.
/// `part`: only "gradients" (with the bubbles, on the same wire), "layers", "keys", "experts" or
/// "passes", or "all".
void bench_overlap(const BenchRequest& request, const std::string& part, std::ostream& out);

struct CommBench {
  DeviceKind device = DeviceKind::cpu;
  int local_ranks = 0;  // threads of this process as ranks; if 0, the ranks of mpirun
  std::int64_t min_bytes = 1 << 10, max_bytes = 64 << 20;
  std::int64_t factor = 4;  // ratio of one size to the one before, at least 2
  int iterations = 20;      // calls in a measurement
  double deadline_seconds = 60;
  bool share_devices = false;  // ranks that are processes may share CUDA devices over NCCL
  bool json = false;
};

/// Time and bandwidth of every collective and of messages around the ring of all ranks, at least
/// two, and whether the results are right. On CUDA devices over NCCL. Rank 0 prints.
void bench_comm(const CommBench& options, std::ostream& out);

/// Steps of the config on random tokens on this machine, on one rank or on `ranks` threads in the
/// config's own layout. Each kind of row is printed next to its price by the section cluster for
/// the same plan; then the largest differences, and the whole step. `pairs` is the number of steps.
/// Throws Error{usage} where the section has no prices.
void measure_plan(const BenchRequest& request, int ranks, std::ostream& out);

struct DeviceBench {
  std::string like;     // `trainctl devices --known`: source of unmeasured figures
  int local_ranks = 0;  // threads as ranks; if 0, the ranks of mpirun, or one
  double seconds = 60;  // approximate time of all measurements together
  std::string file;     // file for the figures
  std::string command;  // the command as typed, recorded as the source of the figures
};

/// Measures the figures of this machine's device for section cluster (cluster.device): products of
/// many shapes and orientations, attention, copies, the rate of products after minutes; between
/// ranks, inside a host and between hosts, collectives, messages and the slowdown of products by
/// these. Writes a file of the form in docs/planning.md on every host, and prints the errors of its
/// formulas against the measurements, and of the plan of the configuration against a measured step.
/// Throws Error{usage} for an unknown `like`, or hosts with different numbers of ranks.
void bench_device(const BenchRequest& request, const DeviceBench& options, std::ostream& out);

/// Measures checkpoints of training on random tokens on one rank, in a temporary folder in
/// `directory`. First alternates saves with plain writes of equal size, and steps during saves with
/// steps alone. Then loads checkpoints of several layouts into each of these layouts, on `ranks`
/// threads. Prints each ratio next to its limit.
void bench_checkpoint(const BenchRequest& request, const std::filesystem::path& directory,
                      std::int64_t ranks, std::ostream& out);

}  // namespace trainctl
