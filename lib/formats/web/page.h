// A self-contained page of HTML: its frame, the styles and scripts shared by all our pages, and
// functions that make text safe for it.
#pragma once

#include <initializer_list>
#include <string>
#include <string_view>

namespace trainctl {

struct PageContent {
  std::string title;   // plain text of the heading; with `kind` the title of the tab
  std::string kind;    // kind of page, such as "plan"
  std::string header;  // HTML below the heading
  std::string body;    // HTML
  std::string style;   // CSS for this page only
  std::string script;  // runs after the shared script, when the body is complete
};

/// A page that needs no network: styles, data and scripts are inside. It follows the system's light
/// or dark theme until its button is pressed. Attributes of its root element report the script:
/// data-error a failure, data-ready its end, and data-milliseconds its duration.
std::string html_page(const PageContent& content);

/// The text with HTML's markup characters escaped.
std::string escaped(std::string_view text);
/// JSON data for the script, which reads it with data_of(id).
std::string page_data(const std::string& id, std::string json);
/// A region that scrolls sideways if its content is wider than the page, also by keyboard.
std::string scroll_region(const std::string& label, const std::string& html);
/// Joins texts, each after a new line: combines the styles or scripts of several files.
std::string below_each_other(std::initializer_list<std::string_view> texts);

}  // namespace trainctl
