#include "config/support/batch_ramp.h"

#include <algorithm>
#include <limits>

#include "base/text.h"

namespace trainctl {

namespace {

struct Ramp {
  std::int64_t start = 0;
  std::int64_t increment = 0;
  std::int64_t samples = 0;
};

Ramp ramp_of(const TrainConfig& train) {
  const IntList& numbers = *train.rampup_batch_size;
  return {numbers[0], numbers[1], numbers[2]};
}

std::string with_value(const char* name, std::int64_t value) {
  return formatted("{} ({})", name, value);
}

/// The quotient rounded up, computed without overflow.
std::int64_t divided_up(std::int64_t value, std::int64_t by) {
  return value / by + (value % by == 0 ? 0 : 1);
}

}  // namespace

std::optional<Problem> problem_of_ramp(const TrainConfig& train) {
  const char* code = "batch-ramp";
  if (!train.rampup_batch_size) return std::nullopt;
  if (train.rampup_batch_size->size() != 3) {
    return Problem{code,
                   formatted("rampup_batch_size needs three numbers, found {}",
                             train.rampup_batch_size->size()),
                   "write [start, increment, samples]"};
  }
  const auto [start, increment, samples] = ramp_of(train);
  const std::int64_t global = train.global_batch_size;
  const std::string full = with_value("global_batch_size", global);
  if (start < 1 || increment < 1) {
    return Problem{
        code,
        formatted("start ({}) and increment ({}) of rampup_batch_size must be at least 1", start,
                  increment),
        "write [start, increment, samples]"};
  }
  if (start > global) {
    return Problem{code, with_value("the start of rampup_batch_size", start) + " is above " + full,
                   formatted("set start to at most {}", global)};
  }
  const std::int64_t rise = global - start;
  const std::string arithmetic = formatted("{} - {} = {}", full, with_value("start", start), rise);
  if (rise % increment != 0) {
    const std::int64_t down = global - rise / increment * increment;
    return Problem{code, arithmetic + " must be divisible by " + with_value("increment", increment),
                   formatted("set start to {}, or global_batch_size to {} or {}", down,
                             start + rise / increment * increment,
                             start + (rise / increment + 1) * increment)};
  }
  if (rise / increment > max_increments) {
    return Problem{code,
                   formatted("{} has {} increments of {}, but at most {} are planned", arithmetic,
                             rise / increment, increment, max_increments),
                   formatted("set increment to {} or more", divided_up(rise, max_increments))};
  }
  return std::nullopt;
}

std::vector<RampPart> batch_ramp(const TrainConfig& train, std::int64_t unit,
                                 std::int64_t steps_done, std::int64_t samples_done) {
  const auto running = [&](std::int64_t batch) {
    return train.decrease_batch_size_if_needed && batch >= unit ? batch / unit * unit : batch;
  };
  const std::int64_t full = running(train.global_batch_size);
  std::vector<RampPart> parts{{steps_done, samples_done, train.global_batch_size}};
  const bool ramps = train.rampup_batch_size && !problem_of_ramp(train);
  if (!ramps) {
    parts.front().batch = full;
    return parts;
  }
  const auto [start, increment, samples] = ramp_of(train);
  const std::int64_t levels = (train.global_batch_size - start) / increment;
  RampPart next = parts.front();
  parts.clear();
  for (std::int64_t level = 0; level < levels; ++level) {
    // First sample of the next batch size: ceil((level + 1) * samples / levels).
    const std::int64_t end =
        samples / levels * (level + 1) + divided_up(samples % levels * (level + 1), levels);
    if (next.first_sample >= end) continue;
    next.batch = running(start + level * increment);
    const std::int64_t steps = divided_up(end - next.first_sample, next.batch);
    if (parts.empty() || parts.back().batch != next.batch) parts.push_back(next);
    next.first_step += steps;
    next.first_sample += steps * next.batch;
  }
  next.batch = full;
  if (parts.empty() || parts.back().batch != full) parts.push_back(next);
  return parts;
}

const RampPart& part_after(const std::vector<RampPart>& parts, std::int64_t steps) {
  const auto after = std::find_if(parts.begin() + 1, parts.end(),
                                  [&](const RampPart& part) { return part.first_step > steps; });
  return *(after - 1);
}

std::int64_t samples_in(const std::vector<RampPart>& parts, std::int64_t steps) {
  const RampPart& part = part_after(parts, steps);
  constexpr std::int64_t most = std::numeric_limits<std::int64_t>::max();
  const std::int64_t more = steps - part.first_step;
  if (more > (most - part.first_sample) / std::max<std::int64_t>(1, part.batch)) return most;
  return part.first_sample + more * part.batch;
}

std::int64_t steps_with(const std::vector<RampPart>& parts, std::int64_t samples) {
  const auto after = std::find_if(parts.begin() + 1, parts.end(), [&](const RampPart& part) {
    return part.first_sample >= samples;
  });
  const RampPart& part = *(after - 1);
  const std::int64_t batch = std::max<std::int64_t>(1, part.batch);
  return part.first_step +
         divided_up(std::max<std::int64_t>(0, samples - part.first_sample), batch);
}

}  // namespace trainctl
