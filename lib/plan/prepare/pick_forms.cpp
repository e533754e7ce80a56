#include "plan/prepare/pick_forms.h"

#include <algorithm>
#include <set>

#include "base/at.h"
#include "plan/cost/estimate.h"
#include "plan/cost/forms.h"
#include "plan/cost/recompute_cost.h"

namespace trainctl {

namespace {

/// A form that a layer may have.
struct Option {
  BlockForm form;
  FormBytes bytes;
  double seconds = 0;  // of its R
};

/// Whether `one` is at least as good as `other` in everything.
bool beats(const Option& one, const Option& other) {
  return one.bytes.kept <= other.bytes.kept && one.bytes.once <= other.bytes.once &&
         one.seconds <= other.seconds;
}

/// All sets of parts but those that another beats, in the order of their seconds.
std::vector<Option> options_of(const Plan& plan, int stage, int unit, const Config& config,
                               const Rates& rates) {
  std::vector<Option> all;
  for (int parts = 0; parts <= all_parts; ++parts) {
    Option option;
    option.form = form_with(plan, config.recompute, static_cast<std::uint8_t>(parts));
    if (option.form.again != parts) continue;  // keeps what collectives give
    option.bytes = form_bytes(plan, stage, unit, option.form);
    option.seconds = repeat_seconds(repeat_cost(plan, option.form), rates) +
                     repeat_wire_seconds(plan, option.form, rates);
    all.push_back(option);
  }
  std::stable_sort(all.begin(), all.end(),
                   [](const Option& a, const Option& b) { return a.seconds < b.seconds; });
  std::vector<Option> best;
  for (const Option& option : all) {
    const auto worse = [&](const Option& other) { return beats(other, option); };
    if (std::none_of(best.begin(), best.end(), worse)) best.push_back(option);
  }
  return best;
}

/// For each block of the stage the number of micro-batches that it keeps at the moment at which the
/// stage keeps most.
std::vector<std::int64_t> kept_at_peak(const StagePlan& rows, const std::vector<int>& blocks) {
  std::vector<std::int64_t> now(static_cast<std::size_t>(blocks.back()) + 1);
  std::vector<std::int64_t> most = now;
  std::int64_t sum = 0;
  std::int64_t largest = 0;
  for (const Action& row : rows.schedule) {
    const bool forward = row.kind == ActionKind::forward;
    if (!forward && row.kind != ActionKind::backward_input) continue;
    for (const int unit : blocks) {
      if (unit < row.begin || unit >= row.end) continue;
      at(now, unit) += forward ? 1 : -1;
      sum += forward ? 1 : -1;
    }
    if (sum <= largest) continue;
    largest = sum;
    most = now;
  }
  return most;
}

/// A choice for the first blocks of a stage.
struct Choice {
  std::int64_t kept = 0;  // bytes at the peak
  double seconds = 0;     // of one micro-batch
  int before = -1;        // of the blocks before the last one: its place in their list
  int option = 0;         // of the last one
};

/// Choices for one more block, without those that another beats.
std::vector<Choice> extend(const std::vector<Choice>& choices, const std::vector<Option>& options,
                           std::int64_t microbatches) {
  std::vector<Choice> all;
  for (std::size_t before = 0; before < choices.size(); ++before) {
    for (std::size_t option = 0; option < options.size(); ++option) {
      all.push_back({choices[before].kept + options[option].bytes.kept * microbatches,
                     choices[before].seconds + options[option].seconds, static_cast<int>(before),
                     static_cast<int>(option)});
    }
  }
  std::sort(all.begin(), all.end(), [](const Choice& a, const Choice& b) {
    return a.seconds != b.seconds ? a.seconds < b.seconds : a.kept < b.kept;
  });
  std::vector<Choice> best;
  for (const Choice& choice : all) {
    if (best.empty() || choice.kept < best.back().kept) best.push_back(choice);
  }
  return best;
}

/// Forms for all blocks of a stage, and what is known of them before they are laid out.
struct Candidate {
  std::int64_t bytes = 0;  // at least
  double seconds = 0;
  StageForms forms;
};

class StagePick {
 public:
  StagePick(const Plan& plan, int stage, const Config& config, const Rates& rates)
      : plan_(plan),
        stage_(stage),
        config_(config),
        rows_(at(plan.stages, stage)),
        blocks_(first_blocks(rows_.units, plan.model.layers, plan.model.layers)) {
    if (blocks_.empty()) return;
    options_ = options_of(plan, stage, blocks_.front(), config, rates);
    kept_ = kept_at_peak(rows_, blocks_);
  }

  /// In the order of their seconds.
  std::vector<Candidate> candidates() const {
    if (blocks_.empty()) return {Candidate{}};
    std::set<std::int64_t> limits;
    for (const Option& option : options_) limits.insert(option.bytes.once);
    std::vector<Candidate> all;
    for (const std::int64_t once : limits) add_candidates(once, all);
    std::stable_sort(all.begin(), all.end(), [](const Candidate& a, const Candidate& b) {
      return a.seconds != b.seconds ? a.seconds < b.seconds : a.bytes < b.bytes;
    });
    return all;
  }

  /// Bytes of a rank with these forms.
  std::int64_t total(const StageForms& forms, StagePlan& laid) const {
    laid.forms = forms;
    lay_out(plan_, stage_, config_, laid);
    return fixed() + laid.activation_slots.bytes + laid.activation_slots.host_bytes;
  }

  /// Bytes that no form changes, at least.
  std::int64_t fixed() const {
    const ActivationSlots& slots = rows_.activation_slots;
    return rows_.memory.total() - slots.bytes - slots.host_bytes;
  }

 private:
  /// Dynamic programming over the blocks with the options that need no more than `once`.
  void add_candidates(std::int64_t once, std::vector<Candidate>& all) const {
    std::vector<Option> options;
    for (const Option& option : options_) {
      if (option.bytes.once <= once) options.push_back(option);
    }
    std::vector<std::vector<Choice>> lists{{Choice{}}};
    for (const int unit : blocks_) lists.push_back(extend(lists.back(), options, at(kept_, unit)));
    for (const Choice& last : lists.back()) {
      Candidate& candidate = all.emplace_back();
      candidate.seconds = last.seconds;
      std::int64_t largest = 0;
      const Choice* choice = &last;
      for (std::size_t block = blocks_.size(); block-- > 0;) {
        const Option& option = at(options, choice->option);
        BlockForm form = option.form;
        form.on_host = rows_.forms.on_host(blocks_[block]);
        if (form != BlockForm{}) candidate.forms.usual[blocks_[block]] = form;
        largest = std::max(largest, option.bytes.once);
        choice = &at(lists[block], choice->before);
      }
      candidate.bytes = last.kept + largest;
    }
  }

  const Plan& plan_;
  int stage_;
  const Config& config_;
  const StagePlan& rows_;
  std::vector<int> blocks_;
  std::vector<Option> options_;
  std::vector<std::int64_t> kept_;  // by unit
};

std::string mib(std::int64_t bytes) { return std::to_string(bytes >> 20) + " MiB"; }

}  // namespace

void pick_forms(Plan& plan, const Config& config, const SourceMap& sources,
                Diagnostics& diagnostics) {
  const auto rates = given_rates(config.cluster);
  const auto limit = static_cast<std::int64_t>(*config.recompute.memory_limit * (1 << 30));
  for (int stage = 0; stage < plan.map.stages; ++stage) {
    StagePlan& rows = at(plan.stages, stage);
    rows.communication = estimate_communication(plan, stage * plan.mesh.stride(Axis::pp), config);
    rows.memory = estimate_memory(plan, rows, config);
    const StagePick pick(plan, stage, config, *rates);
    std::int64_t least = rows.memory.total();
    bool fits = false;
    StagePlan laid = rows;
    for (const Candidate& candidate : pick.candidates()) {
      const std::int64_t at_least = pick.fixed() + candidate.bytes;
      if (at_least > limit && at_least >= least) continue;
      const std::int64_t total = pick.total(candidate.forms, laid);
      least = std::min(least, total);
      fits = total <= limit;
      if (fits) break;
    }
    if (fits) {
      rows = laid;
      continue;
    }
    diagnostics.add(
        {Severity::error, "recompute-memory", "recompute.memory_limit",
         "stage " + std::to_string(stage) + " needs at least " + mib(least) + " a rank, but " +
             "memory_limit is " + mib(limit) + ": " + mib(pick.fixed()) +
             " whatever is repeated, and at least " + mib(least - pick.fixed()) +
             " of activations; without repeats it is " + mib(rows.memory.total()),
         "raise memory_limit, or use smaller micro-batches, more ranks or a parallel optimizer",
         sources.find("recompute.memory_limit")});
  }
}

}  // namespace trainctl
