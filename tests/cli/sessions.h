// Runs that end early and go on: their commands, and what they left.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "runs.h"

using Words = std::vector<std::string>;

/// A train command without --overwrite.
Words command(const std::string& config, const std::string& run, const Words& more);
/// "--set OPTION" for each, after `more`.
Words set(const Words& options, Words more = {});
/// `words` and then `more`.
Words joined(Words words, const Words& more);

/// The names in the run's folder of checkpoints, sorted.
Words checkpoints_of(const std::string& run);
/// The step of the newest complete checkpoint; 0: none. Every complete one must pass
/// `checkpoint verify`.
std::size_t newest_good_checkpoint(const std::string& run);

/// The numbers of the run's lease, in order.
Words lease_of(const std::string& run);
inline bool has_lease(const std::string& run) { return !lease_of(run).empty(); }
/// Whether the process that its last number names still lives.
bool owner_lives(const std::string& run);

bool is_running(const Process& process);
/// Until the run has taken `steps` steps, or has ended.
void wait_while_running(const Process& process, const std::string& run, std::size_t steps);

/// Lines of metrics.jsonl.
std::size_t steps_of(const std::string& run);
/// Waits until there are so many; false after half a minute.
bool wait_for_steps(const std::string& run, std::size_t count);
/// The lines must be of steps 1, 2, ... `steps`.
void check_no_gap(const std::string& run, std::size_t steps);
