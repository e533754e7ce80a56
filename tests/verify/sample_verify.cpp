#include "sample_verify.h"

#include <map>
#include <memory>
#include <set>

#include "base/error.h"
#include "catch.h"
#include "plan/prepare/make_plan.h"
#include "thorough.h"
#include "verify/layouts.h"
#include "verify/selection/cover.h"

namespace trainctl {

const Options small_gpt{"model.num_layers=4", "model.hidden_dropout=0.1",
                        "model.num_attention_heads=8"};
const Options small_llama{"model.family=llama",       "model.num_layers=4",
                          "model.num_query_groups=2", "model.qk_layernorm=true",
                          "optimizer.type=sgd",       "model.num_attention_heads=8"};

ReadResult read_sample(const Options& options) {
  return read_config_text(sample_yaml(), "sample.yaml", with({"data.prefetch=1"}, options));
}

Plan plan_of(const Config& config, std::int64_t ranks) {
  Diagnostics diagnostics;
  Plan plan = make_plan(config, {.world_size = ranks, .ranks_per_host = ranks}, {}, diagnostics);
  require(!diagnostics.has_errors(), ExitCode::config, render_text(diagnostics, false));
  return plan;
}

namespace {

/// Made once: tests compare many layouts with the same run.
const Verification& verification_of(const Options& options) {
  static std::map<Options, std::unique_ptr<Verification>> made;
  std::unique_ptr<Verification>& found = made[options];
  if (!found) found = std::make_unique<Verification>(read_sample(options).config, 2);
  return *found;
}

}  // namespace

LayoutVerdict compare_sample(const Options& options, const std::string& layout,
                             const Faults& faults, double deadline) {
  const LayoutChoice choice = parse_layouts(layout, 0).front();
  const Config own = with_layout(read_sample(options).config, choice);
  return verification_of(options).compare({own, plan_of(own, choice.ranks()), deadline}, faults);
}

LayoutVerdict run_sample_freely(const Options& options, const std::string& layout,
                                const Faults& faults, double deadline) {
  const LayoutChoice choice = parse_layouts(layout, 0).front();
  const Config own = with_layout(read_sample(options).config, choice);
  return verification_of(options).run_freely({own, plan_of(own, choice.ranks()), deadline}, faults);
}

std::string told(const LayoutVerdict& verdict) {
  const std::string place =
      verdict.first ? verdict.first->place() + ", rank " + std::to_string(verdict.first->rank)
                    : "largest " + verdict.largest.place();
  return place + " " + std::to_string(verdict.largest.error) + " " + verdict.failure;
}

namespace {

/// The words of a layout, whatever their numbers, if the code is the same for each number: a level
/// of zero, the size of ep, and tp above the key heads have code of their own.
WordRow kinds_of_words(const std::string& layout) {
  WordRow words = parse_layouts(layout, 0).front().said();
  for (std::string& word : words) {
    const std::string kind = word.substr(0, word.find_last_not_of("0123456789") + 1);
    if (kind != "zero" && kind != "ep" && kind != "tp") word = kind;
  }
  return words;
}

}  // namespace

std::vector<std::string> with_each_word(const std::vector<std::string>& layouts) {
  if (thorough()) return layouts;
  if (watched()) return some_of(layouts);
  std::vector<WordRow> rows;
  std::set<std::string> missing;
  for (const std::string& layout : layouts) {
    rows.push_back(kinds_of_words(layout));
    missing.insert(rows.back().begin(), rows.back().end());
  }
  std::vector<std::string> few;
  for (std::size_t most = 1; few.empty() || !missing.empty(); ++most) {
    few.clear();
    for (const std::size_t row : few_with_most_words(rows, most)) {
      few.push_back(layouts[row]);
      for (const std::string& word : rows[row]) missing.erase(word);
    }
  }
  return few;
}

void check_equal(const Options& options, const std::vector<std::string>& layouts) {
  for (const std::string& layout : with_each_word(layouts)) {
    const LayoutVerdict verdict = compare_sample(options, layout);
    INFO(layout << ": " << told(verdict));
    CHECK(verdict.equal);
  }
}

void check_free(const Options& options, const std::vector<std::string>& layouts) {
  for (const std::string& layout : with_each_word(layouts)) {
    const LayoutVerdict verdict = run_sample_freely(options, layout);
    INFO(layout << " free: " << told(verdict));
    CHECK(verdict.equal);
  }
}

Faults of_plan(std::function<void(Plan&)> change) {
  return {.plan = [change](int, Plan& plan) { change(plan); }};
}

Faults of_order(std::function<void(BatchLoader::Order&)> change) {
  return {.order = [change](int, BatchLoader::Order& order) { change(order); }};
}

namespace {

/// The verdict of a row without its mistake, made once for all rows of this layout.
const LayoutVerdict& without_fault(const FaultRow& row, decltype(compare_sample)& compare) {
  using Layout = std::pair<Options, std::string>;
  static std::map<decltype(&compare_sample), std::map<Layout, LayoutVerdict>> made;
  std::map<Layout, LayoutVerdict>& known = made[&compare];
  const Layout layout(row.options, row.layout);
  const auto found = known.find(layout);
  if (found != known.end()) return found->second;
  return known.emplace(layout, compare(row.options, row.layout, {}, 20)).first->second;
}

}  // namespace

void check_fault(const FaultRow& row, decltype(compare_sample)& compare) {
  const LayoutVerdict& right = without_fault(row, compare);
  const LayoutVerdict wrong = compare(row.options, row.layout, row.faults, 20);
  INFO(row.name << ": " << told(wrong) << "; without: " << told(right));
  CHECK(right.equal);
  CHECK_FALSE(wrong.equal);
  REQUIRE(wrong.first.has_value());
  if (!row.what.empty()) CHECK(wrong.first->what == row.what);
  CHECK(wrong.first->tensor.find(row.tensor) != std::string::npos);
  if (row.rank >= 0) CHECK(wrong.first->rank == row.rank);
  CHECK(wrong.first->step == row.step);
  CHECK(wrong.first->error > wrong.first->bound);
}

void check_faults(const std::vector<FaultRow>& rows, decltype(compare_sample)& compare) {
  for (const FaultRow& row : some_of(rows)) check_fault(row, compare);
}

}  // namespace trainctl
