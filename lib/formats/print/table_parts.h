// The sections of the table of a plan, a function for each; a section ends with a newline.
#pragma once

#include <string>

#include "formats/print/print.h"
#include "formats/print/timeline.h"

namespace trainctl {

std::string mesh_section(const Plan& plan);
/// A line for each kind of layers; empty if the configuration defines no kinds.
std::string kinds_section(const Plan& plan);
std::string groups_section(const PrintInput& input);
std::string stages_section(const Plan& plan, const Timeline& timeline);
/// The order of work, drawn if there is space, and the rows of one rank.
std::string schedule_section(const PrintInput& input, const Timeline& timeline);
std::string parameters_section(const PrintInput& input);
/// The optimizer of each parameter; empty without optimizer.groups.
std::string optimizer_section(const PrintInput& input);
std::string memory_section(const PrintInput& input);
/// Empty if no layout was searched.
std::string search_section(const PrintInput& input);
/// Costs and savings of each form of recomputation; needs a config.
std::string recompute_section(const PrintInput& input);
std::string communication_section(const PrintInput& input);
std::string work_section(const Plan& plan);
/// `config` may be null. With a device in it, the section also lists the kinds of time.
std::string time_section(const Plan& plan, const Config* config);
/// The batch sizes of a ramp; empty without a ramp.
std::string ramp_section(const Plan& plan);
std::string rates_section(const std::string& title, const std::vector<RatePoint>& points);

}  // namespace trainctl
