// Forms of a plan for people and programs: tables, JSON (docs/plan-json.md), one page of HTML, and
// the differences between two plans. All are text made from the plan alone; no file is written. The
// sources in print, json and web have the sections.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "config/report/diagnostics.h"
#include "config/schema/config.h"
#include "plan/plan.h"
#include "plan/search/search.h"

namespace trainctl {

/// The memory models shown together with the plan's own estimate.
using MemoryModels = OneOf<"own|megatron|megatron-0.15|korthikanti|all">;

struct PrintInput {
  const Plan& plan;
  const Config* config = nullptr;  // without it, no memory models and no rates at chosen steps
  std::int64_t rank = -1;          // only this rank's groups, with its refined rows; -1: all ranks
  MemoryModels memory_models = "all";
  std::vector<std::int64_t> lr_at{};     // steps whose learning rates are shown
  std::optional<double> memory_limit{};  // GiB per rank: see formats/print/rows.h
  // Warnings that the JSON forms list; none if null.
  const Diagnostics* diagnostics = nullptr;
  const SearchReport* search = nullptr;  // result of auto_parallel, if it searched
  bool explain_search = false;  // the table also lists the costs of each product in each round
};

/// The result of a search of splits, on one line.
std::string search_line(const SearchReport& report);

/// The entries of optimizer.groups with their rules and parameters; "" without entries.
std::string print_optimizer_groups(const Plan& plan, const OptimizerConfig& optimizer);
/// The rank that updates each matrix, for optimizers that need whole matrices; "" for others.
std::string print_matrices(const Plan& plan);

/// The plan as a table for a terminal. print_table, print_json and print_html throw Error{usage} if
/// the world has no rank `input.rank`.
std::string print_table(const PrintInput& input);
/// A versioned JSON document ("format_version": 2), documented in docs/plan-json.md.
std::string print_json(const PrintInput& input);
/// Texts at the top of a page.
struct PageHead {
  std::string title;
  std::string file;               // name of the configuration file
  std::string command;            // command line as typed
  std::vector<std::string> sets;  // values of --set, such as "train.steps=10"
};
/// The plan as a self-contained page with its styles, drawings and script; needs no network.
std::string print_html(const PrintInput& input, const PageHead& head);

/// Only the groups of one `kind` of plan/tables/mesh.h, or of "hierarchical_cp". Throws
/// Error{usage} for an unknown kind, or for hierarchical_cp without hierarchical sizes.
std::string print_groups_table(const PrintInput& input, const std::string& kind);
std::string print_groups_json(const PrintInput& input, const std::string& kind);

/// The differences from `before` to `after`, section by section. Both inputs need a config.
std::string print_diff_table(const PrintInput& before, const PrintInput& after);
std::string print_diff_json(const PrintInput& before, const PrintInput& after);

// A configuration as a flat list of paths and values, for comparison with another one.

/// The text for an optional key without a value.
inline constexpr std::string_view not_given = "not given";

/// Every key in the order of the schema, such as {"train.steps", "2000"}; the value of a key that
/// is not given is "not given".
std::vector<std::pair<std::string, std::string>> config_values(const Config& config);

}  // namespace trainctl
