// A plan in forms for people and programs: tables, JSON (docs/plan-json.md), one page of HTML, and
// the differences between two plans. Everything is text made from the plan alone; no file is
// written. The sources of this room, json and web have the sections.
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

/// Which memory models are shown next to the plan's own estimate.
enum class MemoryModels : std::uint8_t { own, megatron, megatron_0_15, korthikanti, all };

struct PrintInput {
  const Plan& plan;
  const Config* config = nullptr;  // without one: no memory models and rates on demand
  std::int64_t rank = -1;          // only this rank's groups, and its refined rows; -1: all
  MemoryModels memory_models = MemoryModels::all;
  std::vector<std::int64_t> lr_at{};     // steps whose learning rate is shown
  std::optional<double> memory_limit{};  // GiB of a rank: see formats/print/rows.h
  // Warnings that the JSON forms list. Without this they list none.
  const Diagnostics* diagnostics = nullptr;
  const SearchReport* search = nullptr;  // result of auto_parallel, where it searched
  bool explain_search = false;  // the table also has the costs of each product in each round
};

/// The result of a search, on one line.
std::string search_line(const SearchReport& report);

/// The entries of optimizer.groups with their rules and parameters; empty without entries.
std::string print_optimizer_groups(const Plan& plan, const OptimizerConfig& optimizer);
/// Which rank works on which matrix in an update that needs matrices whole; empty without.
std::string print_matrices(const Plan& plan);

/// For a terminal. This and the next two throw Error{usage} if the world has no such
/// rank.
std::string print_table(const PrintInput& input);
/// A versioned JSON document ("format_version": 2), documented in docs/plan-json.md.
std::string print_json(const PrintInput& input);
/// Texts at the top of a page.
struct PageHead {
  std::string title;
  std::string file;               // the configuration
  std::string command;            // as typed
  std::vector<std::string> sets;  // "train.steps=10"
};
/// One self-contained page: no network, styles, drawings and script inside.
std::string print_html(const PrintInput& input, const PageHead& head);

/// Only the groups of one kind of plan/tables/mesh.h, or of "hierarchical_cp". Throws
/// Error{usage} for an unknown kind, or if there are no hierarchical sizes.
std::string print_groups_table(const PrintInput& input, const std::string& kind);
std::string print_groups_json(const PrintInput& input, const std::string& kind);

/// The differences from `before` to `after`, section by section. Both need a config.
std::string print_diff_table(const PrintInput& before, const PrintInput& after);
std::string print_diff_json(const PrintInput& before, const PrintInput& after);

// A configuration as a flat list of paths and values, so that two of them can be compared.

/// The value of an optional key that has none.
inline constexpr std::string_view not_given = "not given";

/// Every key in the order of the schema: "train.steps" and "2000"; a key that is not given is
/// "not given".
std::vector<std::pair<std::string, std::string>> config_values(const Config& config);

}  // namespace trainctl
