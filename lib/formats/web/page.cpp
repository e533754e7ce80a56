#include "formats/web/page.h"

namespace trainctl {

namespace {

/// In the head: before anything is drawn, and before anything can fail.
constexpr std::string_view first_script = R"js(
"use strict";
const page = document.documentElement;
const started = performance.now();
window.addEventListener("error", (event) => { page.dataset.error = event.message; });
page.dataset.theme = matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light";
)js";

constexpr std::string_view last_script = R"js(
draw_all();
page.dataset.milliseconds = String(Math.round(performance.now() - started));
page.dataset.ready = "yes";
)js";

void replace_all(std::string& text, std::string_view from, std::string_view to) {
  for (std::size_t at = text.find(from); at != std::string::npos;
       at = text.find(from, at + to.size())) {
    text.replace(at, from.size(), to);
  }
}

}  // namespace

std::string escaped(std::string_view text) {
  std::string safe;
  for (const char letter : text) {
    switch (letter) {
      case '&': safe += "&amp;"; break;
      case '<': safe += "&lt;"; break;
      case '>': safe += "&gt;"; break;
      case '"': safe += "&quot;"; break;
      default: safe += letter;
    }
  }
  return safe;
}

std::string page_data(const std::string& id, std::string json) {
  replace_all(json, "<", "\\u003c");  // nothing in it ends the script
  return "<script type=\"application/json\" id=\"" + id + "\">" + json + "</script>\n";
}

std::string scroll_region(const std::string& label, const std::string& html) {
  return "<div class=\"scroll\" tabindex=\"0\" role=\"region\" aria-label=\"" + escaped(label) +
         "\">\n" + html + "</div>\n";
}

std::string html_page(const PageContent& content) {
  std::string page =
      "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
      "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n<title>" +
      escaped(content.title) + " - " + content.kind + "</title>\n<script>";
  page.append(first_script).append("</script>\n<style>");
  page.append(page_style()).append(content.style).append("</style>\n</head>\n<body>\n<main>\n");
  page += "<header>\n<h1>" + escaped(content.title) +
          "</h1>\n<button id=\"theme\" type=\"button\">Light / dark</button>\n</header>\n" +
          content.header + content.body + "</main>\n<script>";
  page.append(page_script()).append(chart_script()).append(lanes_script());
  page.append(content.script).append(last_script);
  return page + "</script>\n</body>\n</html>\n";
}

}  // namespace trainctl
