// Layouts by short names, "tp2sp+pp2+dp2+gpipe", for the command that compares them: parsing, all
// that a world size allows, a cover of their switches by pairs.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "config/config.h"
#include "config/diagnostics.h"

namespace trainctl {

struct LayoutChoice {
  std::int64_t tp = 1;
  std::int64_t pp = 1;
  std::int64_t dp = 1;
  bool sequence_parallel = false;
  // Not given: as the config says.
  std::optional<bool> vocab_emb_dp;
  std::optional<PipelineScheduler> scheduler;
  std::optional<std::int64_t> microbatches;  // of a rank in a step
  bool zero1 = false;  // with a parallel optimizer, whatever the size of a parameter

  std::int64_t ranks() const { return tp * pp * dp; }
  /// What parse_layouts reads back; sizes of 1 are left out, a single rank is "dp1".
  std::string name() const;
};

/// Layouts with commas between; a layout is words with "+" between, in any order: tpN, tpNsp (with
/// sequence parallelism), ppN, dpN, vocab_dp or vocab_tp (parallel.vocab_emb_dp), 1f1b or gpipe, mN
/// (micro-batches of a rank), zero1 (parallel.parallel_optimizer). Where dp is not said it is what
/// `world_size` leaves, or 1 if that is 0. Throws Error{usage} with a suggestion,
/// Error{unavailable} for axes that are not built.
std::vector<LayoutChoice> parse_layouts(const std::string& text, std::int64_t world_size);

/// `config` in this layout, one thread for each rank. Where the number of stages differs from the
/// config's own, what it says of its stages is left out, and layers that the stages do not divide
/// are dealt out as evenly as they go.
Config with_layout(const Config& config, const LayoutChoice& choice);

struct LayoutSelection {
  std::vector<LayoutChoice> layouts;
  std::map<std::string, std::vector<std::string>> skipped;  // code of the rule -> layouts
  std::map<std::string, std::string> rules;                 // code -> the first message of it
};

/// Every legal tp x pp x dp = `world_size`, with and without sequence parallelism. Each pair out of
/// those sizes, vocab_emb_dp, scheduler, number of micro-batches and zero1 occurs in some layout;
/// `exhaustive`: every combination does. Pure.
LayoutSelection select_layouts(const Config& config, const SourceMap& sources,
                               std::int64_t world_size, bool exhaustive);

}  // namespace trainctl
