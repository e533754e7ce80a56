// How fast checkpoints are saved and loaded: against a plain write of the same bytes, against the
// steps that go on meanwhile, and for loads into another layout against loads into the same one.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "bench/bench_setup.h"

namespace trainctl {

/// Saves that training waits for, in turns with plain writes. On one rank.
struct SavingSpeed {
  std::int64_t bytes = 0;
  std::vector<double> save_seconds;
  // Of as many bytes into one file, 4 MiB at a time, then fsync: dd bs=4M conv=fsync.
  std::vector<double> write_seconds;
};

/// A save in background: what it costs the steps that run beside it.
struct SavingDelay {
  int steps = 0;                      // in a window: the save ends within it
  std::vector<double> plain_seconds;  // of a window without a save
  std::vector<double> saving_seconds;
  std::vector<double> copy_seconds;    // one memcpy of the bytes
  std::vector<double> writer_seconds;  // processor time of the threads that write and delete
  int cores = 1;
};

struct SavingResult {
  SavingSpeed speed;
  SavingDelay delay;
  std::int64_t peak_bytes = 0;  // resident, with steps and saves
  std::int64_t planned_bytes = 0;
};

/// Saves below `directory`, which must exist. `setup`: its plan has the memory for saves in
/// background (checkpoint.every).
SavingResult measure_saving(const BenchSetup& setup, const std::filesystem::path& directory,
                            int pairs);

/// Loads into `layout` of checkpoints that each of the layouts wrote, in turns.
struct LoadingSpeed {
  std::string layout;
  std::vector<std::vector<double>> seconds;  // by the layout that saved, then by turn
};

/// The layouts of `ranks` ranks as threads: replicas with and without sharded masters, tensor
/// and pipeline parallel, as far as the model can be divided.
std::vector<LoadingSpeed> measure_loading(const BenchSetup& setup,
                                          const std::filesystem::path& directory,
                                          std::int64_t ranks, int turns);

}  // namespace trainctl
