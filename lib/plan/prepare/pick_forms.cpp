#include "plan/prepare/pick_forms.h"

#include <algorithm>
#include <deque>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <tuple>
#include <utility>

#include "base/at.h"
#include "base/text.h"
#include "plan/cost/device_prices.h"
#include "plan/cost/estimate.h"
#include "plan/cost/forms.h"
#include "plan/cost/step_time.h"
#include "plan/rules/check.h"

namespace trainctl {

namespace {

/// A possible form of a layer.
struct Option {
  BlockForm form;
  FormBytes bytes;
  double seconds = 0;      // seconds of R and of host copies that do not overlap
  std::int64_t works = 0;  // bytes.once and, with double buffering, the second buffer
};

/// Whether `one` is at least as good as `other` in all respects.
bool beats(const Option& one, const Option& other) {
  return one.bytes.kept <= other.bytes.kept && one.works <= other.works &&
         one.bytes.on_host <= other.bytes.on_host && one.seconds <= other.seconds;
}

/// The plan, stage and prices for comparing forms of a stage's layers.
struct Setting {
  const Plan& plan;
  int stage;
  const Config& config;
  const Rates& rates;
};

/// The passes of one micro-batch through a unit.
PassSeconds passes_of(const Setting& setting, int unit) {
  const auto seconds = row_seconds(setting.plan, setting.rates);
  const SimulationInput input = simulation_input(setting.plan);
  const auto rank = std::ranges::find_if(
      input.ranks, [&](const RankRows& rows) { return rows.input.stage == setting.stage; });
  const auto of = [&](ActionKind kind) {
    return seconds(*rank, {.kind = kind, .begin = unit, .end = unit + 1});
  };
  return {of(ActionKind::forward), of(ActionKind::backward_input), of(ActionKind::backward_weight)};
}

/// Seconds of a layer's host copies that do not overlap with passes of another layer; with one
/// buffer, all of it.
double exposed_copies(const Setting& setting, const Option& option, const PassSeconds& passes) {
  const double copy =
      2 * static_cast<double>(option.bytes.on_host) / setting.rates.memory_bandwidth;
  if (!setting.config.offload.double_buffering) return 2 * copy;
  return std::max(0.0, copy - passes.forward) +
         std::max(0.0, copy - (passes.input + passes.weight));
}

/// All sets of recomputed parts that no other set beats, sorted by seconds. Kept activations are on
/// the device or `on_host`.
std::vector<Option> options_of(const Setting& setting, int unit, bool on_host) {
  const auto& [plan, stage, config, rates] = setting;
  const PassSeconds passes = on_host ? passes_of(setting, unit) : PassSeconds{};
  std::vector<Option> all;
  for (int parts = 0; parts <= all_parts; ++parts) {
    Option option;
    option.form = form_with(plan, config.recompute, static_cast<std::uint8_t>(parts));
    if (option.form.repeated != parts) continue;  // the form keeps results of collectives
    option.form.on_host = on_host;
    option.bytes = form_bytes(plan, stage, unit, option.form);
    option.seconds = price_repeat(plan, stage, unit, option.form, rates).whole();
    if (on_host) option.seconds += exposed_copies(setting, option, passes);
    option.works = option.bytes.once;
    if (config.offload.double_buffering) option.works += option.bytes.on_host;
    all.push_back(option);
  }
  std::ranges::stable_sort(all, {}, &Option::seconds);
  std::vector<Option> best;
  for (const Option& option : all) {
    const auto worse = [&](const Option& other) { return beats(other, option); };
    if (std::none_of(best.begin(), best.end(), worse)) best.push_back(option);
  }
  return best;
}

/// A choice of options for consecutive blocks of a stage.
struct Choice {
  std::int64_t kept = 0;  // bytes that these blocks keep at the peak
  double seconds = 0;     // seconds for one micro-batch
  int before = -1;        // index of the choice for the other blocks
  int option = 0;         // option of the block added last
};
using Choices = std::vector<Choice>;

/// The choices with one more block that no other beats and for which `counts` is true.
Choices extend(const Choices& choices, const std::vector<Option>& options,
               std::int64_t FormBytes::*bytes, std::int64_t microbatches, const auto& counts) {
  Choices all;
  for (std::size_t before = 0; before < choices.size(); ++before) {
    for (std::size_t option = 0; option < options.size(); ++option) {
      const Choice one{choices[before].kept + options[option].bytes.*bytes * microbatches,
                       choices[before].seconds + options[option].seconds, static_cast<int>(before),
                       static_cast<int>(option)};
      if (counts(one)) all.push_back(one);
    }
  }
  std::ranges::sort(all, {}, [](const Choice& one) { return std::pair(one.seconds, one.kept); });
  Choices best;
  for (const Choice& choice : all) {
    if (best.empty() || choice.kept < best.back().kept) best.push_back(choice);
  }
  return best;
}

/// Forms for all blocks of a stage, with estimates before they are laid out.
struct Candidate {
  std::int64_t bytes = 0;  // lower bound on the device
  std::int64_t host = 0;
  double seconds = 0;
  StageForms forms;
  /// The order of preference of candidates, lowest first.
  auto rank() const { return std::tuple(seconds, host, bytes); }
};

/// The options of each block that stands for all blocks of equal cost; empty for the other blocks.
using Options = std::vector<std::vector<Option>>;

/// Options of each block, and the choices among them.
struct ChoiceTable {
  Options options;
  std::vector<Choices> after;  // choices for block n and later ones
};

/// The options of a stage's blocks that need at most `works` bytes during a pass, and the least
/// seconds with which the first blocks keep at most a number of bytes.
class Scope {
 public:
  Scope(Options options, std::int64_t works, const std::vector<std::size_t>& like,
        const std::vector<std::int64_t>& kept)
      : options_(std::move(options)), works_(works), like_(like) {
    std::vector<std::vector<FormPoint>> hulls(like.size());
    before_.emplace_back();
    for (std::size_t block = 0; block < like.size(); ++block) {
      if (like[block] == block) hulls[block] = hull_of_block(block);
      const std::vector<FormPoint>& hull = hulls[like[block]];
      Before all = before_.back();
      all.kept += hull.front().kept * kept[block];
      all.seconds += hull.front().seconds;
      all.savings.add(block, hull, kept[block]);
      before_.push_back(std::move(all));
    }
    hulls_ = std::move(hulls);
  }

  const Options& options() const { return options_; }
  std::int64_t works() const { return works_; }
  std::size_t blocks() const { return like_.size(); }
  /// The least seconds of the first `blocks` blocks that keep at most `bytes`; infinite if
  /// impossible.
  double seconds(std::size_t blocks, std::int64_t bytes) const {
    const Before& all = before_[blocks];
    return all.seconds + all.savings.seconds(all.kept - bytes);
  }

  /// One option for each block.
  struct Rounded {
    std::vector<int> options;
    std::int64_t kept = 0;
    double seconds = 0;
    bool leanest = false;
  };
  /// Takes whole steps, cheapest first, until the blocks keep at most `bytes`.
  Rounded rounded(std::int64_t bytes) const {
    const Before& all = before_.back();
    Rounded made{.options = {}, .kept = all.kept, .seconds = all.seconds};
    std::vector<std::size_t> place(blocks(), 0);
    std::size_t step = 0;
    const auto& steps = all.savings.steps();
    for (; step < steps.size() && made.kept > bytes; ++step) {
      ++place[steps[step].block];
      made.kept -= steps[step].bytes;
      made.seconds += steps[step].seconds;
    }
    made.leanest = step == steps.size();
    for (std::size_t block = 0; block < blocks(); ++block) {
      made.options.push_back(hulls_[like_[block]][place[block]].option);
    }
    return made;
  }

 private:
  /// Sums over the first blocks, in their fastest forms, and the possible savings.
  struct Before {
    std::int64_t kept = 0;
    double seconds = 0;
    FormSavings savings{};
  };

  std::vector<FormPoint> hull_of_block(std::size_t block) const {
    std::vector<FormPoint> points;
    for (const Option& option : options_[block]) {
      points.push_back({option.bytes.kept, option.seconds, static_cast<int>(points.size())});
    }
    return hull_of(points);
  }

  Options options_;
  std::int64_t works_;
  std::vector<std::size_t> like_;
  std::vector<std::vector<FormPoint>> hulls_;  // for blocks that represent equal ones
  std::vector<Before> before_;                 // by number of blocks
};

/// Limits for choices of all blocks of a scope that are worth sizing.
struct Window {
  const Scope& scope;
  std::int64_t kept = 0;  // limit of seconds
  double seconds = 0;     // limit of seconds
  /// Whether a choice for the blocks from `first` on can be completed within the limits.
  bool holds(std::size_t first, const Choice& one) const {
    return one.seconds + scope.seconds(first, kept - one.kept) <= seconds;
  }
};

/// Candidates with equal forms of the first blocks, which are on the host. They are sorted by
/// seconds, and each keeps less on the device than the one before.
struct CandidateList {
  Candidate start;        // forms of the first blocks; bytes: largest need of one
  std::size_t first = 0;  // index of the first other block
  const ChoiceTable* table = nullptr;
  const Choices& choices() const { return at(table->after, first); }
};

class StagePick {
 public:
  explicit StagePick(const Setting& setting)
      : setting_(setting),
        rows_(at(setting.plan.stages, setting.stage)),
        blocks_(blocks_of(rows_.units, setting.plan.model.layers)),
        bytes_(slot_counter(setting.plan, setting.stage, move_config(setting.config))),
        picks_host_(trainctl::picks_host(setting.config.recompute, setting.config.offload)) {
    if (blocks_.empty()) return;
    const std::vector<std::int64_t> kept = kept_at_most(rows_, blocks_);
    for (const int unit : blocks_) {
      kept_.push_back(at(kept, unit));
      const auto first = std::ranges::find_if(
          blocks_, [&](int other) { return cost_alike(setting.plan, other, unit); });
      like_.push_back(static_cast<std::size_t>(first - blocks_.begin()));
    }
    options_ = options_with(false);
    host_options_ = picks_host_ ? options_with(true) : Options(blocks_.size());
  }

  bool has_blocks() const { return !blocks_.empty(); }
  bool picks_host() const { return picks_host_; }

  /// A scope for each limit of the bytes of a layer's pass, with all layers on the device.
  std::vector<Scope> scopes() const {
    std::set<std::int64_t> limits;
    add_values(options_, &Option::works, limits);
    std::vector<Scope> all;
    for (const std::int64_t works : limits) {
      Options some = within(options_, [&](const Option& one) { return one.works <= works; });
      const bool any =
          std::ranges::none_of(like_, [&](std::size_t like) { return some[like].empty(); });
      if (any) all.emplace_back(std::move(some), works, like_, kept_);
    }
    return all;
  }

  /// All candidates in the window; nullopt if there are none.
  std::optional<CandidateList> list(const Window& window) {
    CandidateList list;
    list.table = &tables_.emplace_back();
    ChoiceTable& table = tables_.back();
    table.options = window.scope.options();
    table.after = choices_after(table.options, [&](std::size_t first, const Choice& one) {
      return window.holds(first, one);
    });
    if (list.choices().empty()) return std::nullopt;
    return list;
  }

  /// The candidate with an option of the scope for each block.
  Candidate candidate(const Scope& scope, const Scope::Rounded& chosen) const {
    Candidate candidate{.bytes = 0, .host = 0, .seconds = chosen.seconds, .forms = {}};
    for (std::size_t block = 0; block < blocks_.size(); ++block) {
      take(block, at(of_block(scope.options(), block), at(chosen.options, static_cast<int>(block))),
           candidate);
    }
    candidate.bytes += chosen.kept;
    return candidate;
  }

  /// Lists with some first blocks on the host, for each limit of the bytes during a pass.
  std::vector<CandidateList> host_lists() {
    std::set<std::int64_t> limits;
    add_values(options_, &Option::works, limits);
    add_values(host_options_, &Option::works, limits);
    std::vector<CandidateList> all;
    for (const std::int64_t works : limits) {
      const auto small = [&](const Option& option) { return option.works <= works; };
      add_lists(within(options_, small), within(host_options_, small), all);
    }
    // Recomputed parts of layers on the host may share memory with those of other layers.
    limits.clear();
    add_values(
        host_options_, [](const Option& option) { return option.bytes.on_host; }, limits);
    for (const std::int64_t staged : limits) {
      const auto small = [&](const Option& option) { return option.bytes.on_host <= staged; };
      add_lists(options_, within(host_options_, small), all);
    }
    return all;
  }

  Candidate candidate(const CandidateList& list, std::size_t number) const {
    const Choice* choice = &list.choices()[number];
    Candidate candidate = list.start;
    candidate.seconds += choice->seconds;
    const std::int64_t kept = choice->kept;
    for (std::size_t block = list.first; block < blocks_.size(); ++block) {
      take(block, at(of_block(list.table->options, block), choice->option), candidate);
      choice = &at(at(list.table->after, block + 1), choice->before);
    }
    candidate.bytes += kept;
    return candidate;
  }

  /// The memory that a rank needs with these forms.
  SlotBytes needs(const StageForms& forms) const {
    const SlotBytes slots = bytes_(forms);
    const SlotBytes most = fixed();
    return {most.device + slots.device, most.host + slots.host};
  }

  /// The stage laid out with these forms.
  StagePlan laid_out(const StageForms& forms) const {
    StagePlan laid = rows_;
    laid.forms = forms;
    lay_out(setting_.plan, setting_.stage, move_config(setting_.config), laid);
    return laid;
  }

  /// The part of a rank's memory that does not depend on forms.
  SlotBytes fixed() const {
    const ActivationSlots& slots = rows_.activation_slots;
    const MemoryEstimate& memory = rows_.memory;
    const std::int64_t apart = memory.on_cuda ? 0 : memory.offloaded;
    return {memory.device() - apart - slots.bytes, memory.offloaded - slots.host_bytes};
  }

  /// The bytes that recompute.memory_limit bounds.
  std::int64_t limited(const SlotBytes& needs) const {
    return picks_host_ || rows_.memory.on_cuda ? needs.device : needs.device + needs.host;
  }
  bool fits_host(const SlotBytes& needs) const {
    return !picks_host_ || needs.host <= host_limit();
  }

 private:
  std::int64_t host_limit() const {
    return static_cast<std::int64_t>(*setting_.config.offload.memory_limit * (1 << 30));
  }
  /// How many blocks may be on the host: the first ones, with the most micro-batches in flight.
  std::size_t max_on_host() const {
    const auto layers = setting_.config.offload.num_layers;
    return static_cast<std::size_t>(
        std::ranges::count_if(blocks_, [&](int unit) { return unit <= layers; }));
  }

  Options options_with(bool on_host) const {
    Options all(blocks_.size());
    for (std::size_t block = 0; block < blocks_.size(); ++block) {
      if (like_[block] == block) all[block] = options_of(setting_, blocks_[block], on_host);
    }
    return all;
  }
  const std::vector<Option>& of_block(const Options& options, std::size_t block) const {
    return options[like_[block]];
  }

  static void add_values(const Options& options, const auto& value_of,
                         std::set<std::int64_t>& values) {
    for (const std::vector<Option>& some : options) {
      for (const Option& option : some) values.insert(std::invoke(value_of, option));
    }
  }
  static Options within(const Options& options, const auto& holds) {
    Options some(options.size());
    for (std::size_t block = 0; block < options.size(); ++block) {
      std::ranges::copy_if(options[block], std::back_inserter(some[block]), holds);
    }
    return some;
  }

  /// Dynamic programming over the blocks, last first; counts(n, choice) filters those from n on.
  std::vector<Choices> choices_after(const Options& options, const auto& counts) const {
    std::vector<Choices> after(blocks_.size() + 1);
    after.back() = {Choice{}};
    for (std::size_t n = blocks_.size(); n-- > 0;) {
      after[n] = extend(after[n + 1], of_block(options, n), &FormBytes::kept, kept_[n],
                        [&](const Choice& one) { return counts(n, one); });
    }
    return after;
  }

  /// For every number of first blocks on the host: a list with their fastest forms that fit there,
  /// and all choices for the others.
  void add_lists(Options options, const Options& host_options, std::vector<CandidateList>& all) {
    ChoiceTable& table = tables_.emplace_back();
    const auto any = [](std::size_t, const Choice&) { return true; };
    table.after = choices_after(options, any);
    CandidateList whole;
    table.options = std::move(options);
    whole.table = &table;
    all.push_back(whole);
    std::vector<Choices> before{{Choice{}}};  // choices by number of first blocks
    for (std::size_t n = 0; n < max_on_host(); ++n) {
      before.push_back(extend(before.back(), of_block(host_options, n), &FormBytes::on_host,
                              kept_[n], [](const Choice&) { return true; }));
      const auto fitting = std::ranges::find_if(before.back(), [&](const Choice& one) {
        return one.kept <= host_limit() - fixed().host;
      });
      if (fitting == before.back().end()) return;
      CandidateList list = whole;
      list.first = n + 1;
      list.start.seconds = fitting->seconds;
      list.start.host = fitting->kept;
      const Choice* choice = &*fitting;
      for (std::size_t block = n + 1; block-- > 0;) {
        put(at(of_block(host_options, block), choice->option), blocks_[block], list.start);
        choice = &at(before[block], choice->before);
      }
      all.push_back(std::move(list));
    }
  }

  /// Adds an option of a block, which is on the host if the stage's forms say so.
  void take(std::size_t block, Option option, Candidate& candidate) const {
    option.form.on_host = rows_.forms.on_host(blocks_[block]);
    put(option, blocks_[block], candidate);
    if (option.form == BlockForm{}) candidate.forms.usual.erase(blocks_[block]);
  }
  static void put(const Option& option, int unit, Candidate& candidate) {
    candidate.forms.usual[unit] = option.form;
    // A reloaded activation may use the memory of freed activations of later layers.
    if (!option.form.on_host) candidate.bytes = std::max(candidate.bytes, option.bytes.once);
  }

  Setting setting_;
  const StagePlan& rows_;
  std::vector<int> blocks_;
  std::function<SlotBytes(const StageForms&)> bytes_;
  bool picks_host_;
  std::vector<std::size_t> like_;  // by block: the first block of equal cost
  Options options_, host_options_;
  std::deque<ChoiceTable> tables_;  // tables that lists point to
  std::vector<std::int64_t> kept_;  // by block: micro-batches kept at the fullest moment
};

/// Finds the fastest candidate of a stage that fits. Each candidate of a list needs less than the
/// one before, so only candidates near the first fitting one are sized; their needs predict it.
class FormSearch {
 public:
  FormSearch(StagePick& pick, const StagePlan& rows, std::int64_t limit)
      : pick_(pick), limit_(limit), fixed_(pick.limited(pick.fixed())) {
    const ActivationSlots& slots = rows.activation_slots;
    min_ = fixed_ + pick.limited({slots.bytes, slots.host_bytes});
  }

  void run() {
    if (!pick_.has_blocks()) {
      size(Candidate{}, 0);
      return;
    }
    if (pick_.picks_host()) {
      search_all(pick_.host_lists());
    } else {
      search_all(pick_.scopes());
    }
  }

  bool fits() const { return best_.has_value(); }
  StagePlan take() const { return pick_.laid_out(best_->forms); }
  /// Bytes of the smallest sized candidate; fixed(): the part that no form changes.
  std::int64_t least() const { return min_; }
  std::int64_t fixed() const { return fixed_; }

 private:
  static constexpr double equal = 1 + 1e-9;  // tolerance for sums in another order

  void search_all(std::vector<CandidateList> lists) {
    // Lists with possibly fast candidates come first, so that other lists may be skipped.
    std::ranges::stable_sort(lists, {}, [this](const CandidateList& list) {
      return seconds_of(list, first_within(list, 0, 0));
    });
    for (const CandidateList& list : lists) search(list);
  }

  /// First finds a fitting candidate of each scope, so that only choices near it are computed.
  void search_all(std::vector<Scope> scopes) {
    const auto least = [this](const Scope& scope) {
      return scope.seconds(scope.blocks(), limit_ - fixed_);
    };
    std::ranges::stable_sort(scopes, {}, least);
    for (const Scope& scope : scopes) {
      if ((rounded_ && least(scope) > rounded_->seconds) || !round(scope)) continue;
      // Other candidates of the scope need this in addition to their kept bytes and the bytes of
      // its largest layer.
      const std::int64_t beside = std::max<std::int64_t>(0, more_ - scope.works());
      const auto list = pick_.list({scope, limit_ - fixed_ - beside, rounded_->seconds * equal});
      if (list) search(*list);
    }
    if (!rounded_) return;
    if (!best_ || rounded_->seconds * equal < best_->seconds) best_ = rounded_;
  }

  /// Whether whole steps along the hulls of a scope lead to a fitting candidate; keeps the fastest.
  bool round(const Scope& scope) {
    std::int64_t most = limit_ - fixed_ - more_;
    while (true) {
      const Scope::Rounded chosen = scope.rounded(most);
      const Candidate candidate = pick_.candidate(scope, chosen);
      if (fits(candidate, chosen.kept)) {
        if (!rounded_ || candidate.rank() < rounded_->rank()) rounded_ = candidate;
        return true;
      }
      if (chosen.leanest) return false;
      most = std::min(chosen.kept - 1, limit_ - fixed_ - more_);
    }
  }

  static double seconds_of(const CandidateList& list, std::size_t number) {
    return list.start.seconds + list.choices()[number].seconds;
  }
  /// The first candidate from `low` on that fits if it needs `more` bytes than it keeps; the last
  /// one if none does.
  std::size_t first_within(const CandidateList& list, std::size_t low, std::int64_t more) const {
    const Choices& choices = list.choices();
    const auto found =
        std::partition_point(choices.begin() + static_cast<std::ptrdiff_t>(low), choices.end(),
                             [&](const Choice& one) { return fixed_ + one.kept + more > limit_; });
    const auto number = static_cast<std::size_t>(found - choices.begin());
    return std::min(number, choices.size() - 1);
  }

  /// By block: its unit and the form.
  using FormsKey = std::vector<std::tuple<int, std::uint8_t, bool, bool, bool>>;
  static FormsKey key_of(const StageForms& forms) {
    FormsKey key;
    for (const auto& [unit, form] : forms.usual) {
      key.emplace_back(unit, form.repeated, form.slices_input, form.keeps_gathered, form.on_host);
    }
    return key;
  }

  bool size(const CandidateList& list, std::size_t number) {
    return size(pick_.candidate(list, number), list.choices()[number].kept);
  }
  bool size(const Candidate& candidate, std::int64_t kept) {
    if (!fits(candidate, kept)) return false;
    if (!best_ || candidate.rank() < best_->rank()) best_ = candidate;
    return true;
  }
  /// Sizes a candidate; equal forms from several lists are sized once.
  bool fits(const Candidate& candidate, std::int64_t kept) {
    const auto [known, is_new] = known_.try_emplace(key_of(candidate.forms));
    if (is_new) known->second = pick_.needs(candidate.forms);
    const SlotBytes needs = known->second;
    const std::int64_t bytes = pick_.limited(needs);
    more_ = bytes - fixed_ - kept;
    if (!pick_.fits_host(needs)) return false;
    min_ = std::min(min_, bytes);
    return bytes <= limit_;
  }

  /// Guesses the first fitting candidate from the needs of the last sized one. If a candidate fits,
  /// later ones nearly always fit, with exceptions since rows share memory, so some earlier ones
  /// are tried as well.
  void search(const CandidateList& list) {
    const std::size_t low = first_within(list, 0, 0);
    const std::size_t end = list.choices().size();
    std::size_t number = low;
    while (true) {
      if (is_slower(list, number)) return;
      number = first_within(list, number, more_);
      if (size(list, number)) break;
      if (++number == end) return;
    }
    constexpr int max_failures = 4;
    for (int failures = 0; number > low && failures < max_failures;) {
      failures = size(list, --number) ? 0 : failures + 1;
    }
  }
  bool is_slower(const CandidateList& list, std::size_t number) const {
    return best_ && seconds_of(list, number) > best_->seconds;
  }

  StagePick& pick_;
  std::int64_t limit_, fixed_;
  std::int64_t min_ = 0;
  std::int64_t more_ = 0;  // need of the last sized candidate beyond kept bytes
  std::optional<Candidate> best_;
  std::optional<Candidate> rounded_;     // fitting candidate from round()
  std::map<FormsKey, SlotBytes> known_;  // needs of sized forms
};

std::string mib(std::int64_t bytes) { return std::to_string(bytes >> 20) + " MiB"; }

}  // namespace

void pick_forms(Plan& plan, const Config& config, const SourceMap& sources,
                Diagnostics& diagnostics) {
  Check check(sources, diagnostics);
  const auto rates = rates_for(plan, config.cluster);
  const auto limit = static_cast<std::int64_t>(*config.recompute.memory_limit * (1 << 30));
  for (int stage = 0; stage < plan.map.stages; ++stage) {
    StagePlan& rows = at(plan.stages, stage);
    StagePick pick({plan, stage, config, *rates});
    FormSearch search(pick, rows, limit);
    search.run();
    if (search.fits()) {
      rows = search.take();
      continue;
    }
    const std::int64_t least = search.least();
    const std::int64_t fixed = search.fixed();
    const std::int64_t without =
        fixed + pick.limited({rows.activation_slots.bytes, rows.activation_slots.host_bytes});
    check.error(
        "recompute-memory", "recompute.memory_limit",
        formatted("stage {} needs at least {} a rank, but memory_limit is {}: {} whatever is "
                  "repeated, and at least {} of activations; without repeats it is {}",
                  stage, mib(least), mib(limit), mib(fixed), mib(least - fixed), mib(without)),
        "raise memory_limit, or use smaller micro-batches, more ranks or a parallel optimizer");
  }
}

}  // namespace trainctl
