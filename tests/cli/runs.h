// Training runs of a tiny model, and what they wrote.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "process.h"

/// The words that start `ranks` processes of trainctl under mpirun, as the README does.
std::vector<std::string> mpirun_words(int ranks);

/// `train --config CONFIG --output DIR --overwrite` plus `more`.
std::vector<std::string> train_words(const std::string& config, const std::string& output,
                                     const std::vector<std::string>& more = {});

/// Runs `words` of trainctl over `ranks` MPI processes.
Outcome train_over_mpi(int ranks, const std::vector<std::string>& words);

/// The lines of DIR/metrics.jsonl.
std::vector<nlohmann::json> metrics_of(const std::string& directory);

/// The metrics without times and rates, as text: these must be bit-identical in a repeated run.
std::string repeatable_metrics(const std::string& directory);
