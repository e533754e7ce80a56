#include "verify/verified_rank.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <limits>
#include <map>
#include <span>
#include <vector>

#include "base/at.h"
#include "config/schema/config.h"
#include "config/schema/optimizers.h"
#include "device/slab.h"
#include "engine/parameters/param_store.h"
#include "plan/ownership/ownership.h"
#include "plan/rules/resolve.h"
#include "plan/tables/shard.h"
#include "verify/alone.h"
#include "verify/data.h"
#include "verify/findings.h"
#include "verify/free_record.h"
#include "verify/own/step_numbers.h"
#include "verify/own/update.h"
#include "verify/record.h"
#include "verify/verify.h"

namespace trainctl {

// Compares the update by a rank's optimizer, from the recorded gradients, with the same update in
// double.

/// The bound of the error of a tensor's change, in addition to the rounding of its type.
inline constexpr double update_bound = 1e-4;

namespace {

using Values = std::vector<double>;

double largest_of(const Values& values) {
  double largest = 0;
  for (const double value : values) largest = std::max(largest, std::abs(value));
  return largest;
}

/// A rank's part of a parameter and of its optimizer states, before the step and as expected after
/// it.
struct Updated {
  std::array<Values, 1 + max_kept> before;
  std::array<Values, 1 + max_kept> after;
  std::map<std::size_t, double> loose;  // Element::loose by element, if not 0

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
      if (found.part.length() == 0) continue;  // held by another optimizer
      // With bf16 products there is no exact reference; only layouts are compared with each other.
      if (is_muon && kind == 0 && config_.optimizer.muon.ns_dtype == "bf16") continue;
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
  /// A whole parameter before the step, and the optimizer states that its update reads; empty spans
  /// for states that its optimizer lacks.
  using Recorded = std::array<std::span<const float>, 3>;
  Recorded recorded(const std::string& name, const own::Choice& choice) const {
    Recorded values;
    for (int kind = 0; kind <= updated_states(choice.type, config_.optimizer); ++kind) {
      at(values, kind) = at(states_, kind).at(name);
    }
    return values;
  }
  static own::Element element(const Recorded& values, std::size_t whole) {
    const auto value = [&](int kind) {
      return at(values, kind).empty() ? 0 : double{at(values, kind)[whole]};
    };
    return {value(0), value(1), value(2)};
  }

  /// Computes the expected average after the step from the parameters that this rank found, which
  /// are compared separately.
  void average(const ParamSpec& spec, const HeldPart& held, Updated& updated) const {
    const int kind =
        1 + updated_states(own::choice_of(spec.name, config_.optimizer).type, config_.optimizer);
    const std::vector<float>& recorded = at(states_, kind).at(spec.name);
    const std::vector<float> found = values_of(held.values);
    for (const BoxRun& piece : pieces_in(spec, mesh_, rank_, held.part)) {
      for (std::int64_t i = 0; i < piece.length; ++i) {
        const auto here = static_cast<std::size_t>(piece.to + i);
        const double first = double{recorded[static_cast<std::size_t>(piece.from + i)]};
        at(updated.before, kind)[here] = first;
        at(updated.after, kind)[here] = update_.average(first, double{found[here]});
      }
    }
  }

  /// The direction that muon orthogonalizes for a parameter; empty if another optimizer updates the
  /// parameter.
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

  /// The amounts that muon subtracts from the elements of a parameter; empty in a skipped step.
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
    for (const BoxRun& piece : pieces_in(spec, mesh_, rank_, part)) {
      for (std::int64_t i = 0; i < piece.length; ++i) {
        const auto whole = static_cast<std::size_t>(piece.from + i);
        const auto here = static_cast<std::size_t>(piece.to + i);
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

  /// A value to compare. A master's error is relative to its change, a state's to its values.
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

  /// For randomly rounded values, right on average: compares the mean deviation along the change
  /// with the mean change, and allows a few standard deviations of rounding.
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

/// Compares masters and optimizer states after step number `step`, which started from the recorded
/// ones with the recorded gradients. `scores` is Engine::largest_scores.
void compare_update(Findings& findings, const Record& record, std::int64_t step,
                    const Config& config, const ParamStore& store, std::span<const float> scores,
                    const Mesh& mesh, std::int64_t rank) {
  UpdateCheck check(findings, record, step, config, scores, mesh, rank);
  for (int i = 0; i < static_cast<int>(store.table().size()); ++i) check.compare(store, i);
}

/// A layout's distance from the single rank may be this many times the distance between runs of
/// that rank with different rounding.
constexpr double roundings_apart = 4;
/// Upper bound of the distance between two neighbouring bf16 numbers, relative to their size.
constexpr double neighbour_apart = 0x1p-7;

}  // namespace

VerifiedRank::VerifiedRank(const Record& record, const VerifyInput& given, World& world,
                           Findings& findings)
    : record_(record),
      given_(given),
      rank_(world.rank()),
      rounds_alike_(message_rounding(given_.truth) == record.rounding),
      watches_sums_(world.size() > 1 && given_.truth.device == DeviceKind::cpu),
      findings_(findings),
      sums_(world, given_.truth.mesh),
      gradient_sums_(given_.truth, world),
      engine_(with_hook(engine_input(given_.config, given_.plan, given.deadline_seconds)),
              watches_sums_ ? static_cast<World&>(sums_) : world) {}

void VerifiedRank::initialise() {
  engine_.initialise();
  compare_tensors({Phase::initial, 1, 0, fp32_bound}, record_.states.front().front(),
                  [&](int i) { return held_part(store(), i, 0); });
}

void VerifiedRank::resume(const TrainState& state) {
  // First sets and checks other counters: a counter that resume ignores may be right by chance.
  TrainState marked = state;
  ++marked.updates;
  ++marked.good_steps;
  ++marked.hysteresis;
  marked.loss_scale *= 2;
  engine_.resume(marked);
  compare_counters(findings_, Phase::scalar, {engine_.step_state(), state.step + 1},
                   {marked.updates, marked.good_steps, marked.hysteresis, marked.loss_scale});
  engine_.resume(state);
  step_ = state.step;
  has_state_ = true;
  const RecordedState& expected = record_.states[static_cast<std::size_t>(step_)];
  for (int i = 0; i < static_cast<int>(table().size()); ++i) {
    // The rows that pad the vocabulary are not saved and affect no other rows.
    const ParamSpec& spec = table()[static_cast<std::size_t>(i)];
    for (int kind = 0; kind <= record_.optimizer_states; ++kind) {
      load_part(spec, given_.truth.mesh, rank_, at(expected, kind).at(spec.name),
                held_part(store(), i, kind), saved_shape(spec, given_.truth.model).numel());
    }
  }
  for (int kind = 0; kind <= record_.optimizer_states; ++kind) {
    compare_values(Phase::loaded, step_ + 1, expected, kind);
  }
  compare_counters(findings_, Phase::scalar, {engine_.step_state(), step_ + 1},
                   at(record_.steps, step_).numbers.before);
}

void VerifiedRank::run_until(std::int64_t last) {
  while (step_ < last) {
    ++step_;
    one_step();
    has_state_ = false;
  }
}

const RecordedStep& VerifiedRank::recorded() const {
  return record_.steps[static_cast<std::size_t>(step_ - 1)];
}

double VerifiedRank::allowed_rounding(const ParamSpec& spec) const {
  const auto rounding = recorded().roundings.find(spec.name);
  return rounding == recorded().roundings.end() ? 0 : roundings_apart * rounding->second;
}

double VerifiedRank::bound() const { return in_fp32(given_.truth) ? fp32_bound : half_bound; }

/// The bound of a parameter's error: that of fp32, in which the update is computed. The factors of
/// QK-Clip depend on scores, which are rounded in 16 bits, so weights that it scales have bound().
double VerifiedRank::parameter_bound(const ParamSpec& spec) const {
  return clipped(spec) ? bound() : fp32_bound;
}

bool VerifiedRank::clipped(const ParamSpec& spec) const {
  return given_.config.optimizer.qk_clip_threshold &&
         (spec.kind == ParamKind::query || spec.kind == ParamKind::key);
}

/// Compares masters (kind 0) or an optimizer state. Values rounded at random may rarely round to
/// the other neighbour because of a difference in fp32, but agree on average. Masters have a closer
/// bound, because they move less: one element of the part and one in a thousand may be the other
/// neighbour, at most 1/128 of the largest value away. In a clipped parameter, the factor may shift
/// all of a head.
void VerifiedRank::compare_values(Phase master, std::int64_t step, const RecordedState& expected,
                                  int kind) {
  const WholeTensors& whole = at(expected, kind);
  const auto get = [&](int i) { return held_part(store(), i, kind); };
  Findings::Subject subject{.step = step};
  for (subject.row = 0; const ParamSpec& spec : table()) {
    const std::vector<float>& values = whole.at(spec.name);
    const HeldPart held = get(static_cast<int>(subject.row));
    if (held.part.length() == 0) {  // held by another rank or optimizer
      ++subject.row;
      continue;
    }
    const int updated = updated_states(spec.update, given_.config.optimizer);
    const DType type = kind == 0
                           ? spec.master
                           : at(optimizer_values(spec.update, given_.config.optimizer), kind - 1);
    subject.phase = phase_of(master, kind, updated);
    if (type == DType::f32) {
      // The average follows the parameter, and has its bound.
      const bool follows = kind == 0 || kind > updated;
      subject.bound = follows ? parameter_bound(spec) : fp32_bound;
      findings_.compare(subject, spec, values, held);
    } else if (kind == 0) {
      const auto count = static_cast<double>(std::max<std::int64_t>(held.part.length(), 1));
      subject.bound = neighbour_apart * (random_bound + 1 / count) + (clipped(spec) ? bound() : 0);
      findings_.compare_mean(subject, spec, values, held, largest_of(values));
    } else {
      subject.bound = random_bound;
      findings_.compare_mean(subject, spec, values, held, mean_distance(values));
    }
    ++subject.row;
  }
}

EngineInput VerifiedRank::with_hook(EngineInput input) {
  input.loss_scaling = record_.loss_scaling;
  if (rounds_alike_) {
    input.hooks.after_forward = [this](int unit, int microbatch, const Tensor& stream) {
      compare_stream(unit, microbatch, stream);
    };
  }
  input.hooks.after_router = [this](std::int64_t layer, const Tensor& tokens,
                                    const Tensor& logits) { meet_router(layer, tokens, logits); };
  input.hooks.finalize_model_grads = [this](ParamStore&) { gradients_summed(); };
  if (watches_sums_) {
    input.hooks.grad_sync = [this](int bucket) { gradient_sums_.keep(store(), bucket); };
  }
  return input;
}

/// Compares a unit's output, for this rank's tokens or its sequence-parallel part of these.
void VerifiedRank::compare_stream(int unit, int microbatch, const Tensor& stream) {
  const RecordedStream& whole = recorded().streams[static_cast<std::size_t>(unit)];
  const std::int64_t sequence =
      first_sequence(given_.truth, given_.truth.mesh.coordinate(rank_, Axis::dp), microbatch);
  const std::int64_t part =
      given_.truth.sequence_parallel ? given_.truth.mesh.coordinate(rank_, Axis::tp) : 0;
  const std::int64_t context = given_.truth.mesh.coordinate(rank_, Axis::cp);
  const std::int64_t rows = stream.rows();
  const Tensor own = stream.view({rows, stream.columns()});
  // A shorter micro-batch has the first tokens of each sequence.
  TokenPieces tokens = given_.truth.tokens;
  tokens.seq_length = tokens.seq_length * rows / given_.truth.local.stream_rows;
  for (std::int64_t row = 0; row < rows;) {
    const std::int64_t token = part * rows + row;  // index among the rank's tokens, in its order
    const std::int64_t piece = token / tokens.piece_length();
    const std::int64_t within = token % tokens.piece_length();
    const std::int64_t end = std::min(rows, row + tokens.piece_length() - within);
    const std::int64_t place =
        (sequence + piece / tokens.pieces()) * given_.truth.model.seq_length +
        tokens.position(context, piece % tokens.pieces()) + within;
    findings_.compare({.phase = Phase::activation,
                       .step = step_,
                       .bound = bound(),
                       .min_bound = roundings_apart * whole.rounding,
                       .row = unit},
                      whole, place * own.columns(), own.slice(row, end));
    row = end;
  }
}

/// After a fault in the data, tokens that the step lacks are skipped; activations show the fault.
void VerifiedRank::meet_router(std::int64_t layer, const Tensor& tokens, const Tensor& logits) {
  const RecordedStream& whole = at(recorded().routers, layer);
  const auto take = [&](std::int64_t begin, const Tensor& rows) {
    if (rounds_alike_) {
      findings_.compare({.phase = Phase::router,
                         .step = step_,
                         .bound = bound(),
                         .min_bound = roundings_apart * whole.rounding,
                         .row = layer},
                        whole, begin, rows);
    }
    route_as_recorded(whole, begin, rows);
  };
  for_routed_tokens(tokens, logits, first_token_, tokens_of(whole), take);
}

void VerifiedRank::compare_tensors(Findings::Subject subject, const WholeTensors& whole,
                                   const GetPart& get) {
  for (subject.row = 0; const ParamSpec& spec : table()) {
    subject.min_bound = subject.phase == Phase::gradient ? allowed_rounding(spec) : 0;
    findings_.compare(subject, spec, whole.at(spec.name), get(static_cast<int>(subject.row)));
    ++subject.row;
  }
}

void VerifiedRank::load(const WholeTensors& whole, const GetPart& get) {
  int index = 0;
  for (const ParamSpec& spec : table()) {
    load_part(spec, given_.truth.mesh, rank_, whole.at(spec.name), get(index++));
  }
}

void VerifiedRank::load_state(const RecordedState& state) {
  for (int kind = 0; kind <= record_.optimizer_states; ++kind) {
    load(state[static_cast<std::size_t>(kind)], [&](int i) { return held_part(store(), i, kind); });
  }
  forget_weights();
  engine_.masters_changed();
}

void VerifiedRank::one_step() {
  if (!has_state_) load_state(record_.states[static_cast<std::size_t>(step_ - 1)]);
  // The position in the data comes from the engine, since it may be loaded from a checkpoint.
  const TrainState state = engine_.train_state();
  first_token_ = state.samples * given_.truth.model.seq_length;
  auto batches = made_up_batches(given_.config, given_.plan.after(state.step),
                                 given_.plan.mesh.coordinate(rank_, Axis::dp), state.samples);
  if (given_.faults.batches) given_.faults.batches(rank_, step_, batches);
  sums_.begin_step(step_);
  gradient_sums_.begin_step();
  const StepReport report = engine_.train_step(batches);
  engine_.complete_weights();
  sums_.tell(findings_);
  if (given_.faults.parameters) given_.faults.parameters(rank_, step_, store());
  compare_step(report);
  const RecordedState& expected = record_.states[static_cast<std::size_t>(step_)];
  for (int kind = 0; kind <= record_.optimizer_states; ++kind) {
    compare_values(Phase::parameter, step_, expected, kind);
  }
  compare_weights(expected.front());
  compare_update(findings_, record_, step_, given_.truth_config, store(), engine_.largest_scores(),
                 given_.truth.mesh, rank_);
}

/// Compares the weights that stay on the rank for the next step: gathered, and perhaps rounded.
void VerifiedRank::compare_weights(const WholeTensors& whole) {
  Findings::Subject subject{.phase = Phase::parameter, .step = step_};
  for (int i = 0; i < static_cast<int>(table().size()); ++i) {
    if (!store().stays(i)) continue;
    const ParamSpec& spec = table()[static_cast<std::size_t>(i)];
    const Tensor weight = store().resident(i);
    subject.row = i;
    std::vector<float> values = values_of(weight);
    subject.bound = weight.dtype == DType::f32 ? parameter_bound(spec) : half_bound;
    findings_.compare(subject, spec, whole.at(spec.name),
                      whole_part(host_tensor(values.data(), std::ssize(values))));
  }
}

void VerifiedRank::compare_step(const StepReport& report) {
  if (rounds_alike_) {
    findings_.compare({Phase::loss, step_, 0, bound()}, report.loss, recorded().loss);
  }
  if (rounds_alike_) {
    compare_scores(findings_, step_, bound(), engine_.largest_scores(), recorded().scores,
                   given_.truth.model.heads);
  }
  if (report.router && recorded().numbers.finite) {
    compare_router(findings_, *report.router, step_, recorded());
  }
  const FoundScalars found{engine_.step_state(), step_, gradient_factor()};
  compare_scalars(findings_, Phase::scalar, found, recorded().numbers);
  compare_verdict(findings_, given_.truth_config.optimizer, found, recorded().numbers);
  // A layout whose ranks sum fewer terms may be right if the single rank's own norm is not.
  if (recorded().numbers.finite) {
    findings_.compare({.phase = Phase::grad_norm,
                       .step = step_,
                       .bound = fp32_bound,
                       .beside = "reported by the single rank, whose gradients have"},
                      recorded().norm, recorded().numbers.norm);
  }
}

double VerifiedRank::gradient_factor() const {
  return static_cast<double>(own::gradient_factor(given_.truth_config.parallel, given_.truth.mesh));
}

/// Sets weights that this rank does not own to NaN, so that a step that fails to gather them shows.
void VerifiedRank::forget_weights() {
  for (int i = 0; i < static_cast<int>(table().size()); ++i) {
    const Tensor weight = store().resident(i);
    const Slice own = store().stays(i) ? store().owned(i) : Slice{};
    std::vector<float> values = values_of(weight);
    constexpr float nothing = std::numeric_limits<float>::quiet_NaN();
    std::fill(values.begin(), values.begin() + own.begin, nothing);
    std::fill(values.begin() + own.end, values.end(), nothing);
    set_values(weight, values);
  }
}

/// The part of a gradient that is summed completely on this rank.
HeldPart VerifiedRank::summed_part(int index) {
  const Ownership& own = store().ownership().parameters[static_cast<std::size_t>(index)];
  return {store().gradient(index), own.summed};
}

void VerifiedRank::gradients_summed() {
  if (given_.faults.gradients) given_.faults.gradients(rank_, step_, store());
  if (watches_sums_ && recorded().numbers.finite) {
    gradient_sums_.compare(store(), findings_, step_);
  }
  const bool measurable = recorded().numbers.finite && rounds_alike_;
  if (measurable) {
    // Rescales to the gradients of the mean loss. The single rank's gradients replace them below.
    const auto factor = static_cast<double>(given_.truth.gradient.factor);
    if (factor != 1) scale_gradients(store(), 1 / factor);
    compare_tensors({Phase::gradient, step_, 1e-3 * recorded().largest_gradient, bound()},
                    recorded().gradients, [&](int i) { return summed_part(i); });
  }
  load(recorded().gradients, [&](int i) { return summed_part(i); });
}

LayoutVerdict compare_ranks(const Record& record, const VerifiedLayout& layout,
                            const Faults& faults,
                            const std::function<void(VerifiedRank&, World&)>& body) {
  return judge_ranks(layout, faults,
                     [&](const VerifyInput& given, World& world, Findings& findings) {
                       VerifiedRank rank(record, given, world, findings);
                       body(rank, world);
                     });
}

}  // namespace trainctl
