// The reference run for comparing layouts: a single rank, recorded step by step.
#pragma once

#include <cstdint>
#include <functional>

#include "config/schema/config.h"
#include "engine/engine.h"
#include "plan/plan.h"
#include "verify/own/router.h"
#include "verify/record.h"

namespace trainctl {

/// The configuration for the same training on one rank, without the options that only save memory.
/// The number of micro-batches follows from their size.
Config alone(Config config);
/// The plan of a configuration for one rank. Throws Error{config} if one rank cannot run it.
Plan plan_alone(const Config& config);

/// A change that a run makes in the output of a unit's forward, before the next unit reads it.
using Change = std::function<void(int unit, const Tensor& stream)>;
/// Rounds outputs otherwise: each value moves by about one unit in its last place, up or down.
/// Another `run` moves it another way. What 16 bits change in the embedding's output is rounded
/// again in each unit after it; what fp32 does is hardly, so there each unit's output can be moved.
Change rounded_otherwise(std::uint64_t seed, std::uint64_t run, bool every_unit);
/// In 16 bits, how many such runs tell how far rounding goes.
inline constexpr std::uint64_t other_roundings = 2;
/// The configuration for the same computation in fp32.
Config in_fp32(Config config);

/// The engine of a verified run; everything this refers to must outlive it.
EngineInput engine_input(const Config& config, const Plan& plan, double deadline_seconds);

/// The real tokens of a step, in the order of the data: 1 for a token, 0 for padding.
std::vector<char> real_tokens_of(const std::vector<Batch>& batches);
/// `plan`: of a single rank.
own::RouterSizes router_sizes(const Plan& plan, std::int64_t tokens);

/// Runs and records `steps` steps of one rank that rounds as the messages of the layouts it is
/// compared with, with everything else as in `config`. Throws Error{config} if one rank cannot run
/// it.
Record record_alone(const Config& config, std::int64_t steps, const MessageRounding& rounding);

/// Bytes of that recording.
std::int64_t record_bytes(const Config& config, std::int64_t steps);

}  // namespace trainctl
