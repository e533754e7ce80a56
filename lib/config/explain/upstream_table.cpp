// The mapping table for people and for programs: what becomes of each upstream key.
#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>

#include "config/explain/reference.h"
#include "config/support/standing.h"
#include "config/upstream/upstream.h"

namespace trainctl {
namespace {

using Json = nlohmann::ordered_json;

/// A default as JSON where it is one, else the word.
Json json_of(std::string_view yaml) { return Json::accept(yaml) ? Json::parse(yaml) : Json(yaml); }

void append(std::string& note, const std::string& sentence) {
  note += (note.empty() ? "" : " ") + sentence;
}

/// The note of the row, and what the standing of its place has to add.
std::string note_of(const UpstreamKey& row) {
  std::string note;
  if (row.deprecated()) note = "Deprecated: write " + std::string(row.replacement) + ".";
  if (!row.note.empty()) append(note, std::string(row.note));
  const Standing* standing = find_standing(row.path);
  if (standing == nullptr) return note;
  std::string words(standing->note);
  if (standing->status == Standing::Status::no_effect && note.empty()) {
    words[0] = static_cast<char>(words[0] >= 'a' && words[0] <= 'z' ? words[0] - 32 : words[0]);
    append(note, words + ".");
  }
  if (status_of(row.path) == "partly built") append(note, "Built: " + words + ".");
  return note;
}

}  // namespace

std::string upstream_json(Upstream list) {
  Json rows = Json::array();
  const auto add = [&rows](std::span<const UpstreamKey> keys, bool further) {
    for (const UpstreamKey& row : keys) {
      rows.push_back({{"upstream_key", row.key},
                      {"canonical_path", row.path},
                      {"default", json_of(row.fallback)},
                      {"status", status_of(row.path)},
                      {"note", note_of(row)},
                      {"deprecated", row.deprecated()},
                      {"further", further}});
    }
  };
  add(upstream_keys(list), false);
  add(further_keys(list), true);
  return rows.dump(2) + "\n";
}

std::string upstream_table(Upstream list) {
  constexpr std::string_view heads[] = {"UPSTREAM KEY", "CANONICAL PATH", "DEFAULT", "STATUS"};
  std::size_t widths[] = {heads[0].size(), heads[1].size(), heads[2].size(), heads[3].size()};
  const auto cells = [](const UpstreamKey& row) {
    return std::array{row.key, row.path, row.fallback, status_of(row.path)};
  };
  for (const auto& keys : {upstream_keys(list), further_keys(list)}) {
    for (const UpstreamKey& row : keys) {
      for (std::size_t i = 0; i < 4; ++i) widths[i] = std::max(widths[i], cells(row)[i].size());
    }
  }
  std::string text;
  const auto add = [&](const auto& columns, const std::string& note) {
    std::string line;
    for (std::size_t i = 0; i < 4; ++i) {
      line += std::string(columns[i]) + std::string(widths[i] + 2 - columns[i].size(), ' ');
    }
    line += note;
    line.erase(line.find_last_not_of(' ') + 1);
    text += line + "\n";
  };
  add(heads, "NOTE");
  for (const UpstreamKey& row : upstream_keys(list)) add(cells(row), note_of(row));
  if (!further_keys(list).empty()) text += "\nFurther names\n";
  for (const UpstreamKey& row : further_keys(list)) add(cells(row), note_of(row));
  return text;
}

std::string upstream_markdown() {
  std::string text;
  const auto code = [](std::string_view word) { return "`" + std::string(word) + "`"; };
  const auto open = [&text](const char* title) {
    text +=
        "### " + std::string(title) +
        "\n\n| upstream key | ours | default upstream | status | note |\n|---|---|---|---|---|\n";
  };
  const auto add = [&](std::span<const UpstreamKey> keys) {
    for (const UpstreamKey& row : keys) {
      text += "| " + code(row.key) + " | " + code(row.path) + " | " + code(row.fallback) + " | " +
              std::string(status_of(row.path)) + " | " + note_of(row) + " |\n";
    }
  };
  constexpr std::pair<Upstream, const char*> lists[] = {
      {Upstream::mindspore, "MindSpore (set_auto_parallel_context)"},
      {Upstream::mindformers, "MindFormers (TransformerOpParallelConfig, MoEConfig)"},
      {Upstream::megatron, "Megatron-Core (ModelParallelConfig)"}};
  for (const auto& [list, title] : lists) {
    open(title);
    add(upstream_keys(list));
    text += "\n";
  }
  open("Further names");
  add(further_keys(Upstream::megatron));
  add(further_keys(Upstream::mindformers));
  return text + "\n";
}

}  // namespace trainctl
