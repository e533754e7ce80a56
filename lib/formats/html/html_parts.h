// The parts of the HTML page; each returns a whole <section>.
#pragma once

#include <string>
#include <string_view>

#include "formats/print/print.h"
#include "formats/print/timeline.h"

namespace trainctl {

/// print_html_style.cpp: the contents of <style> and <script>.
std::string_view html_style();
std::string_view html_script();

/// print_html_mesh.cpp: the ranks, coloured by group, and the groups as data for the script.
std::string mesh_html(const PrintInput& input);
/// print_html_schedule.cpp
std::string stages_html(const Plan& plan);
std::string schedule_html(const Plan& plan, const Timeline& timeline);
/// print_html_costs.cpp
std::string memory_html(const PrintInput& input);
std::string communication_html(const Plan& plan);
std::string parameters_html(const PrintInput& input);
std::string rates_html(const PrintInput& input);

/// Pixels: the column of stage names, and the width available to a section.
inline constexpr double label_width = 78;
inline constexpr double page_width = 1126;

/// The text with markup characters escaped.
std::string escaped(std::string_view text);
/// A number for an SVG attribute, two decimals.
std::string svg_number(double value);

struct SvgBox {
  double x = 0;
  double y = 0;
  double width = 0;
  double height = 0;
};
/// <rect ...><title>...</title></rect>; `title` is shown as a tooltip.
std::string svg_rect(const SvgBox& box, const std::string& css_class, const std::string& title);
/// <text> at a point; `anchor` is start, middle or end.
std::string svg_text(double x, double y, const std::string& anchor, const std::string& text,
                     const std::string& css_class = "");

}  // namespace trainctl
