#include "verify_output.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <nlohmann/json.hpp>

#include "base/log.h"
#include "formats/print/text.h"
#include "output.h"

namespace trainctl {

namespace {

using Json = nlohmann::ordered_json;

Json json_of(const Departure& departure) {
  const auto value = [](double number) { return std::isfinite(number) ? Json(number) : Json(); };
  return {{"step", departure.step},          {"what", departure.what},
          {"tensor", departure.tensor},      {"rank", departure.rank},
          {"index", departure.index},        {"found", value(departure.found)},
          {"beside", departure.beside},      {"expected", value(departure.expected)},
          {"error", value(departure.error)}, {"bound", departure.bound}};
}

std::string with_between(const std::vector<std::string>& words, const std::string& between) {
  std::string text;
  for (const std::string& word : words) text += (text.empty() ? "" : between) + word;
  return text;
}

/// What layouts that differ have in common.
std::string in_common(const VerifyOutput::Common& common) {
  if (common.words.empty()) return "what differs has no word in common that all else lacks";
  const char* others = common.together ? ", and no others with all of these" : ", and no others";
  return "all with " + with_between(common.words, ", all with ") + others;
}

/// The first few, and how many more.
std::string listed(const std::vector<std::string>& layouts) {
  constexpr std::size_t most = 4;
  std::string text;
  for (std::size_t i = 0; i < std::min(most, layouts.size()); ++i) {
    text += (i > 0 ? ", " : "") + layouts[i];
  }
  if (layouts.size() <= most) return text;
  return text + " and " + std::to_string(layouts.size() - most) + " more";
}

}  // namespace

struct VerifyOutput::JsonRows {
  nlohmann::ordered_json rows = nlohmann::ordered_json::array();
};

VerifyOutput::~VerifyOutput() = default;

VerifyOutput::VerifyOutput(const Options& options, const LayoutSelection& selection)
    : options_(options), selection_(selection), json_(std::make_unique<JsonRows>()) {
  widths_ = {std::max<std::size_t>(options.widest, 6), 9, 62, 7};
  if (!options.json) line({"layout", "error", "largest at", "verdict"}, "seconds");
}

void VerifyOutput::line(const std::vector<std::string>& cells, const std::string& last) {
  std::string text;
  for (std::size_t i = 0; i < cells.size(); ++i) text += padded(cells[i], widths_[i]) + "  ";
  print(text + padded_left(last, 7) + "\n");
}

void VerifyOutput::begin(const Settings& settings) {
  if (options_.json || settings.empty()) return;
  std::string text = "with";
  for (const std::string& setting : settings) text += " --set " + shell_word(setting);
  print(text + ":\n");
}

void VerifyOutput::begin_narrowing(const std::string& layout,
                                   const std::vector<std::string>& words) {
  if (!options_.json)
    print("which of " + with_between(words, ", ") + " makes " + layout + " differ:\n");
}

void VerifyOutput::show(const Row& row, const LayoutVerdict& verdict) {
  if (!row.narrows) (verdict.equal ? equal_ : failed_) += 1;
  if (options_.json) {
    add_json(row, verdict);
    return;
  }
  const Departure& largest = verdict.largest;
  line({row.layout, printed("%.1e", largest.error), largest.error == 0 ? "-" : largest.place(),
        verdict.equal ? "equal" : "DIFFERS"},
       printed("%.2f", verdict.seconds));
  if (verdict.first) print("  first: " + verdict.first->text() + "\n");
  if (!verdict.failure.empty()) print("  ended early: " + verdict.failure + "\n");
}

void VerifyOutput::add_json(const Row& row, const LayoutVerdict& verdict) {
  Json made = {{"layout", row.layout},
               {"ranks", row.ranks},
               {"equal", verdict.equal},
               {"seconds", verdict.seconds},
               {"largest", json_of(verdict.largest)}};
  if (!row.settings.empty()) made["settings"] = row.settings;
  if (row.narrows) made["narrows"] = true;
  if (verdict.first) made["first"] = json_of(*verdict.first);
  if (!verdict.failure.empty()) made["failure"] = verdict.failure;
  json_->rows.push_back(made);
}

void VerifyOutput::finish(std::int64_t left, const std::optional<Common>& common) {
  if (options_.json) {
    finish_json(left, common);
  } else {
    finish_table(left, common);
  }
}

void VerifyOutput::finish_json(std::int64_t left, const std::optional<Common>& common) {
  Json skipped = Json::array();
  for (const auto& [code, layouts] : selection_.skipped) {
    skipped.push_back(
        {{"code", code}, {"message", selection_.rules.at(code)}, {"layouts", layouts}});
  }
  Json document = {{"format_version", 1},    {"steps", options_.steps}, {"equal", all_equal()},
                   {"layouts", json_->rows}, {"skipped", skipped},      {"not_run", left}};
  if (common && common->together && !common->words.empty()) {
    document["common"] = {with_between(common->words, " and ")};
  } else if (common) {
    document["common"] = common->words;
  }
  print(with_newline(document.dump(2)));
}

void VerifyOutput::finish_table(std::int64_t left, const std::optional<Common>& common) {
  const std::string row = options_.pairs ? "pair" : "layout";
  const std::string cut = " with a checkpoint after step " + std::to_string(options_.steps / 2);
  print("\n" + grouped_count(equal_, row) + " equal to a single rank over " +
        grouped_count(options_.steps, "step") + (options_.pairs ? cut : "") +
        (failed_ > 0 ? ", " + std::to_string(failed_) + " not" : "") + "\n");
  if (common) print("first: " + common->first.place() + "; " + in_common(*common) + "\n");
  for (const auto& [code, layouts] : selection_.skipped) {
    print("skipped " + listed(layouts) + ": " + code + ": " + selection_.rules.at(code) + "\n");
  }
  if (left > 0) print("stopped by a signal; not run: " + grouped_count(left, row) + "\n");
}

VerifyStatus::VerifyStatus(bool rows_tell)
    : live_(stderr_is_terminal()),
      plain_(!live_ && !rows_tell),
      shown_(std::chrono::steady_clock::now()) {}

void VerifyStatus::show(const std::string& what) {
  if (live_) std::fprintf(stderr, "\r\x1b[K%s", what.c_str());
  const auto now = std::chrono::steady_clock::now();
  if (!plain_ || now - shown_ < std::chrono::seconds(5)) return;
  shown_ = now;
  log_info(what);
}

void VerifyStatus::clear() {
  if (live_) std::fputs("\r\x1b[K", stderr);
}

}  // namespace trainctl
