// Parts of the plan's page that other pages or tests use.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "formats/print/print.h"
#include "formats/print/timeline.h"
#include "formats/web/page.h"

namespace trainctl {

/// The style of the page, and the script that draws the result of schedule_html.
std::string plan_style();
std::string schedule_script();

/// The command line and the values that it sets.
std::string command_html(const PageHead& head);
/// A short fact at the top of a page: a name, a value and a detail.
std::string fact(const std::string& name, const std::string& value, const std::string& more);

/// Complete sections of the page.
std::string stages_html(const Plan& plan);
std::string schedule_html(const Plan& plan, const Timeline& timeline);
std::string memory_html(const PrintInput& input);
std::string communication_html(const Plan& plan);

/// A table cell "<td>text</td>" with escaped text, and a class if `css` is not empty.
std::string cell(const std::string& text, std::string_view css = "");
/// A row of <th scope="col">. A leading "#" in a text gives the cell the class "n".
std::string head_row(const std::vector<std::string>& columns);
/// A percentage for CSS, with at most three decimals.
std::string css_percent(double share);

}  // namespace trainctl
