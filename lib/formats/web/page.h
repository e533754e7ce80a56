// One self-contained page of HTML: its frame, the styles and scripts that all our pages share, and
// what makes text safe inside it.
#pragma once

#include <initializer_list>
#include <string>
#include <string_view>

namespace trainctl {

struct PageContent {
  std::string title;   // plain text: the heading, and with `kind` the name of the tab
  std::string kind;    // "plan"
  std::string header;  // HTML below the heading
  std::string body;    // HTML
  std::string style;   // CSS of this page alone
  std::string script;  // runs after the shared one, with all of the body there
};

/// No network: styles, data and scripts are inside. The page follows the system's light or dark
/// theme until its button is pressed. Its root element says in data-error what failed, in
/// data-ready that the script came to its end, and in data-milliseconds how long that took.
std::string html_page(const PageContent& content);

/// The text with markup characters escaped.
std::string escaped(std::string_view text);
/// JSON as data for the script, which reads it with data_of(id).
std::string page_data(const std::string& id, std::string json);
/// A region that scrolls sideways where its content is wider than the page, also by keyboard.
std::string scroll_region(const std::string& label, const std::string& html);
/// Each text after a new line: how styles and scripts of files become one.
std::string below_each_other(std::initializer_list<std::string_view> texts);

}  // namespace trainctl
