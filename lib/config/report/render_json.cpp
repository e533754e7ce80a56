#include "config/report/render_json.h"

#include <nlohmann/json.hpp>

#include "config/report/snippet.h"

namespace trainctl {
namespace {

using Json = nlohmann::ordered_json;

const char* name_of(Place::Origin origin) {
  switch (origin) {
    case Place::Origin::file: return "file";
    case Place::Origin::set_option: return "set";
    case Place::Origin::preset: return "preset";
    case Place::Origin::model_files: return "model";
    case Place::Origin::defaulted: break;
  }
  return "default";
}

Json range_of(const Place& place) {
  if (place.line < 1) return {{"filename", place.file}, {"start", nullptr}, {"end", nullptr}};
  return {{"filename", place.file},
          {"start", {{"line", place.line}, {"column", place.column}}},
          {"end", {{"line", place.line}, {"column", std::max(place.end_column, place.column)}}}};
}

Json document_of(const Diagnostics& diagnostics, const Diagnostic& diagnostic) {
  const Place& place = diagnostic.place;
  Json json = {{"severity", diagnostic.severity == Severity::error ? "error" : "warning"},
               {"code", diagnostic.code},
               {"summary", diagnostic.message},
               {"path", diagnostic.path},
               {"written_as", diagnostics.written(diagnostic.path)},
               {"help", diagnostic.help.empty() ? Json(nullptr) : Json(diagnostic.help)},
               {"origin", name_of(place.origin)},
               {"range", range_of(place)}};
  const Snippet snippet = make_snippet(diagnostics, place);
  json["snippet"] = nullptr;
  if (!snippet.text.empty()) {
    json["snippet"] = {{"code", snippet.text},
                       {"start_line", place.line},
                       {"highlight_start_offset", snippet.highlight},
                       {"highlight_end_offset", snippet.highlight + snippet.length}};
  }
  return json;
}

/// File names need not be UTF-8; JSON must.
std::string text_of(const Json& json, int indent) {
  return json.dump(indent, ' ', false, Json::error_handler_t::replace);
}

}  // namespace

std::vector<std::string> json_rows(const Diagnostics& diagnostics) {
  std::vector<std::string> rows;
  for (const Diagnostic& diagnostic : diagnostics.list()) {
    rows.push_back(text_of(document_of(diagnostics, diagnostic), -1));
  }
  return rows;
}

std::string render_json(const Diagnostics& diagnostics,
                        const std::vector<std::string>& not_checked) {
  Json list = Json::array();
  std::size_t errors = 0;
  for (const Diagnostic& diagnostic : diagnostics.list()) {
    list.push_back(document_of(diagnostics, diagnostic));
    errors += diagnostic.severity == Severity::error ? 1 : 0;
  }
  Json document = {{"format_version", 1},
                   {"valid", errors == 0},
                   {"error_count", errors},
                   {"warning_count", diagnostics.list().size() - errors},
                   {"diagnostics", list}};
  if (!not_checked.empty()) document["not_checked"] = not_checked;
  return text_of(document, 2) + "\n";
}

}  // namespace trainctl
