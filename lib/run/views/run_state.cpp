#include "run/views/run_state.h"

#include <algorithm>
#include <fstream>

#include "base/units.h"
#include "run/directory/lease_start.h"

namespace trainctl {

namespace {

constexpr std::size_t recent_lines = 100;
constexpr double least_silence = 30;  // seconds
constexpr double silence_factor = 3;  // over the longest recent time between two lines

std::size_t first_recent(const RunFiles& run) {
  return run.times.size() > recent_lines ? run.times.size() - recent_lines : 0;
}

double longest_gap(const RunFiles& run) {
  double longest = 0;
  for (std::size_t i = first_recent(run) + 1; i < run.times.size(); ++i) {
    longest = std::max(longest, run.times[i] - run.times[i - 1]);
  }
  return longest;
}

/// The text of the last line "DATE TIME error TEXT"; empty if there is none.
std::string last_error(const RunFiles& run) {
  std::ifstream log(run.directory / "rank-0.log");
  std::string found;
  for (std::string line; std::getline(log, line);) {
    constexpr std::string_view level = " error ";
    const std::size_t at = line.find(' ', line.find(' ') + 1);
    if (at != std::string::npos && line.compare(at, level.size(), level) == 0) {
      found = line.substr(at + level.size());
    }
  }
  return found;
}

RunState ended_without_a_word(const RunFiles& run, const std::string& how) {
  const std::string error = last_error(run);
  return {RunState::Kind::ended, "ended after step " + std::to_string(run.last_step()) + ": " +
                                     (error.empty() ? how : error)};
}

}  // namespace

double seconds_per_step(const RunFiles& run) {
  const std::size_t first = first_recent(run);
  if (run.times.size() < first + 2 || run.times[first] <= 0) return 0;
  const auto steps = static_cast<double>(run.at_step.back() - run.at_step[first]);
  return steps > 0 ? std::max(0.0, run.times.back() - run.times[first]) / steps : 0;
}

RunState state_of(const RunFiles& run, double now) {
  using Kind = RunState::Kind;
  if (!run.end.empty()) return {Kind::ended, run.end};
  if (run.steps > 0 && run.last_step() >= run.steps) return {Kind::finished, "finished"};
  const LeaseState lease = lease_state(run.directory);
  if (lease.kind == LeaseState::Kind::gone) {
    return ended_without_a_word(run, "its process " + std::to_string(lease.process) + " is gone");
  }
  if (lease.kind == LeaseState::Kind::free && !run.at_step.empty()) {
    return ended_without_a_word(run, "no process has its directory any more");
  }
  if (run.at_step.empty()) return {Kind::waiting, "no step yet"};
  const double silence = run.times.back() > 0 ? now - run.times.back() : 0;
  if (silence <= std::max(least_silence, silence_factor * longest_gap(run))) {
    return {Kind::running, "running"};
  }
  return {Kind::silent, "no line for " + format_seconds(silence)};
}

}  // namespace trainctl
