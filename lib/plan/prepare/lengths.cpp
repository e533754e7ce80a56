#include "plan/prepare/lengths.h"

#include <algorithm>
#include <cmath>
#include <string>

#include "config/support/batch_ramp.h"
#include "plan/rules/check.h"
#include "plan/rules/resolve.h"

namespace trainctl {

namespace {

constexpr double max_steps = 1e12;
constexpr std::int64_t assumed_steps = 1'000'000'000;

std::int64_t divided_up(std::int64_t value, std::int64_t by) {
  return value / by + (value % by == 0 ? 0 : 1);
}

/// A number with its unit: "512 done".
std::string number_of(std::int64_t count, const char* what) {
  return std::to_string(count) + " " + what;
}

class Lengths {
 public:
  Lengths(Config& config, SourceMap& sources, const Site& site, Diagnostics& diagnostics)
      : config_(config),
        sources_(sources),
        check_(sources, diagnostics),
        has_errors_(diagnostics.has_errors()),
        done_(site.done) {}

  RunLength settle(const Site& site, std::optional<std::int64_t> windows) {
    windows_ = windows;
    settle_batch(site);
    ramp_ = resolve_batch(config_.train, resolve_mesh(config_.parallel, site.world_size),
                          done_.steps, done_.samples)
                .ramp;
    RunLength length{.tokens = config_.train.tokens, .epochs = config_.train.epochs, .pace = {}};
    settle_tokens();
    settle_epochs();
    length.pace = pace_of(length);
    settle_warmup(length.pace.end);
    shorten_phases(length.pace.end);
    config_.train.tokens.reset();
    config_.train.epochs.reset();
    config_.lr_schedule.warmup_ratio.reset();
    return length;
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

  /// The total number of steps when `sequences` more are read than already done.
  std::int64_t steps_after(std::int64_t sequences) const {
    return steps_with(ramp_, done_.samples + std::max<std::int64_t>(0, sequences));
  }
  std::int64_t steps_for_tokens(std::int64_t tokens) const {
    return steps_after(
        divided_up(std::max<std::int64_t>(0, tokens - done_.positions), config_.model.seq_length));
  }
  /// The number of sequences left of `passes` over `windows_`, which must be known.
  std::int64_t sequences_of(double passes) const {
    const double all = std::min(passes * static_cast<double>(*windows_), max_steps);
    return static_cast<std::int64_t>(std::ceil(all - static_cast<double>(done_.windows) - 1e-9));
  }

  void settle_tokens() {
    if (!config_.train.tokens) return;
    if (!check_.clean({"train.tokens", "train.global_batch_size", "model.seq_length"})) {
      return assume_steps();
    }
    const std::int64_t length = config_.model.seq_length;
    const std::int64_t step = product_of({config_.train.global_batch_size, length});
    if (step <= 0) return assume_steps();
    const std::int64_t tokens = *config_.train.tokens;
    std::string way;
    if (done_.steps > 0) way = " - " + number_of(done_.positions, "done");
    const std::int64_t left = std::max<std::int64_t>(0, tokens - done_.positions);
    if (rounds()) {
      way += " / " + named("seq_length", length) + in_ramp(divided_up(left, length));
    } else {
      way += " / (" + named("global_batch_size", config_.train.global_batch_size) + " x " +
             named("seq_length", length) + " = " + std::to_string(step) + " per step)" +
             (left % step == 0 ? "" : ", rounded up,");
    }
    settle_steps("train.tokens", std::to_string(tokens), way, steps_for_tokens(tokens));
  }

  void settle_epochs() {
    if (!config_.train.epochs) return;
    if (!check_.clean({"train.epochs", "train.global_batch_size", "model.seq_length"})) {
      return assume_steps();
    }
    const std::int64_t batch = config_.train.global_batch_size;
    if (!windows_ || batch <= 0) {
      if (config_.train.steps > 0) return;
      if (has_errors_) return assume_steps();
      return check_.error("missing-key", "train.steps",
                          "epochs gives no steps here, because the training data was not counted",
                          "give train.steps or train.tokens, or let --data count it");
    }
    const double passes = *config_.train.epochs;
    const std::int64_t sequences = sequences_of(passes);
    std::string way = " x " + std::to_string(*windows_) + " sequences in the training data";
    if (done_.steps > 0) way += " - " + number_of(done_.windows, "done");
    way += rounds() ? in_ramp(sequences) : " / " + named("global_batch_size", batch);
    settle_steps("train.epochs", number(passes), way,
                 std::max<std::int64_t>(1, steps_after(sequences)));
  }

  /// Whether some batch size differs from global_batch_size.
  bool rounds() const {
    return ramp_.size() > 1 || ramp_.front().batch != config_.train.global_batch_size;
  }

  /// The arithmetic by which a number of sequences gives steps, as text.
  std::string in_ramp(std::int64_t samples) const {
    return " = " + std::to_string(samples) + " sequences, in batches of " +
           std::to_string(ramp_.front().batch) +
           (ramp_.size() > 1 ? " to " + std::to_string(ramp_.back().batch) : "") + ", rounded up,";
  }

  /// The number of steps with the present batches for the length that an earlier session asked for;
  /// nullopt if unknown.
  std::optional<std::int64_t> steps_of(const RunLength& asked) const {
    if (asked.tokens) return steps_for_tokens(*asked.tokens);
    if (asked.epochs && windows_)
      return std::max<std::int64_t>(1, steps_after(sequences_of(*asked.epochs)));
    return std::nullopt;
  }

  /// The pace through the schedules: their rest takes the remaining steps of the run. If the run is
  /// extended or shortened, the schedules grow or shrink by steps of the present pace.
  SchedulePace pace_of(const RunLength& now) const {
    const std::int64_t steps = config_.train.steps;
    if (done_.steps == 0) return {.end = steps};
    const bool by_steps = !now.tokens && !now.epochs;
    const RunLength before = done_.planned.value_or(RunLength{now.tokens, now.epochs, {}});
    SchedulePace pace = before.pace;
    if (pace.end == 0) pace.end = done_.planned_steps;
    const bool same_form = before.tokens.has_value() == now.tokens.has_value() &&
                           before.epochs.has_value() == now.epochs.has_value();
    const auto go_on_from_here = [&](double per_update) {
      pace = {done_.updates, pace.at(done_.updates), per_update, pace.end};
    };
    if (!same_form) {
      go_on_from_here(1);
      pace.end = static_cast<std::int64_t>(std::ceil(pace.position)) +
                 std::max<std::int64_t>(0, steps - done_.steps);
      return pace;
    }
    const std::int64_t unchanged =
        by_steps ? done_.planned_steps : steps_of(before).value_or(steps);
    const std::int64_t left_before = done_.planned_steps - done_.steps;
    const std::int64_t left = unchanged - done_.steps;
    if (left_before > 0 && left > 0 && left != left_before) {
      go_on_from_here(pace.per_update * static_cast<double>(left_before) /
                      static_cast<double>(left));
    }
    const double more = pace.per_update * static_cast<double>(steps - unchanged);
    pace.end += static_cast<std::int64_t>(std::ceil(more - 1e-9));
    return pace;
  }

  /// Sets train.steps, or checks it, for the key `path` that gives `steps` steps.
  void settle_steps(const std::string& path, const std::string& value, const std::string& way,
                    std::int64_t steps) {
    TrainConfig& train = config_.train;
    const std::string behind =
        done_.steps > 0 ? ", after " + std::to_string(done_.steps) + " steps" : "";
    const std::string arithmetic =
        named(path, value) + way + " = " + std::to_string(steps - done_.steps) + behind;
    if (train.steps == 0 && check_.clean({"train.steps"})) {
      train.steps = steps;
      record("train.steps", path, arithmetic);
    } else if (train.steps != steps && check_.clean({"train.steps"})) {
      differ("train.steps", train.steps, path, arithmetic, steps);
    }
  }

  /// `steps`: length of the whole schedule.
  void settle_warmup(std::int64_t steps) {
    LrScheduleConfig& schedule = config_.lr_schedule;
    if (!schedule.warmup_ratio || steps <= 0) return;
    if (!check_.clean({"lr_schedule.warmup_ratio", "lr_schedule.warmup_steps", "train.steps"}))
      return;
    const double exact = *schedule.warmup_ratio * static_cast<double>(steps);
    const auto warmup = static_cast<std::int64_t>(std::ceil(std::min(exact, max_steps) - 1e-9));
    const std::string arithmetic =
        named("lr_schedule.warmup_ratio", number(*schedule.warmup_ratio)) + " x " +
        named("train.steps", steps) + " = " + std::to_string(warmup);
    // A dumped configuration has every key, also if only the ratio was given.
    if (!check_.given("lr_schedule.warmup_steps") || schedule.warmup_steps == 0) {
      schedule.warmup_steps = warmup;
      record("lr_schedule.warmup_steps", "lr_schedule.warmup_ratio", arithmetic);
    } else if (schedule.warmup_steps != warmup) {
      differ("lr_schedule.warmup_steps", schedule.warmup_steps, "lr_schedule.warmup_ratio",
             arithmetic, warmup);
    }
  }

  /// Shortens the phases of the schedule for a run that is shorter, such as a trial. With
  /// decay_steps, the schedule has its own length. `steps`: length of the whole schedule.
  void shorten_phases(std::int64_t steps) {
    LrScheduleConfig& schedule = config_.lr_schedule;
    if (schedule.decay_steps || steps <= 0) return;
    // A resumed run with other batches passes through its schedule at another pace.
    const std::string limit =
        (steps == config_.train.steps ? "train.steps (" : "the schedule's steps (") +
        std::to_string(steps) + ")";
    shorten("lr_schedule.warmup_steps", schedule.warmup_steps, steps - 1, limit);
    if (schedule.style == LrStyle::wsd && schedule.wsd_decay_steps) {
      shorten("lr_schedule.wsd_decay_steps", *schedule.wsd_decay_steps, steps, limit);
    }
  }

  void shorten(const std::string& path, std::int64_t& value, std::int64_t most,
               const std::string& limit) {
    if (value <= most || value > max_count || !check_.clean({path, "train.steps"})) return;
    const std::string key = path.substr(path.find('.') + 1);
    check_.warning("short-run", path,
                   named(key, value) + " is too long for " + limit + " and is shortened to " +
                       std::to_string(most),
                   "set " + key + " to " + std::to_string(most) +
                       " or less; or give decay_steps, and the schedule keeps its length");
    value = most;
    record(path, path, "shortened for " + limit);
  }

  /// Another error hides the number of steps, so it is set too high for any rule to fail.
  void assume_steps() {
    if (config_.train.steps == 0) config_.train.steps = assumed_steps;
  }

  void record(const std::string& path, const std::string& from, const std::string& why) {
    Place place = sources_.find(from);
    place.note = why;
    sources_.record(path, place);
  }

  /// A --set option overrides the file, in either form.
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
  bool has_errors_;  // then the data was not counted
  const Progress& done_;
  std::optional<std::int64_t> windows_;
  std::vector<RampPart> ramp_;
};

}  // namespace

RunLength settle_lengths(Config& config, SourceMap& sources, const Site& site,
                         std::optional<std::int64_t> windows, Diagnostics& diagnostics) {
  return Lengths(config, sources, site, diagnostics).settle(site, windows);
}

}  // namespace trainctl
