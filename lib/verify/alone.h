// The reference run for the comparison of layouts: a single rank, recorded step by step.
#pragma once

#include <cstdint>
#include <functional>

#include "config/schema/config.h"
#include "engine/engine.h"
#include "plan/plan.h"
#include "verify/own/router.h"
#include "verify/record.h"

namespace trainctl {

/// The configuration of the same training on one rank, without options that only save memory. The
/// size of micro-batches determines their number.
Config alone(Config config);
/// The plan of `config` on one rank. Throws Error{config} if one rank cannot run it.
Plan plan_alone(const Config& config);

/// A function that changes the output of a unit's forward in place, before the next unit reads it.
using Change = std::function<void(int unit, const Tensor& stream)>;
/// The outputs that rounded_otherwise() moves, each value up or down by about one unit in its last
/// place, with signs that depend on `run`. In 16 bits the embedding suffices, because later units
/// round its change again. In fp32 they hardly do, so all units are moved.
Change rounded_otherwise(std::uint64_t seed, std::uint64_t run, bool every_unit);
/// In 16 bits, the number of runs with rounded_otherwise() that measure the effect of rounding.
inline constexpr std::uint64_t other_roundings = 2;
/// `config` with all computation in fp32.
Config in_fp32(Config config);

/// The input of a verified run's engine. All arguments must outlive it.
EngineInput engine_input(const Config& config, const Plan& plan, double deadline_seconds);

/// One value per token of a step in the order of the data: 1 for a real token, 0 for padding.
std::vector<char> real_tokens_of(const std::vector<Batch>& batches);
/// The routers' formulas for a step of this number of tokens; `plan` is that of a single rank.
own::Router router_of(const MoeConfig& moe, const Plan& plan, std::int64_t tokens);

/// Runs and records `steps` steps of `config` on one rank, which rounds where the messages of the
/// compared layouts round. Throws Error{config} if one rank cannot run it.
Record record_alone(const Config& config, std::int64_t steps, const MessageRounding& rounding);

/// Bytes of the record that record_alone makes.
std::int64_t record_bytes(const Config& config, std::int64_t steps);

}  // namespace trainctl
