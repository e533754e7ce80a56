#include "verify/alone_check.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <map>
#include <optional>
#include <set>
#include <span>

#include "base/at.h"
#include "base/integers.h"
#include "base/philox.h"
#include "comm/world.h"
#include "engine/engine.h"
#include "verify/alone.h"
#include "verify/data.h"
#include "verify/findings.h"
#include "verify/own/router.h"
#include "verify/record.h"

namespace trainctl {

namespace {

constexpr std::size_t values_kept = 4096;  // mask length per use
/// A value of Use::zero: the whole row is zero without dropout, because no expert takes the token
/// (padding, or above a capacity).
constexpr char no_draw = 2;
constexpr double deviations = 6;  // allowed distance of a count from its mean

/// The distance of `share` from `probability`, in standard deviations of the mean of `count` draws.
double deviation(double share, double probability, double count) {
  return std::abs(share - probability) / std::sqrt(probability * (1 - probability) / count);
}

/// Collects the results of dropout and compares their share of zeros with the configuration.
class DropoutCheck {
 public:
  explicit DropoutCheck(const ModelConfig& model) : model_(model) {}

  /// The hook Hooks::after_dropout.
  void take(std::int64_t site, float probability, const Tensor& values) {
    if (step_ > 1) return;
    Use& use = uses_[{step_, site}];
    use.probability = double{probability};
    if (values.empty()) return;
    const std::vector<float> all = values_of(values);
    const auto columns = static_cast<std::size_t>(values.columns());
    for (std::size_t row = 0; row < all.size(); row += columns) {
      const std::span<const float> one = std::span(all).subspan(row, columns);
      const bool empty = std::ranges::all_of(one, [](float value) { return value == 0; });
      for (const float value : one) {
        if (use.zero.size() < values_kept) use.zero.push_back(empty ? no_draw : value == 0 ? 1 : 0);
        if (empty) continue;
        use.count += 1;
        use.zeros += value == 0 ? 1 : 0;
      }
    }
  }
  void end_step() { ++step_; }
  /// Checks that each dropout site of the model was used in each step, with the configured
  /// probability, about that share of zeros, and a mask independent of all others.
  void compare(Findings& findings) const {
    Findings::Subject subject{.phase = Phase::dropout, .bound = 1e-6};
    subject.beside = "the configuration has";
    for (std::int64_t step = 0; step < 2; ++step) {
      subject.step = step + 1;
      for (subject.row = 0; subject.row <= 3 * model_.num_layers; ++subject.row) {
        const Site expected = site(subject.row);
        const auto found = uses_.find({step, subject.row});
        const bool met = found != uses_.end();
        subject.bound = 1e-6;
        findings.compare(subject, met ? found->second.probability : 0, expected.probability,
                         expected.name);
        if (!met || found->second.count == 0) continue;
        const Use& use = found->second;
        const double share = use.zeros / use.count;
        subject.bound = deviations;
        findings.compare_error(subject, expected.name, share, expected.probability,
                               deviation(share, expected.probability, use.count));
      }
    }
    compare_masks(findings);
  }

 private:
  struct Use {
    double probability = 0;
    std::vector<char> zero;  // the mask of the first values
    double zeros = 0;        // among all rows with draws
    double count = 0;        // number of values in these rows
  };
  struct Site {
    std::string name;
    double probability = 0;
  };
  Site site(std::int64_t number) const {
    if (number == 0) return {"of the embedding", model_.embedding_dropout};
    const std::string layer = "layers." + std::to_string((number - 1) / 3);
    switch ((number - 1) % 3) {
      case 0: return {"of the probabilities of " + layer + ".attention", model_.attention_dropout};
      case 1: return {"of " + layer + ".attention", model_.hidden_dropout};
      default: return {"of " + layer + ".mlp", model_.hidden_dropout};
    }
  }

  /// Two independent masks agree in an element with probability p q + (1 - p) (1 - q).
  void compare_masks(Findings& findings) const {
    Findings::Subject subject{.phase = Phase::dropout, .bound = deviations};
    subject.beside = "independent masks agree in a share of";
    for (auto one = uses_.begin(); one != uses_.end(); ++one) {
      for (auto other = uses_.begin(); other != one; ++other) {
        const Use& a = one->second;
        const Use& b = other->second;
        const std::size_t count = std::min(a.zero.size(), b.zero.size());
        if (count == 0) continue;
        double same = 0;
        double draws = 0;
        for (std::size_t i = 0; i < count; ++i) {
          if (a.zero[i] == no_draw || b.zero[i] == no_draw) continue;
          same += a.zero[i] == b.zero[i] ? 1 : 0;
          draws += 1;
        }
        if (draws == 0) continue;
        const double p = a.probability;
        const double q = b.probability;
        const double expected = p * q + (1 - p) * (1 - q);
        subject.step = one->first.first + 1;
        subject.row = one->first.second;
        findings.compare_error(subject, "masks " + site(subject.row).name, same / draws, expected,
                               deviation(same / draws, expected, draws));
      }
    }
  }

  const ModelConfig model_;
  std::int64_t step_ = 0;
  std::map<std::pair<std::int64_t, std::int64_t>, Use> uses_;  // one per step and site
};

constexpr std::int64_t max_sequences = 2;
/// A model with at most this many elements is tested one kind of parameter after the other; in a
/// larger model all parameters move at once.
constexpr std::int64_t max_elements = 8'000'000;

/// The test's configuration: a few sequences as one micro-batch, so that a router sees all tokens
/// of a step at once. The weights are large enough that every layer changes its input by about the
/// input's own size.
Config to_differentiate(const Config& given) {
  Config config = in_fp32(alone(given));
  config.optimizer = {};
  config.optimizer.type = OptimizerType::sgd;
  config.optimizer.momentum = 0;  // the optimizer keeps no state
  config.hooks.grad_scale = "none";
  config.model.perform_initialization = true;
  config.model.init_method_std = 1 / std::sqrt(static_cast<double>(config.model.hidden_size));
  const std::int64_t least = sequences_of_groups(model_shape(config.model, config.moe));
  const std::int64_t few = std::min(max_sequences, config.train.global_batch_size);
  config.train.global_batch_size = round_up(few, least);
  config.train.micro_batch_size = config.train.global_batch_size;
  config.train.rampup_batch_size.reset();
  // The learning rate is so small that no update changes an fp32 parameter.
  config.lr_schedule = {};
  config.lr_schedule.max_lr = 1e-30;
  // The following options do not affect a step that is reduced to this.
  config.precision = {};
  const DataConfig other;
  config.data.validation = other.validation;
  config.data.shuffle = other.shuffle;
  config.data.eod_mask_loss = other.eod_mask_loss;
  config.data.eod_token = other.eod_token;
  config.data.prefetch = other.prefetch;
  config.train.check_replicas_every = TrainConfig{}.check_replicas_every;
  return config;
}

/// The logits of a layer's router, and their gradients, [tokens, experts].
struct RouterLayer {
  std::vector<float> logits;
  std::vector<float> gradient;
  own::RouterChoices choices;
};
using Routers = std::map<std::int64_t, RouterLayer>;

/// A direction in parameter space: by parameter, the movement of each element, per unit of the
/// amount.
using Direction = std::map<int, std::vector<double>>;

/// One rank whose loss can be evaluated at any point near the initial parameters.
class Slopes {
 public:
  /// `run` is the engine's configuration, which differs from `config` only in an injected fault.
  Slopes(const Config& config, const Config& run)
      : config_(config),
        run_(run),
        plan_(plan_alone(run_)),
        batches_(made_up_batches(config_, plan_, 0, 0)),
        real_(real_tokens_of(batches_)),
        routers_(router_of(config_.moe, plan_, std::ssize(real_))),
        dropped_(config_.model),
        world_(self_world()),
        engine_(input(), *world_) {
    engine_.initialise();
    start_ = std::move(record_state(store(), 0).front());
    is_base_ = true;
    base_loss_ = loss_at();
    is_base_ = false;
    dropped_.end_step();
    loss_at(1);  // a second step, to compare its dropout masks
    dropped_.end_step();
  }

  const std::vector<ParamSpec>& table() const { return plan_.stages.front().parameters; }
  const DropoutCheck& dropped() const { return dropped_; }

  struct Slope {
    double by_gradient = 0;
    double by_differences = 0;
    double allowed = 0;  // the largest difference that is still right
    double apart() const { return std::abs(by_gradient - by_differences); }
    bool is_wrong() const { return !(apart() <= allowed); }
  };
  /// The slope along a direction in these parameters, another one for each `drawn`. Differences of
  /// 2^-8 of a parameter come first, then larger ones where rounding counts more, and smaller ones
  /// where the loss bends more. If none agrees with the gradient, the distance between the first
  /// and the last estimate is allowed in addition, because neither is known better than that.
  Slope along(const std::vector<int>& parameters, std::uint64_t drawn = 0) {
    Direction direction;
    Slope slope;
    double squares = 0;
    for (const int parameter : parameters) {
      const std::vector<float>& gradient = gradients_.at(at(table(), parameter).name);
      const std::vector<double>& unit = direction[parameter] = unit_of(parameter, drawn);
      for (std::size_t i = 0; i < gradient.size(); ++i) {
        slope.by_gradient += double{gradient[i]} * unit[i];
        squares += std::pow(double{gradient[i]} * unit[i], 2);
      }
    }
    std::vector<double> estimates;
    for (const double amount : {0x1p-8, 0x1p-6, 0x1p-9}) {
      held_.clear();
      double near = 0;
      double far = 0;
      do {
        holds_more_ = false;
        near = difference(direction, amount / 2);
        far = difference(direction, amount);
      } while (holds_more_);
      slope.by_differences = estimates.emplace_back(near + (near - far) / 3);
      slope.allowed = slope_bound * std::sqrt(squares) + rounding * base_loss_ / amount;
      if (!slope.is_wrong()) break;
    }
    if (slope.is_wrong()) {
      slope.allowed += std::abs(estimates.front() - estimates.back());
      const double first = std::abs(slope.by_gradient - estimates.front());
      if (first < slope.apart()) slope.by_differences = estimates.front();
    }
    put(direction, 0);
    return slope;
  }

 private:
  /// The relative rounding error of a loss, which limits the accuracy of differences.
  static constexpr double rounding = 4e-8;

  double difference(const Direction& direction, double amount) {
    put(direction, amount);
    double sum = loss_at();
    put(direction, -amount);
    sum -= loss_at();
    return sum / (2 * amount);
  }

  EngineInput input() {
    EngineInput input = engine_input(run_, plan_, config_.parallel.deadline_seconds);
    // A forward hook makes the engine run unit by unit, as in all comparisons with one rank. The
    // free run covers training without hooks.
    input.hooks.after_forward = [](int, int, const Tensor&) {};
    input.hooks.after_router = [this](std::int64_t layer, const Tensor&, const Tensor& logits) {
      hold_choices(layer, logits);
    };
    input.hooks.after_router_backward = [this](std::int64_t layer, const Tensor&,
                                               const Tensor& gradient) {
      if (is_base_) base_[layer].gradient = values_of(gradient);
    };
    input.hooks.after_dropout = [this](std::int64_t site, float probability, const Tensor& values) {
      dropped_.take(site, probability, values);
    };
    input.hooks.finalize_model_grads = [this](ParamStore& store) {
      if (is_base_) gradients_ = record_gradients(store);
    };
    return input;
  }

  ParamStore& store() { return engine_.parameters(); }

  /// The movement of each element: plus or minus the parameter's root mean square.
  std::vector<double> unit_of(int parameter, std::uint64_t drawn) const {
    const ParamSpec& spec = at(table(), parameter);
    const std::vector<float>& values = start_.at(spec.name);
    double squares = 0;
    for (const float value : values) squares += double{value} * double{value};
    const double size = std::max(std::sqrt(squares / static_cast<double>(values.size())),
                                 config_.model.init_method_std);
    const Philox signs(config_.train.seed + drawn, fnv1a("direction " + spec.name));
    std::vector<double> unit(values.size());
    for (std::size_t i = 0; i < unit.size(); ++i) {
      unit[i] = signs.bits(i) % 2 == 0 ? size : -size;
    }
    return unit;
  }

  /// Moves the direction's parameters by `amount` from the start, rounded to fp32.
  void put(const Direction& direction, double amount) {
    for (const auto& [parameter, unit] : direction) {
      std::vector<float> values = start_.at(at(table(), parameter).name);
      for (std::size_t i = 0; i < values.size(); ++i) {
        values[i] = static_cast<float>(double{values[i]} + amount * unit[i]);
      }
      set(parameter, values);
    }
  }
  void set(int parameter, const std::vector<float>& values) {
    load_part(at(table(), parameter), plan_.mesh, 0, values, held_part(store(), parameter, 0));
  }

  /// The loss of step number `step`, including router losses. Adds, to first order, the changes of
  /// the loss that held choices suppress.
  double loss_at(std::int64_t step = 0) {
    extra_ = 0;
    for (int i = 0; i < std::ssize(table()); ++i) {  // biases move at any learning rate
      const ParamSpec& spec = at(table(), i);
      if (spec.kind == ParamKind::expert_bias) set(i, start_.at(spec.name));
    }
    TrainState state;
    state.step = step;
    engine_.resume(state);
    return engine_.train_step(batches_).loss + extra_;
  }

  own::RouterInput router_input(std::int64_t layer, const std::vector<float>& logits) const {
    const std::string bias = "layers." + std::to_string(layer) + ".moe.expert_bias";
    const auto found = start_.find(bias);
    own::RouterInput input{.logits = logits, .bias = {}, .real = real_};
    if (found != start_.end()) input.bias = found->second;
    return input;
  }

  /// If a token would be routed differently than at the start, its logits are reset to those of the
  /// start, for both points of a difference. Resetting one alone would leave an error proportional
  /// to the distance, because the correction is of first order.
  void hold_choices(std::int64_t layer, const Tensor& tensor) {
    std::vector<float> logits = values_of(tensor);
    RouterLayer& base = base_[layer];
    if (is_base_) {
      base.logits = logits;
      base.choices = routers_.choose(router_input(layer, logits));
    }
    const std::vector<float> made = logits;
    for (const std::size_t token : held_[layer]) hold(base, token, logits);
    while (!restore_moved(layer, logits)) {
    }
    if (base.gradient.empty()) base.gradient.resize(logits.size());
    for (std::size_t i = 0; i < logits.size(); ++i) {
      extra_ += double{base.gradient[i]} * (double{made[i]} - double{logits[i]});
    }
    extra_ += routers_.loss(router_input(layer, logits), base.choices, positions());
    set_values(tensor, logits);
  }

  /// Holds tokens whose choices differ from the start. Returns true if no choice differs.
  bool restore_moved(std::int64_t layer, std::vector<float>& logits) {
    const RouterLayer& base = base_[layer];
    const own::RouterChoices now = routers_.choose(router_input(layer, logits));
    bool same = true;
    const auto topk = static_cast<std::size_t>(config_.moe.router_topk);
    for (std::size_t i = 0; i < now.chosen.size(); ++i) {
      if (now.chosen[i] == base.choices.chosen[i] && now.kept[i] == base.choices.kept[i] &&
          now.counted[i] == base.choices.counted[i]) {
        continue;
      }
      const std::size_t token = i / topk;
      if (!held_[layer].insert(token).second) continue;  // already held: another token displaced it
      hold(base, token, logits);
      holds_more_ = true;
      same = false;
    }
    return same;
  }

  void hold(const RouterLayer& base, std::size_t token, std::vector<float>& logits) const {
    const auto experts = static_cast<std::size_t>(config_.moe.num_experts);
    const auto begin = static_cast<std::ptrdiff_t>(token * experts);
    std::copy_n(base.logits.begin() + begin, experts, logits.begin() + begin);
  }

  double positions() const { return static_cast<double>(std::ranges::count(real_, char{1})); }

  const Config config_;
  const Config run_;
  const Plan plan_;
  const std::vector<Batch> batches_;
  const std::vector<char> real_;
  own::Router routers_;
  DropoutCheck dropped_;
  std::unique_ptr<World> world_;
  Routers base_;
  std::map<std::int64_t, std::set<std::size_t>> held_;  // by layer: tokens whose logits are reset
  bool holds_more_ = false;                             // set when a token is added
  WholeTensors start_;
  WholeTensors gradients_;
  bool is_base_ = false;
  double extra_ = 0;
  double base_loss_ = 0;
  Engine engine_;
};

/// The name without its layer, such as "attention.q.weight".
std::string kind_of(const std::string& name) {
  if (!name.starts_with("layers.")) return name;
  return name.substr(name.find('.', name.find('.') + 1) + 1);
}

/// The slope along one parameter, or along all parameters of a kind.
struct Named {
  std::string name;
  Slopes::Slope slope;
};

/// The first parameter with a wrong slope, in the order in which the backward pass computes
/// gradients.
std::optional<Named> first_wrong(Slopes& slopes) {
  std::vector<int> order;
  for (int i = 0; i < std::ssize(slopes.table()); ++i) order.push_back(i);
  std::ranges::stable_sort(order, [&](int a, int b) {
    const auto unit = [&](int i) { return at(slopes.table(), i).unit; };
    return unit(a) != unit(b) ? unit(a) > unit(b) : a > b;
  });
  for (const int parameter : order) {
    const ParamSpec& spec = at(slopes.table(), parameter);
    if (spec.kind == ParamKind::expert_bias) continue;
    // A wrong gradient may show little error along a single direction.
    for (std::uint64_t drawn = 0; drawn < 3; ++drawn) {
      const Slopes::Slope slope = slopes.along({parameter}, drawn);
      if (slope.is_wrong()) return Named{spec.name, slope};
    }
  }
  return std::nullopt;
}

void compare_slopes(Slopes& slopes, Findings& findings) {
  std::map<std::string, std::vector<int>> kinds;
  std::int64_t elements = 0;
  for (const ParamSpec& spec : slopes.table()) elements += spec.shape.numel();
  for (int i = 0; i < std::ssize(slopes.table()); ++i) {
    const ParamSpec& spec = at(slopes.table(), i);
    const bool together = elements > max_elements;
    const std::string name = together ? "of every parameter" : kind_of(spec.name);
    if (spec.kind != ParamKind::expert_bias) kinds[name].push_back(i);
  }
  Findings::Subject subject{.phase = Phase::slope, .step = 1, .bound = slope_bound};
  subject.beside = "differences of the loss along a direction have";
  for (const auto& [kind, parameters] : kinds) {
    Named one{kind, slopes.along(parameters)};
    const bool wrong = one.slope.is_wrong();
    if (wrong) one = first_wrong(slopes).value_or(one);
    findings.compare_error(subject, one.name, one.slope.by_gradient, one.slope.by_differences,
                           slope_bound * one.slope.apart() / one.slope.allowed);
    if (wrong) return;  // the same fault may cause errors in other kinds
  }
}

/// `fault` as in check_alone.
LayoutVerdict look_at(const Config& changed, const std::function<void(Config&)>& fault) {
  const auto start = std::chrono::steady_clock::now();
  Config run = changed;
  if (fault) fault(run);
  LayoutVerdict verdict;
  const Mesh mesh;
  Findings findings(mesh, 0);
  try {
    Slopes slopes(changed, run);
    slopes.dropped().compare(findings);
    compare_slopes(slopes, findings);
  } catch (const std::exception& failure) {
    verdict.failure = std::string("a single rank that is looked at: ") + failure.what();
  }
  verdict.first = findings.first();
  verdict.largest = findings.largest();
  verdict.equal = !verdict.first && verdict.failure.empty();
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
  verdict.seconds = seconds.count();
  return verdict;
}

}  // namespace

LayoutVerdict check_alone(const Config& config, const std::function<void(Config&)>& fault) {
  return look_at(to_differentiate(config), fault);
}

LayoutVerdict OneRankChecks::verdict_of(const Config& config) {
  const Config changed = to_differentiate(config);
  const auto known = std::ranges::find(found_, changed, [](const auto& one) { return one.first; });
  if (known == found_.end()) return found_.emplace_back(changed, look_at(changed, {})).second;
  LayoutVerdict verdict = known->second;
  verdict.seconds = 0;
  return verdict;
}

}  // namespace trainctl
