// The sections of the table, one function each; a section ends with a newline.
#pragma once

#include <string>

#include "formats/print/print.h"
#include "formats/print/timeline.h"

namespace trainctl {

std::string mesh_section(const Plan& plan);
/// A line for each kind of layers; empty unless the file gives kinds.
std::string kinds_section(const Plan& plan);
std::string groups_section(const PrintInput& input);
std::string stages_section(const Plan& plan, const Timeline& timeline);
/// The order of work, drawn where it fits, and the rows of one rank.
std::string schedule_section(const PrintInput& input, const Timeline& timeline);
std::string parameters_section(const PrintInput& input);
/// Who updates what; empty without optimizer.groups.
std::string optimizer_section(const PrintInput& input);
std::string memory_section(const PrintInput& input);
/// Empty where nothing was searched.
std::string search_section(const PrintInput& input);
/// Costs and savings of each form of recomputation; needs a config.
std::string recompute_section(const PrintInput& input);
std::string communication_section(const PrintInput& input);
std::string work_section(const Plan& plan);
/// `config`, if it is known: with a device, what the time goes to is told.
std::string time_section(const Plan& plan, const Config* config);
/// The batches of a ramp; empty without one.
std::string ramp_section(const Plan& plan);
std::string rates_section(const std::string& title, const std::vector<RatePoint>& points);

}  // namespace trainctl
