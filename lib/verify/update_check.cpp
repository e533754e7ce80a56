#include "verify/update_check.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <span>
#include <vector>

#include "base/at.h"
#include "config/schema/optimizers.h"
#include "plan/tables/shard.h"
#include "verify/own/muon.h"
#include "verify/own/update.h"
#include "verify/verify.h"

namespace trainctl {

namespace {

using Values = std::vector<double>;

double largest_of(const Values& values) {
  double largest = 0;
  for (const double value : values) largest = std::max(largest, std::abs(value));
  return largest;
}

/// A rank's part of a parameter and of what the optimizer keeps, before the step and as it should
/// be after it.
struct Updated {
  std::array<Values, 1 + max_kept> before;
  std::array<Values, 1 + max_kept> after;
  std::map<std::size_t, double> loose;  // by element: Element::loose, where there is any

  double largest_change(int kind) const {
    double largest = 0;
    for (std::size_t i = 0; i < at(after, kind).size(); ++i) {
      largest = std::max(largest, std::abs(at(after, kind)[i] - at(before, kind)[i]));
    }
    return largest;
  }
};

class UpdateCheck {
 public:
  UpdateCheck(Findings& findings, const Record& record, std::int64_t step, const Config& config,
              std::span<const float> scores, const Mesh& mesh, std::int64_t rank)
      : findings_(findings),
        record_(record),
        step_(at(record.steps, step - 1)),
        states_(at(record.states, step - 1)),
        config_(config),
        model_(model_shape(config.model)),
        scores_(scores),
        update_(config.optimizer, step_.numbers),
        mesh_(mesh),
        rank_(rank) {
    subject_ = {.step = step};
    subject_.beside = "an update in double has";
  }

  void compare(const ParamStore& store, int parameter) {
    const ParamSpec& spec = at(store.table(), parameter);
    const HeldPart held = held_part(store, parameter, 0);
    subject_.row = parameter;
    if (held.part.length() == 0) return;
    store_ = &store;
    const OptimizerType type = own::choice_of(spec.name, config_.optimizer).type;
    const bool is_muon = type == OptimizerType::muon;
    Updated updated = update(spec, held.part, is_muon);
    if (config_.optimizer.ema_decay != 0) average(spec, held, updated);
    for (int kind = 0; kind <= record_.optimizer_states; ++kind) {
      const HeldPart found = held_part(store, parameter, kind);
      if (found.part.length() == 0) continue;  // another optimizer keeps it
      // Products in bf16 are compared between layouts only.
      if (is_muon && kind == 0 && config_.optimizer.muon.ns_dtype == MuonProducts::bf16) continue;
      subject_.phase =
          kind > updated_states(type, config_.optimizer) ? Phase::average : Phase::update;
      if (found.values.dtype == DType::f32) {
        compare_exact(spec, found, updated, {kind, is_muon});
      } else {
        compare_rounded(spec, found, updated, kind);
      }
    }
  }

 private:
  /// A whole parameter before the step, and the values that its update reads: empty where its
  /// optimizer keeps none.
  using Recorded = std::array<std::span<const float>, 3>;
  Recorded recorded(const std::string& name, const own::Choice& choice) const {
    Recorded values;
    for (int kind = 0; kind <= updated_states(choice.type, config_.optimizer); ++kind) {
      at(values, kind) = at(states_.kinds, kind).at(name);
    }
    return values;
  }
  static own::Element element(const Recorded& values, std::size_t whole) {
    const auto value = [&](int kind) {
      return at(values, kind).empty() ? 0 : double{at(values, kind)[whole]};
    };
    return {value(0), value(1), value(2)};
  }

  /// The average after the step, of the parameters that were found then: these are compared by
  /// themselves.
  void average(const ParamSpec& spec, const HeldPart& held, Updated& updated) const {
    const int kind =
        1 + updated_states(own::choice_of(spec.name, config_.optimizer).type, config_.optimizer);
    const std::vector<float>& recorded = at(states_.kinds, kind).at(spec.name);
    const std::vector<float> found = values_of(held.values);
    for (const ShardPiece& piece : pieces_in(spec, mesh_, rank_, held.part)) {
      for (std::int64_t i = 0; i < piece.length; ++i) {
        const auto here = static_cast<std::size_t>(piece.local + i);
        const double first = double{recorded[static_cast<std::size_t>(piece.global + i)]};
        at(updated.before, kind)[here] = first;
        at(updated.after, kind)[here] = update_.average(first, double{found[here]});
      }
    }
  }

  /// The direction of a parameter that muon makes orthogonal; empty for parameters that other
  /// optimizers update.
  own::Direction direction_of(const std::string& name) const {
    const auto gradients = step_.gradients.find(name);
    const own::Choice choice = own::choice_of(name, config_.optimizer);
    if (gradients == step_.gradients.end() || choice.type != OptimizerType::muon) return {};
    own::Direction direction;
    for (const ParamSpec& spec : store_->table()) {
      if (spec.name == name) direction.shape = spec.global_shape;
    }
    const Recorded before = recorded(name, choice);
    for (std::size_t i = 0; i < gradients->second.size(); ++i) {
      direction.values.push_back(
          update_.of(element(before, i), double{gradients->second[i]}, choice).second);
    }
    return direction;
  }

  /// The amounts that muon subtracts from all elements of a parameter; empty in a skipped step.
  Values muon_steps(const std::string& name, const own::Choice& choice) const {
    if (!update_.finite()) return {};
    Values steps =
        own::muon_steps_of(name, config_.optimizer.muon, model_.head_dim,
                           [&](const std::string& other) { return direction_of(other); });
    for (double& step : steps) step *= choice.rate * update_.learning_rate();
    return steps;
  }

  Updated update(const ParamSpec& spec, const Slice& part, bool is_muon) const {
    Updated updated;
    for (Values& values : updated.before) values.resize(static_cast<std::size_t>(part.length()));
    updated.after = updated.before;
    const auto moved = step_.bias_steps.find(spec.name);
    const own::Choice choice = own::choice_of(spec.name, config_.optimizer);
    const std::vector<float>& gradients = step_.gradients.at(spec.name);
    const Recorded before = recorded(spec.name, choice);
    const auto count = static_cast<double>(gradients.size());
    const Values steps = is_muon ? muon_steps(spec.name, choice) : Values{};
    for (const ShardPiece& piece : pieces_in(spec, mesh_, rank_, part)) {
      for (std::int64_t i = 0; i < piece.length; ++i) {
        const auto whole = static_cast<std::size_t>(piece.global + i);
        const auto here = static_cast<std::size_t>(piece.local + i);
        const own::Element first = element(before, whole);
        const own::Element after = update_.of(first, double{gradients[whole]}, choice);
        updated.before[0][here] = first.value;
        updated.before[1][here] = first.first;
        updated.before[2][here] = first.second;
        updated.after[0][here] = after.value - (steps.empty() ? 0 : steps[whole]);
        if (after.loose > 0) updated.loose[here] = after.loose;
        updated.after[1][here] = after.first;
        updated.after[2][here] = after.second;
        if (update_.finite() && !scores_.empty()) {
          const double place = (static_cast<double>(whole) + 0.5) / count;
          updated.after[0][here] *=
              own::clip_factor(spec.name, place, config_.optimizer, model_, scores_);
        }
        if (moved != step_.bias_steps.end()) updated.after[0][here] += moved->second[whole];
      }
    }
    return updated;
  }

  /// A master by its change, beyond what fp32 rounds; the optimizer's values by themselves.
  struct Compared {
    int kind;
    bool is_muon;
  };
  void compare_exact(const ParamSpec& spec, const HeldPart& found, const Updated& updated,
                     const Compared& compared) {
    const int kind = compared.kind;
    const double largest = largest_of(at(updated.after, kind));
    subject_.bound = kind > 0           ? fp32_bound
                     : compared.is_muon ? own::muon_bound(config_.optimizer.muon)
                                        : update_bound;
    double scale = std::max(largest, min_value);
    if (kind == 0) {
      scale = std::max(updated.largest_change(kind), 0x1p-22 * scale / subject_.bound);
    }
    Values expected = at(updated.after, kind);
    if (kind == 0 && !updated.loose.empty()) {
      const std::vector<float> values = values_of(found.values);
      for (const auto& [i, loose] : updated.loose) {
        expected[i] = std::clamp(double{values[i]}, expected[i] - loose, expected[i] + loose);
      }
    }
    findings_.compare_part(subject_, spec, spec.name, found, expected, scale);
  }

  /// Rounded at random, on average right: the mean of what is missing along the change, over the
  /// mean change. What rounding makes of that is a few deviations of a sum of many.
  void compare_rounded(const ParamSpec& spec, const HeldPart& found, const Updated& updated,
                       int kind) {
    const std::vector<float> values = values_of(found.values);
    const Values& expected = at(updated.after, kind);
    double missing = 0;
    double change = min_value;
    double variance = 0;
    for (std::size_t i = 0; i < values.size(); ++i) {
      const double step = expected[i] - (kind == 0 ? at(updated.before, kind)[i] : 0);
      missing += (step < 0 ? -1 : 1) * (double{values[i]} - expected[i]);
      change += std::abs(step);
      variance += std::pow(0x1p-8 * expected[i], 2);
    }
    subject_.bound = random_bound;
    const double scale = std::max(change, 6 * std::sqrt(variance) / random_bound);
    findings_.compare_error(subject_, spec.name, change + missing, change,
                            std::abs(missing) / scale);
  }

  static constexpr double min_value = 1e-30;

  Findings& findings_;
  const Record& record_;
  const RecordedStep& step_;
  const RecordedState& states_;
  const Config& config_;
  ModelShape model_;
  std::span<const float> scores_;
  own::Update update_;
  const ParamStore* store_ = nullptr;
  const Mesh& mesh_;
  std::int64_t rank_;
  Findings::Subject subject_;
};

}  // namespace

void compare_update(Findings& findings, const Record& record, std::int64_t step,
                    const Config& config, const ParamStore& store, std::span<const float> scores,
                    const Mesh& mesh, std::int64_t rank) {
  UpdateCheck check(findings, record, step, config, scores, mesh, rank);
  for (int i = 0; i < static_cast<int>(store.table().size()); ++i) check.compare(store, i);
}

}  // namespace trainctl
