// The parts of the JSON document; each writes its own keys into the root object.
#pragma once

#include <optional>
#include <string_view>

#include "formats/json_text.h"
#include "formats/print/print.h"

namespace trainctl {

/// json.cpp: null where there is no value.
void write_optional(JsonText& json, std::string_view key, const std::optional<double>& value);
/// print_json_groups.cpp: "groups", all of them or those of one rank.
void write_groups(JsonText& json, const PrintInput& input, const std::vector<std::string>& kinds);
/// print_json_schedule.cpp: "stages" and "schedule".
void write_stages(JsonText& json, const Plan& plan);
void write_schedule(JsonText& json, const PrintInput& input);
/// print_json_tables.cpp: "parameters", "buckets", "activations", "communication".
void write_parameters(JsonText& json, const PrintInput& input);
void write_buckets(JsonText& json, const Plan& plan);
void write_activations(JsonText& json, const Plan& plan);
void write_communication(JsonText& json, const Plan& plan);
/// "optimizer_groups", where there are some.
void write_optimizer_groups(JsonText& json, const PrintInput& input);
/// "matrices", where some are updated whole.
void write_matrices(JsonText& json, const Plan& plan);
/// json_search.cpp: "search", where something was searched.
void write_search(JsonText& json, const PrintInput& input);
/// print_json_memory.cpp: "memory" and "memory_models".
void write_memory(JsonText& json, const PrintInput& input);
/// "recompute_layers" and "recompute_forms".
void write_recompute_forms(JsonText& json, const PrintInput& input);
/// {step, learning_rate, weight_decay} on one line each.
void write_rates(JsonText& json, const std::vector<RatePoint>& points);

}  // namespace trainctl
