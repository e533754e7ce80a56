#include "plan/prepare/lengths.h"

#include <cmath>
#include <string>

#include "config/support/batch_ramp.h"
#include "plan/rules/check.h"
#include "plan/rules/resolve.h"

namespace trainctl {

namespace {

constexpr double most_steps = 1e12;
constexpr std::int64_t assumed_steps = 1'000'000'000;

class Lengths {
 public:
  Lengths(Config& config, SourceMap& sources, Diagnostics& diagnostics)
      : config_(config),
        sources_(sources),
        check_(sources, diagnostics),
        has_errors_(diagnostics.has_errors()) {}

  void settle(const Site& site, std::optional<std::int64_t> windows) {
    settle_batch(site);
    ramp_ = resolve_batch(config_.train, resolve_mesh(config_.parallel, site.world_size)).ramp;
    settle_tokens();
    settle_epochs(windows);
    settle_warmup();
    shorten_phases();
    config_.train.tokens.reset();
    config_.train.epochs.reset();
    config_.lr_schedule.warmup_ratio.reset();
  }

 private:
  void settle_batch(const Site& site) {
    TrainConfig& train = config_.train;
    if (train.global_batch_size > 0 || !train.micro_batch_size || !train.micro_batch_num) return;
    if (!check_.clean({"train.global_batch_size"})) return;
    const Mesh mesh = resolve_mesh(config_.parallel, site.world_size);
    train.global_batch_size =
        product_of({*train.micro_batch_size, *train.micro_batch_num, mesh.dp});
    record("train.global_batch_size", "train.micro_batch_num",
           "micro_batch_size x micro_batch_num x data_parallel (" + std::to_string(mesh.dp) + ")");
  }

  void settle_tokens() {
    if (!config_.train.tokens) return;
    if (!check_.clean({"train.tokens", "train.global_batch_size", "model.seq_length"})) {
      return assume_steps();
    }
    const std::int64_t batch = config_.train.global_batch_size;
    const std::int64_t length = config_.model.seq_length;
    const std::int64_t step = product_of({batch, length});
    if (step <= 0) return assume_steps();
    const std::int64_t tokens = *config_.train.tokens;
    if (rounds()) {
      const std::int64_t samples = tokens / length + (tokens % length == 0 ? 0 : 1);
      return settle_steps("train.tokens", std::to_string(tokens),
                          " / " + named("seq_length", length) + in_ramp(samples),
                          steps_with(ramp_, samples));
    }
    const std::int64_t steps = tokens / step + (tokens % step == 0 ? 0 : 1);
    const std::string way = " / (" + named("global_batch_size", batch) + " x " +
                            named("seq_length", length) + " = " + std::to_string(step) +
                            " per step)" + (tokens % step == 0 ? "" : ", rounded up,");
    settle_steps("train.tokens", std::to_string(tokens), way, steps);
  }

  void settle_epochs(std::optional<std::int64_t> windows) {
    if (!config_.train.epochs) return;
    if (!check_.clean({"train.epochs", "train.global_batch_size", "model.seq_length"})) {
      return assume_steps();
    }
    const std::int64_t batch = config_.train.global_batch_size;
    if (!windows || batch <= 0) {
      if (config_.train.steps > 0) return;
      if (has_errors_) return assume_steps();
      check_.error("missing-key", "train.steps",
                   "epochs gives no steps here, because the training data was not counted",
                   "give train.steps or train.tokens, or let --data count it");
      return;
    }
    const double passes = *config_.train.epochs;
    if (rounds()) {
      const double samples =
          std::ceil(std::min(passes * static_cast<double>(*windows), most_steps) - 1e-9);
      const auto count = static_cast<std::int64_t>(samples);
      return settle_steps(
          "train.epochs", number(passes),
          " x " + std::to_string(*windows) + " sequences in the training data" + in_ramp(count),
          std::max<std::int64_t>(1, steps_with(ramp_, count)));
    }
    const double exact = passes * static_cast<double>(*windows) / static_cast<double>(batch);
    const auto steps = static_cast<std::int64_t>(std::ceil(std::min(exact, most_steps) - 1e-9));
    const std::string way = " x " + std::to_string(*windows) +
                            " sequences in the training data / " +
                            named("global_batch_size", batch);
    settle_steps("train.epochs", number(passes), way, std::max<std::int64_t>(1, steps));
  }

  /// Some batch is not global_batch_size.
  bool rounds() const {
    return ramp_.size() > 1 || ramp_.front().batch != config_.train.global_batch_size;
  }

  /// Of an arithmetic that gives a number of sequences.
  std::string in_ramp(std::int64_t samples) const {
    return " = " + std::to_string(samples) + " sequences, in batches of " +
           std::to_string(ramp_.front().batch) +
           (ramp_.size() > 1 ? " to " + std::to_string(ramp_.back().batch) : "") + ", rounded up,";
  }

  /// `path` asks for that many steps.
  void settle_steps(const std::string& path, const std::string& value, const std::string& way,
                    std::int64_t steps) {
    TrainConfig& train = config_.train;
    const std::string arithmetic = named(path, value) + way + " = " + std::to_string(steps);
    if (train.steps == 0 && check_.clean({"train.steps"})) {
      train.steps = steps;
      record("train.steps", path, arithmetic);
    } else if (train.steps != steps && check_.clean({"train.steps"})) {
      differ("train.steps", train.steps, path, arithmetic, steps);
    }
  }

  void settle_warmup() {
    LrScheduleConfig& schedule = config_.lr_schedule;
    if (!schedule.warmup_ratio || config_.train.steps <= 0) return;
    if (!check_.clean({"lr_schedule.warmup_ratio", "lr_schedule.warmup_steps", "train.steps"}))
      return;
    const std::int64_t steps = config_.train.steps;
    const double exact = *schedule.warmup_ratio * static_cast<double>(steps);
    const auto warmup = static_cast<std::int64_t>(std::ceil(std::min(exact, most_steps) - 1e-9));
    const std::string arithmetic =
        named("lr_schedule.warmup_ratio", number(*schedule.warmup_ratio)) + " x " +
        named("train.steps", steps) + " = " + std::to_string(warmup);
    if (!check_.given("lr_schedule.warmup_steps")) {
      schedule.warmup_steps = warmup;
      record("lr_schedule.warmup_steps", "lr_schedule.warmup_ratio", arithmetic);
    } else if (schedule.warmup_steps != warmup) {
      differ("lr_schedule.warmup_steps", schedule.warmup_steps, "lr_schedule.warmup_ratio",
             arithmetic, warmup);
    }
  }

  /// A run that is shorter than the phases of its schedule, as a trial is, gets shorter ones. Where
  /// decay_steps is given, the schedule has its own length.
  void shorten_phases() {
    LrScheduleConfig& schedule = config_.lr_schedule;
    const std::int64_t steps = config_.train.steps;
    if (schedule.decay_steps || steps <= 0) return;
    shorten("lr_schedule.warmup_steps", schedule.warmup_steps, steps - 1);
    if (schedule.style == LrStyle::wsd && schedule.wsd_decay_steps) {
      shorten("lr_schedule.wsd_decay_steps", *schedule.wsd_decay_steps, steps);
    }
  }

  void shorten(const std::string& path, std::int64_t& value, std::int64_t most) {
    if (value <= most || value > most_count || !check_.clean({path, "train.steps"})) return;
    const std::string key = path.substr(path.find('.') + 1);
    const std::string limit = "train.steps (" + std::to_string(config_.train.steps) + ")";
    check_.warning("short-run", path,
                   named(key, value) + " is too long for " + limit + " and is shortened to " +
                       std::to_string(most),
                   "set " + key + " to " + std::to_string(most) +
                       " or less; or give decay_steps, and the schedule keeps its length");
    value = most;
    record(path, path, "shortened for " + limit);
  }

  /// Another error hides the number: so many that rules about steps have nothing to say.
  void assume_steps() {
    if (config_.train.steps == 0) config_.train.steps = assumed_steps;
  }

  void record(const std::string& path, const std::string& from, const std::string& why) {
    Place place = sources_.find(from);
    place.note = why;
    sources_.record(path, place);
  }

  /// A --set option wins over the file, in whatever form.
  void differ(const std::string& path, std::int64_t& given, const std::string& from,
              const std::string& arithmetic, std::int64_t wanted) {
    const bool first = sources_.find(path).origin == Place::Origin::set_option;
    const bool second = sources_.find(from).origin == Place::Origin::set_option;
    if (first && !second) return;
    if (second && !first) {
      given = wanted;
      return record(path, from, arithmetic);
    }
    const std::string key = path.substr(path.find('.') + 1);
    const std::string other = from.substr(from.find('.') + 1);
    check_.error(
        "length-differs", path,
        named(path, given) + " in " + sources_.find(path).position() + " contradicts " +
            arithmetic + " in " + sources_.find(from).position(),
        "remove " + key + " or " + other + ", or set " + key + " to " + std::to_string(wanted));
  }

  Config& config_;
  SourceMap& sources_;
  Check check_;
  bool has_errors_;  // so the data was not counted
  std::vector<RampPart> ramp_;
};

}  // namespace

void settle_lengths(Config& config, SourceMap& sources, const Site& site,
                    std::optional<std::int64_t> windows, Diagnostics& diagnostics) {
  Lengths(config, sources, diagnostics).settle(site, windows);
}

}  // namespace trainctl
