// Parts of the plan's page that other pages use too, or that a test looks at alone.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "formats/print/print.h"
#include "formats/print/timeline.h"
#include "formats/web/page.h"

namespace trainctl {

/// The style of the page, and the script that draws schedule_html.
std::string plan_style();
std::string schedule_script();

/// The command and the values that it sets.
std::string command_html(const PageHead& head);
/// One of the short facts at the top of a page.
std::string fact(const std::string& name, const std::string& value, const std::string& more);

/// Whole sections.
std::string stages_html(const Plan& plan);
std::string schedule_html(const Plan& plan, const Timeline& timeline);
std::string memory_html(const PrintInput& input);
std::string communication_html(const Plan& plan);

/// "<td>text</td>" with the text escaped, and a class if `css` is not empty.
std::string cell(const std::string& text, std::string_view css = "");
/// A row of <th scope="col">; those of class "n" are named with a "#" before the text.
std::string head_row(const std::vector<std::string>& columns);
/// A percentage for a style, at most three decimals.
std::string css_percent(double share);

}  // namespace trainctl
