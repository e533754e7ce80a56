// What auto_parallel found, at what cost, and what lost.
#include <algorithm>
#include <cmath>

#include "base/at.h"
#include "base/units.h"
#include "config/schema/words.h"
#include "formats/print/table_parts.h"
#include "formats/print/text.h"
#include "plan/search/words.h"

namespace trainctl {

namespace {

constexpr const char* cut_names[] = {"i", "j", "k", "none"};

std::string name_of(ProductCut cut) { return at(cut_names, cut); }

std::string elements(double cost) { return format_grouped(std::llround(cost)); }

std::string last_name(const std::string& name) { return name.substr(name.rfind('.') + 1); }

const std::optional<double>& cost_of(const CutChoice& choice, ProductCut cut) {
  return at(choice.costs, cut);
}

/// "j 262,144 before i 288,358"; "given" for a fixed product.
std::string choice_text(const CutChoice& choice) {
  const auto& taken = cost_of(choice, choice.taken);
  if (!taken) return "given";
  std::optional<ProductCut> next;
  for (const ProductCut cut : all_cuts) {
    const auto& cost = cost_of(choice, cut);
    if (cut == choice.taken || !cost) continue;
    if (!next || *cost < *cost_of(choice, *next)) next = cut;
  }
  const std::string text = name_of(choice.taken) + " " + elements(*taken);
  return next ? text + " before " + name_of(*next) + " " + elements(*cost_of(choice, *next)) : text;
}

const char* operator_name(SearchOperator which) {
  switch (which) {
    case SearchOperator::attention: return "attention";
    case SearchOperator::feed_forward: return "feed_forward";
    case SearchOperator::head: break;
  }
  return "head";
}

/// A decision about one operator, for neighbouring layers where it is the same.
struct SearchDecision {
  SearchOperator of = SearchOperator::head;
  std::int64_t first = 0, last = 0;
  std::string what;     // the word and the parts
  std::string costs{};  // of the first layer, in the last round
};

void add(std::vector<SearchDecision>& decisions, const SearchDecision& one) {
  const auto same = std::find_if(decisions.rbegin(), decisions.rend(),
                                 [&](const SearchDecision& other) { return other.of == one.of; });
  if (same != decisions.rend() && same->what == one.what && same->last + 1 == one.first) {
    same->last = one.first;
  } else {
    decisions.push_back(one);
  }
}

std::string word_text(const SearchReport& report, SearchOperator of, std::int64_t layer) {
  const auto& word = report.splits.of(of, layer);
  const std::string text = word ? std::string(word_of(*word)) : "none";
  return report.tensor_parallel == 1 ? "one rank" : text;
}

/// The products of an operator are neighbours in the net.
void add_stage(std::vector<SearchDecision>& decisions, const SearchReport& report,
               const StageSearch& stage) {
  const auto& products = stage.net.products;
  for (std::size_t product = 0; product < products.size();) {
    const SearchProduct& first = products[product];
    SearchDecision one{first.of, first.layer, first.layer,
                       word_text(report, first.of, first.layer) + ":"};
    for (; product < products.size() && products[product].of == first.of &&
           products[product].layer == first.layer;
         ++product) {
      const std::string name = last_name(products[product].name);
      one.what += " " + name + " " + parts_text(at(stage.answer.parts, product));
      if (stage.answer.rounds.empty()) continue;
      one.costs += (one.costs.empty() ? "" : "; ") + name + " " +
                   choice_text(at(stage.answer.rounds.back(), product));
    }
    add(decisions, one);
  }
}

std::vector<SearchDecision> decisions_of(const SearchReport& report) {
  std::vector<SearchDecision> decisions;
  for (const StageSearch& stage : report.stages) add_stage(decisions, report, stage);
  if (!report.stages.empty()) return decisions;
  const auto spread = [&](SearchOperator of, std::int64_t layer) {
    if (!report.splits.of(of, layer)) return;
    const bool given = report.given.of(of, layer).has_value();
    add(decisions, {of, layer, layer, word_text(report, of, layer) + (given ? "; given" : "")});
  };
  for (std::int64_t layer = 0; layer < std::ssize(report.splits.attention); ++layer) {
    spread(SearchOperator::attention, layer);
    spread(SearchOperator::feed_forward, layer);
  }
  spread(SearchOperator::head, 0);
  return decisions;
}

std::string costs_text(const StageSearch& stage) {
  std::string text;
  for (std::size_t round = 0; round < stage.answer.rounds.size(); ++round) {
    text +=
        labelled("stage " + std::to_string(stage.stage),
                 "round " + std::to_string(round + 1) + ", parts x " +
                     std::to_string(at(stage.answer.factors, round)) + "; elements of each cut");
    for (const int node : stage.net.order) {
      if (node == data_node) continue;
      const CutChoice& choice = at(at(stage.answer.rounds, round), node);
      std::string row = padded(at(stage.net.products, node).name, 28);
      for (const ProductCut cut : all_cuts) {
        const auto& cost = cost_of(choice, cut);
        const std::string mark = cut == choice.taken ? "*" : " ";
        row += padded_left(cost ? name_of(cut) + " " + elements(*cost) : name_of(cut) + " -", 26) +
               mark;
      }
      text += labelled("", row);
    }
  }
  return text;
}

/// What a search by seconds rests on, and what each decision is worth.
std::string seconds_text(const SecondsSearch& found, bool explains) {
  std::string text =
      labelled("step", format_seconds(found.seconds) + " on " + found.device + ", " +
                           format_bytes(found.bytes) + " of " + printed("%.4g", found.limit_gib) +
                           " GiB per rank; " +
                           (found.gap > 0 ? "no other layout can be faster by more than " +
                                                printed("%.1f", 100 * found.gap) + " %"
                                          : std::string("no other layout is faster")));
  if (!explains) return text;
  text += labelled("looked at",
                   grouped_count(static_cast<std::int64_t>(found.bounded), "layout") + ", " +
                       format_grouped(static_cast<std::int64_t>(found.drafted)) + " drafted, " +
                       format_grouped(static_cast<std::int64_t>(found.planned)) + " planned");
  for (const OtherDecision& one : found.others) {
    const std::string seconds = (one.at_least ? "at least " : "") + format_seconds(one.seconds) +
                                ", " + printed("%+.1f", 100 * (one.seconds / found.seconds - 1)) +
                                " %";
    text += labelled("otherwise", one.of + " " + one.otherwise + " instead of " + one.taken + ": " +
                                      (one.fits ? seconds : "does not fit"));
  }
  return text;
}

}  // namespace

std::string search_line(const SearchReport& report) {
  const OperatorSplitsConfig splits = splits_config(report.splits);
  std::string text = std::string(word_of(report.mode)) + " over " +
                     grouped_count(report.ranks, "rank") + ": tensor_parallel " +
                     std::to_string(report.tensor_parallel) + ", data_parallel " +
                     std::to_string(report.data_parallel);
  if (report.tensor_parallel == 1) return text;
  const auto word = [](const std::optional<SplitBy>& split) {
    return split ? std::string(word_of(*split)) : "none";
  };
  return text + "; embedding " + word(splits.embedding) + ", attention " +
         splits.attention.value_or("none") + ", feed_forward " +
         splits.feed_forward.value_or("none") + ", head " + word(splits.head);
}

std::string search_section(const PrintInput& input) {
  if (input.search == nullptr) return "";
  const SearchReport& report = *input.search;
  std::string text = "search  " + search_line(report) + "\n";
  for (const SearchDecision& one : decisions_of(report)) {
    const std::string layers = one.first == one.last ? "layer " : "layers ";
    const std::string where =
        one.of == SearchOperator::head ? "" : layers + span_text(one.first, one.last) + " ";
    text += labelled(operator_name(one.of), where + one.what);
    if (!one.costs.empty()) text += labelled("", "the last cut, in elements: " + one.costs);
  }
  for (const std::string& note : report.notes) text += labelled("note", note);
  if (report.by_seconds) text += seconds_text(*report.by_seconds, input.explain_search);
  if (!input.explain_search) return text + "\n";
  for (const StageSearch& stage : report.stages) text += costs_text(stage);
  return text + "\n";
}

}  // namespace trainctl
