#include "formats/web/page.h"

namespace trainctl {

// Files of this folder, embedded by lib/embed.cmake. Fill colours (--c0 to --c10 of page.css) are
// those of Okabe and Ito, some lighter, so that they can be told apart with any kind of colour
// vision and dark text is legible on each. Line colours (--s0 to --s7) have the same hues, dark or
// light as the theme needs. Colours always come with words.
std::string_view embedded_page_css();
std::string_view embedded_page_first_js();  // runs before anything that draws or can fail
std::string_view embedded_page_js();        // functions for all drawings
std::string_view embedded_chart_js();       // curves
std::string_view embedded_lanes_js();       // lanes of blocks over time
std::string_view embedded_page_last_js();   // draws everything

namespace {

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

std::string below_each_other(std::initializer_list<std::string_view> texts) {
  std::string all;
  for (const std::string_view text : texts) all.append("\n").append(text);
  return all;
}

std::string page_data(const std::string& id, std::string json) {
  replace_all(json, "<", "\\u003c");  // so that no text in it ends the script
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
  page += below_each_other({embedded_page_first_js()}) + "</script>\n<style>" +
          below_each_other({embedded_page_css()}) + content.style +
          "</style>\n</head>\n<body>\n<main>\n";
  page += "<header>\n<h1>" + escaped(content.title) +
          "</h1>\n<button id=\"theme\" type=\"button\">Light / dark</button>\n</header>\n" +
          content.header + content.body + "</main>\n<script>";
  page += below_each_other({embedded_page_js(), embedded_chart_js(), embedded_lanes_js()}) +
          content.script + below_each_other({embedded_page_last_js()});
  return page + "</script>\n</body>\n</html>\n";
}

}  // namespace trainctl
