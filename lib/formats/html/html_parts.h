// The parts of the plan's page; each returns a whole <section> unless it says something else.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "formats/page/page.h"
#include "formats/print/print.h"
#include "formats/print/timeline.h"

namespace trainctl {

/// html_style.cpp, html_script.cpp: what this page adds to the shared style and script; the drawing
/// of schedule_html has a script of its own.
std::string_view plan_style();
std::string_view schedule_script();
std::string_view plan_script();

/// html.cpp: the command and the values that it sets.
std::string command_html(const PageHead& head);

/// html_sizes.cpp: one of the short facts; all of them (no section), and the sizes of model, batch
/// and rank.
std::string fact(const std::string& name, const std::string& value, const std::string& more);
std::string facts_html(const PrintInput& input);
std::string sizes_html(const Plan& plan);
/// html_mesh.cpp: the ranks, coloured by group, and the groups as data for the script.
std::string mesh_html(const PrintInput& input);
/// html_schedule.cpp
std::string stages_html(const Plan& plan);
std::string schedule_html(const Plan& plan, const Timeline& timeline);
/// html_memory.cpp
std::string memory_html(const PrintInput& input);
std::string recompute_html(const PrintInput& input);  // "": nothing could be made again
/// html_communication.cpp
std::string communication_html(const Plan& plan);
/// html_tables.cpp
std::string parameters_html(const PrintInput& input);
std::string rates_html(const PrintInput& input);  // "": there are none

/// "<td>text</td>" with the text escaped, and a class if `css` is not empty.
std::string cell(const std::string& text, std::string_view css = "");
/// A row of <th scope="col">; those of class "n" are named with a "#" before the text.
std::string head_row(const std::vector<std::string>& columns);
/// A percentage for a style, at most three decimals.
std::string css_percent(double share);

}  // namespace trainctl
