#include "run/layouts/search_page.h"

#include <algorithm>
#include <cmath>
#include <set>

#include "base/json_text.h"
#include "base/units.h"
#include "formats/print/text.h"
#include "formats/web/page.h"
#include "formats/web/plan_page.h"
#include "run/layouts/decisions.h"
#include "run/prepare.h"

namespace trainctl {

std::string_view embedded_search_css();
std::string_view embedded_search_js();  // seconds against memory

namespace {

constexpr double page_gibibyte = 1 << 30;

class SearchPage {
 public:
  SearchPage(const SearchedArrangements& searched) : searched_(searched) {}

  std::string facts() const {
    std::string text = "<div class=\"facts\">\n";
    if (!searched_.found.empty()) text += facts_of_best();
    text += fact("Layouts", format_grouped(static_cast<std::int64_t>(searched_.space)),
                 format_grouped(static_cast<std::int64_t>(searched_.plays)) + " drafted, " +
                     format_grouped(static_cast<std::int64_t>(searched_.opened)) + " planned");
    if (searched_.on_device) {
      const DeviceTime& time = *searched_.on_device;
      text += fact("Prices", time.device,
                   time.software + "; " + time.trust + ": expect an error of " +
                       printed("%.0f", 100 * time.expected_error) + " %");
    }
    return text + "</div>\n";
  }

  /// Data of a chart of seconds against memory, which the script draws.
  std::string frontier() const {
    if (searched_.found.empty()) {
      return section("frontier", "Time and memory",
                     searched_.left > 0 ? "The search was stopped before a layout that fits was "
                                          "found."
                                        : "In words: " + empty_text(searched_) + ".",
                     "");
    }
    std::string rows;
    for (const FoundArrangement& one : searched_.frontier) {
      rows += "<tr>" + cell(text_of(one), "line") + cell(format_seconds(one.seconds), "n") +
              cell(format_bytes(one.bytes), "n") + "</tr>\n";
    }
    return section(
        "frontier", "Time and memory",
        "Every layout that was planned. The line joins those that no other beats in "
        "seconds and bytes; the limit is " +
            printed("%.4g", searched_.memory_limit) +
            " GiB. Not searched: " + unsearched_text(searched_.world) + ".",
        "<div id=\"scatter\"></div>\n" + points() +
            scroll_region("Layouts of the frontier",
                          "<table>" + head_row({"layout", "#step", "#memory of a rank"}) +
                              "<tbody>\n" + rows + "</tbody></table>\n"));
  }

  std::string maps() const {
    std::string text;
    for (const ArrangementMap& one : maps_of(searched_)) text += map(one);
    return section("maps", "Where the time is least",
                   "The least seconds of a step over all else. Darker is faster. With ≥ a bound of "
                   "layouts that were not planned; a word is the reason why all were refused.",
                   "<div class=\"columns\">\n" + text + "</div>\n");
  }

  /// Bars with the kinds of seconds of the best layout and of those compared with it.
  std::string ledgers() const {
    double longest = 0;
    std::set<std::string_view> used;
    for (const FoundArrangement& one : compared()) {
      longest = std::max(longest, one.seconds);
      for (const LedgerEntry& entry : ledger_entries) {
        if (*one.ledger.*entry.seconds > 1e-4 * one.seconds) used.insert(entry.key);
      }
    }
    if (longest == 0) return "";
    std::string bars;
    for (const FoundArrangement& one : compared()) bars += ledger_bar(one, longest);
    std::string legend = "<ul class=\"legend\">";
    for (std::size_t i = 0; i < ledger_entries.size(); ++i) {
      if (!used.contains(ledger_entries[i].key)) continue;
      legend += "<li><i class=\"c" + std::to_string(i) + "\"></i>" +
                std::string(ledger_entries[i].text) + "</li>";
    }
    return section("ledgers", "What the seconds go to",
                   "The best and the layouts compared with it: the mean over the stages.",
                   legend + "</ul>\n" + bars);
  }

  std::string decisions() const {
    const std::vector<Decision> all = decisions_of(searched_);
    if (all.empty()) return "";
    std::string rows;
    for (const Decision& one : all) {
      rows += "<tr>" + cell(one.key) + cell(one.taken, "n") + cell(one.otherwise, "n") +
              cell((one.layout.planned ? "" : "at least ") + more(one.layout.seconds), "n") +
              cell(layout_text(one.layout.layout, searched_.world), "line") + "</tr>\n";
    }
    return section(
        "decisions", "What each decision is worth",
        "The fastest layout that decides otherwise, and what it takes more than the best.",
        scroll_region("Decisions",
                      "<table>" + head_row({"key", "#best", "#otherwise", "#takes", "layout"}) +
                          "<tbody>\n" + rows + "</tbody></table>\n"));
  }

  std::string tornado() const {
    const std::vector<Sensitivity> all = sensitivities_of(searched_);
    if (all.empty()) return "";
    double most = 0;
    for (const Sensitivity& one : all) {
      most = std::max({most, std::abs(change(one.best.less)), std::abs(change(one.best.more))});
    }
    std::string rows;
    for (const Sensitivity& one : all) rows += tornado_row(one, most);
    return section(
        "sensitivity", "What the figures of the cluster mean",
        "Seconds of the best where one figure is 20 % less or more, and the value at "
        "which another of the layouts above becomes the fastest.",
        "<ul class=\"legend\"><li><i class=\"c1\"></i>slower</li><li><i class=\"c0\"></i>"
        "faster</li></ul>\n" +
            scroll_region("Sensitivity", "<table class=\"wide\">" +
                                             head_row({"figure", "#value", "#20 % less", "",
                                                       "#20 % more", "another is faster"}) +
                                             "<tbody>\n" + rows + "</tbody></table>\n"));
  }

  std::string refused() const {
    if (searched_.refused.empty()) return "";
    std::string rows;
    for (const auto& [code, one] : searched_.refused) {
      rows += "<tr>" + cell(code, "mono") + cell(format_grouped(one.count), "n") +
              cell(layout_text(one.nearest.layout, searched_.world), "line") + cell(one.message) +
              "</tr>\n";
    }
    return section(
        "refused", "What was refused", "For each reason the layout that came closest.",
        scroll_region("Refused layouts",
                      "<table>" + head_row({"reason", "#layouts", "came closest", "message"}) +
                          "<tbody>\n" + rows + "</tbody></table>\n"));
  }

 private:
  static std::string section(const std::string& id, const std::string& title,
                             const std::string& note, const std::string& html) {
    return "<section id=\"" + id + "\">\n<h2>" + title + "</h2>\n<p>" + escaped(note) + "</p>\n" +
           html + "</section>\n";
  }

  std::string text_of(const FoundArrangement& one) const {
    return layout_text(one.layout, one.repeats, searched_.world);
  }

  std::vector<FoundArrangement> compared() const {
    std::vector<FoundArrangement> all;
    for (const FoundArrangement& one : searched_.found) {
      if (one.ledger) all.push_back(one);
    }
    return all;
  }

  double change(double seconds) const { return seconds / searched_.found.front().seconds - 1; }
  std::string more(double seconds) const {
    return more_text(seconds, searched_.found.front().seconds);
  }

  std::string facts_of_best() const {
    const FoundArrangement& best = searched_.found.front();
    const double speed = static_cast<double>(searched_.tokens) / best.seconds;
    return fact("Best", text_of(best), gap_text(searched_)) +
           fact("Step", format_seconds(best.seconds), format_count(speed) + " tokens per second") +
           fact("Memory of a rank", format_bytes(best.bytes),
                "of " + printed("%.4g", searched_.memory_limit) + " GiB");
  }

  static auto is_point(const FoundArrangement& one) {
    return [&one](const FoundArrangement& other) {
      return std::pair(other.bytes, other.seconds) == std::pair(one.bytes, one.seconds);
    };
  }
  /// The planned layouts, and those that the frontier adds for less memory.
  std::vector<FoundArrangement> shown_points() const {
    std::vector<FoundArrangement> shown = searched_.found;
    for (const FoundArrangement& one : searched_.frontier) {
      if (std::ranges::none_of(searched_.found, is_point(one))) shown.push_back(one);
    }
    return shown;
  }

  /// [GiB, seconds, layout, ledger] for each layout, and the indices of those on the frontier.
  std::string points() const {
    JsonText json;
    json.open_object(JsonText::Form::one_line);
    json.member("limit", searched_.memory_limit);
    json.key("points").open_array();
    const std::vector<FoundArrangement> shown = shown_points();
    for (const FoundArrangement& one : shown) {
      json.open_array(JsonText::Form::one_line);
      json.value(static_cast<double>(one.bytes) / page_gibibyte);
      json.value(one.seconds);
      json.value(text_of(one));
      json.value(ledger_words(one));
      json.close();
    }
    json.close();
    json.key("frontier").open_array(JsonText::Form::one_line);
    for (const FoundArrangement& one : searched_.frontier) {
      json.value(
          static_cast<std::int64_t>(std::ranges::find_if(shown, is_point(one)) - shown.begin()));
    }
    json.close();
    json.close();
    return page_data("scatter-data", json.take());
  }

  static std::string ledger_words(const FoundArrangement& one) {
    std::string text;
    if (!one.ledger) return text;
    for (const LedgerEntry& entry : ledger_entries) {
      const double seconds = *one.ledger.*entry.seconds;
      if (seconds < 1e-3 * one.seconds) continue;
      text += (text.empty() ? "" : ", ") + std::string(entry.text) + " " + format_seconds(seconds);
    }
    return text;
  }

  std::string map(const ArrangementMap& map) const {
    double least = 0;
    double most = 0;
    for (const auto& row : map.cells) {
      for (const ArrangementOutcome* one : row) {
        if (one == nullptr || !one->planned) continue;
        least = least == 0 ? one->seconds : std::min(least, one->seconds);
        most = std::max(most, one->seconds);
      }
    }
    std::string text = "<thead><tr><th scope=\"col\">" + escaped(map.row_key) + " \\ " +
                       escaped(map.column_key) + "</th>";
    for (const std::string& column : map.columns) {
      text += "<th scope=\"col\" class=\"n\">" + escaped(column) + "</th>";
    }
    text += "</tr></thead>\n<tbody>\n";
    for (std::size_t i = 0; i < map.rows.size(); ++i) {
      text += "<tr><th scope=\"row\">" + escaped(map.rows[i]) + "</th>";
      for (const ArrangementOutcome* one : map.cells[i]) text += map_cell(one, least, most);
      text += "</tr>\n";
    }
    const std::string name = map.row_key + " by " + map.column_key;
    return "<div><h3>" + escaped(name) + "</h3>\n" +
           scroll_region(name, "<table class=\"map\">" + text + "</tbody></table>\n") + "</div>\n";
  }

  /// A cell with one of five shades, from the fastest to the slowest planned layout.
  static std::string map_cell(const ArrangementOutcome* one, double least, double most) {
    if (one == nullptr) return "<td class=\"n\"></td>";
    if (one->refused()) return "<td class=\"n\"><small>" + escaped(one->code) + "</small></td>";
    if (!one->planned) {
      return "<td class=\"n\"><small>≥ " + format_seconds(one->seconds) + "</small></td>";
    }
    const double place = most > least ? (one->seconds - least) / (most - least) : 0;
    const int step = std::min(4, static_cast<int>(5 * std::sqrt(place)));
    return "<td class=\"n h" + std::to_string(step) + "\">" + format_seconds(one->seconds) +
           "</td>";
  }

  std::string ledger_bar(const FoundArrangement& one, double longest) const {
    std::string parts;
    std::string words;
    for (std::size_t i = 0; i < ledger_entries.size(); ++i) {
      const double share = *one.ledger.*ledger_entries[i].seconds / one.seconds;
      if (share <= 1e-4) continue;
      parts += "<i class=\"c" + std::to_string(i) +
               "\" style=\"flex-grow:" + printed("%.4f", 100 * share) + "\"></i>";
      if (share < 5e-3) continue;
      words += (words.empty() ? "" : ", ") + std::string(ledger_entries[i].text) + " " +
               printed("%.1f", 100 * share) + " %";
    }
    return "<div class=\"held\"><div class=\"of\"><b>" + escaped(text_of(one)) + "</b><span>" +
           format_seconds(one.seconds) + ", " + format_bytes(one.bytes) +
           "</span></div>\n<div class=\"kinds\" role=\"img\" aria-label=\"" + words +
           "\" style=\"width:" + css_percent(one.seconds / longest) + "\">" + parts +
           "</div><small>" + words + "</small></div>\n";
  }

  static std::string tornado_part(double change, double most) {
    const double width = most > 0 ? 50 * std::abs(change) / most : 0;
    const double left = change < 0 ? 50 - width : 50;
    return "<i class=\"" + std::string(change < 0 ? "c0" : "c1") +
           "\" style=\"left:" + printed("%.2f", left) + "%;width:" + printed("%.2f", width) +
           "%\"></i>";
  }

  std::string tornado_row(const Sensitivity& one, double most) const {
    std::string changes;
    const auto add = [&](const std::optional<Sensitivity::Change>& met, const char* where) {
      if (!met) return;
      changes += (changes.empty() ? "" : "; ") + std::string(where) + " " +
                 figure_text(met->value, one.best.unit) + ": " +
                 text_of(searched_.found[met->layout]);
    };
    add(one.below, "below");
    add(one.above, "above");
    return "<tr>" + cell(one.best.figure, "line") +
           cell(figure_text(one.best.value, one.best.unit), "n") + cell(more(one.best.less), "n") +
           "<td><div class=\"tornado\" role=\"img\" aria-label=\"" + escaped(one.best.figure) +
           ": " + more(one.best.less) + " with 20 % less, " + more(one.best.more) +
           " with 20 % more\">" + tornado_part(change(one.best.less), most) +
           tornado_part(change(one.best.more), most) + "</div></td>" +
           cell(more(one.best.more), "n") + cell(changes.empty() ? "none" : changes, "line") +
           "</tr>\n";
  }

  const SearchedArrangements& searched_;
};

/// The best layout's stages and schedule, drawn over the seconds of its step.
std::string timeline_of(const ArrangementSearch& search, const SearchedArrangements& searched) {
  Diagnostics none;
  const Plan plan = prepare(config_of(search, searched.found.front()), search.sources, search.site,
                            Purpose::plan, none);
  const auto machine = machine_of(search.config.cluster, searched.world);
  const StagePricesList prices = device_prices(plan, price_list(plan, *machine));
  return stages_html(plan) + schedule_html(plan, make_timeline(play_step(plan, *machine, prices)));
}

}  // namespace

std::string print_search_page(const ArrangementSearch& search, const SearchedArrangements& searched,
                              const PageHead& head) {
  const SearchPage parts(searched);
  const bool fits = !searched.found.empty();
  PageContent page;
  page.title = head.title;
  page.kind = "search";
  page.header = "<p>Search of layouts of <b>" + escaped(head.file) + "</b> for <b>" +
                grouped_count(searched.world, "rank") + "</b></p>\n" + command_html(head);
  page.body = parts.facts() + parts.frontier() + parts.maps() + parts.ledgers() +
              parts.decisions() + parts.tornado() + parts.refused() +
              (fits ? timeline_of(search, searched) : "");
  page.style = std::string(plan_style()) + below_each_other({embedded_search_css()});
  if (fits) page.script = below_each_other({embedded_search_js()}).append(schedule_script());
  return html_page(page);
}

}  // namespace trainctl
