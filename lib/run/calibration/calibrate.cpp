#include "run/calibration/calibrate.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <numeric>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/at.h"
#include "base/error.h"
#include "base/file.h"
#include "base/integers.h"
#include "base/log.h"
#include "base/parallel_for.h"
#include "base/text.h"
#include "base/units.h"
#include "config/devices/figures.h"
#include "formats/print/text.h"
#include "plan/cost/device_prices.h"
#include "plan/prices/machine.h"
#include "run/calibration/published_steps.h"
#include "run/preflight/machine.h"
#include "run/prepare.h"

namespace trainctl {

namespace {

using Numbers = std::vector<double>;

constexpr double min_error = 0.01;   // a smaller error counts as its square
constexpr double max_step = 0.4;     // largest change of a logarithm in a round
constexpr double difference = 0.05;  // change of a logarithm, for finite differences

/// Solves a x = b for a symmetric positive definite a, by Gaussian elimination with pivots.
Numbers solve(std::vector<Numbers> a, Numbers b) {
  const std::size_t n = b.size();
  for (std::size_t column = 0; column < n; ++column) {
    std::size_t pivot = column;
    for (std::size_t row = column; row < n; ++row) {
      if (std::abs(a[row][column]) > std::abs(a[pivot][column])) pivot = row;
    }
    std::swap(a[column], a[pivot]);
    std::swap(b[column], b[pivot]);
    for (std::size_t row = column + 1; row < n; ++row) {
      const double factor = a[row][column] / a[column][column];
      for (std::size_t at = column; at < n; ++at) a[row][at] -= factor * a[column][at];
      b[row] -= factor * b[column];
    }
  }
  for (std::size_t row = n; row-- > 0;) {
    for (std::size_t at = row + 1; at < n; ++at) b[row] -= a[row][at] * b[at];
    b[row] /= a[row][row];
  }
  return b;
}

/// One step of reweighted least squares for errors that change as e + slopes * step; `moved` is the
/// change of each constant's logarithm since the start of the fit.
Numbers step_of(const std::vector<FitCase>& cases, const Numbers& spread, const Numbers& errors,
                const std::vector<Numbers>& slopes, const Numbers& moved) {
  const std::size_t n = moved.size();
  std::vector<Numbers> a(n, Numbers(n, 0));
  Numbers b(n, 0);
  for (std::size_t i = 0; i < cases.size(); ++i) {
    if (!cases[i].used) continue;
    const double weight = cases[i].weight / std::max(std::abs(errors[i]), min_error);
    for (std::size_t row = 0; row < n; ++row) {
      if (slopes[i][row] == 0) continue;
      b[row] -= weight * slopes[i][row] * errors[i];
      for (std::size_t at = 0; at < n; ++at) a[row][at] += weight * slopes[i][row] * slopes[i][at];
    }
  }
  for (std::size_t row = 0; row < n; ++row) {
    const double pull = 2 * usual_error / (spread[row] * spread[row]);
    a[row][row] += pull;
    b[row] -= pull * moved[row];
  }
  Numbers step = solve(std::move(a), std::move(b));
  for (double& one : step) one = std::clamp(one, -max_step, max_step);
  return step;
}

Numbers moved_from(const Numbers& start, const Numbers& values) {
  Numbers moved;
  for (std::size_t i = 0; i < values.size(); ++i) {
    moved.push_back(std::log(values[i] / start[i]));
  }
  return moved;
}

double cost_of(const std::vector<FitCase>& cases, const Numbers& spread, const Numbers& errors,
               const Numbers& moved) {
  double cost = 0;
  for (std::size_t i = 0; i < cases.size(); ++i) cost += cases[i].weight * std::abs(errors[i]);
  for (std::size_t i = 0; i < moved.size(); ++i) {
    cost += usual_error * moved[i] * moved[i] / (spread[i] * spread[i]);
  }
  return cost;
}

Numbers times_exp(const Numbers& values, const Numbers& step, double part) {
  Numbers moved;
  for (std::size_t i = 0; i < values.size(); ++i) {
    moved.push_back(values[i] * std::exp(part * step[i]));
  }
  return moved;
}

/// Derivatives of the errors, [case][constant], by the logarithm of the constant.
std::vector<Numbers> slopes_of(const std::vector<FitCase>& cases, const FitError& error,
                               const Numbers& fitted, const Numbers& errors) {
  std::vector<Numbers> slopes(cases.size(), Numbers(fitted.size(), 0));
  parallel_for(std::ssize(cases), 1, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) {
      for (std::size_t constant = 0; constant < fitted.size(); ++constant) {
        if (!at(cases, i).used || !at(cases, i).concerned[constant]) continue;
        Numbers values = fitted;
        values[constant] *= std::exp(difference);
        const double moved = error(static_cast<std::size_t>(i), values);
        at(slopes, i)[constant] = (moved - at(errors, i)) / difference;
      }
    }
  });
  return slopes;
}

}  // namespace

std::vector<double> errors_of(const std::vector<FitCase>& cases, const FitError& error,
                              const Numbers& values) {
  Numbers errors(cases.size(), 0);
  parallel_for(std::ssize(cases), 1, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) {
      if (at(cases, i).used) at(errors, i) = error(static_cast<std::size_t>(i), values);
    }
  });
  return errors;
}

std::vector<double> fit(const std::vector<FitCase>& cases, const std::vector<double>& start,
                        const std::vector<double>& spread, const FitError& error, int rounds,
                        const std::function<void(int round, double mean)>& tell) {
  Numbers values = start;
  Numbers errors = errors_of(cases, error, values);
  const auto count = static_cast<double>(std::ranges::count(cases, true, &FitCase::used));
  bool better = true;
  for (int round = 0; better; ++round) {
    double mean = 0;
    for (const double one : errors) mean += std::abs(one) / count;
    tell(round, mean);
    if (round == rounds) break;
    const std::vector<Numbers> slopes = slopes_of(cases, error, values, errors);
    const Numbers moved = moved_from(start, values);
    const double before = cost_of(cases, spread, errors, moved);
    const Numbers step = step_of(cases, spread, errors, slopes, moved);
    better = false;
    for (double part = 1; part > 0.2 && !better; part /= 2) {
      const Numbers tried = times_exp(values, step, part);
      const Numbers tried_errors = errors_of(cases, error, tried);
      better = cost_of(cases, spread, tried_errors, moved_from(start, tried)) < before;
      if (!better) continue;
      values = tried;
      errors = tried_errors;
    }
  }
  return values;
}

// The constants of the files in configs/devices and configs/software that are fitted to measured
// steps; at most 26 of them to published steps.

struct Constant {
  std::string file;   // such as "h100", shared by its devices, "nemo", or "shared" by all software
  std::string key;    // key in the file, such as "overhead"
  double start = 0;   // start of the fit
  double spread = 0;  // argument `spread` of fit()
  double most = 0;    // upper bound of the value
  /// The place of its value in a machine; nullptr if the machine does not use the constant.
  std::function<double*(Machine&, const ClusterConfig&)> place;
};

namespace {

/// "h100" for "h100-sxm": devices of one generation share fitted constants.
std::string generation_of(const std::string& device) {
  const std::string name = device.substr(device.find_last_of('/') + 1);
  return name.substr(0, name.find_first_of("-."));
}

constexpr double weak = 0.7, firm = 0.15;

using Member = double SoftwareFigures::*;

Constant of_software(std::string file, std::string key, double start, double spread, double most,
                     Member member) {
  Constant constant{file, std::move(key), start, spread, most, {}};
  constant.place = [file, member](Machine& machine, const ClusterConfig& cluster) -> double* {
    const bool shared = file == "shared" && cluster.software != "trainctl";
    return shared || cluster.software == file ? &(machine.software.*member) : nullptr;
  };
  return constant;
}

Constant sustained(const std::string& generation, double start) {
  Constant constant{generation, "sustained", start, firm, 1, {}};
  constant.place = [generation](Machine& machine, const ClusterConfig& cluster) -> double* {
    return generation_of(cluster.device.value_or("")) == generation ? &machine.device.sustained
                                                                    : nullptr;
  };
  return constant;
}

/// All constants; a row depends on those of its devices and software.
std::vector<Constant> fitted_constants() {
  std::vector<Constant> all{sustained("a100", 0.94), sustained("h100", 0.82),
                            sustained("gb200", 0.86), sustained("h200", 0.82),
                            sustained("b200", 0.86)};
  for (const char* software :
       {"megatron-22", "zb", "nemo", "fsdp-2", "torchtitan", "maxtext", "llmc", "trainctl"}) {
    all.push_back(of_software(software, "overhead", 0.05, weak, 1, &SoftwareFigures::overhead));
  }
  for (const char* software : {"megatron-22", "zb", "fsdp-2"}) {
    all.push_back(
        of_software(software, "attention_speed", 0.9, weak, 2, &SoftwareFigures::attention_speed));
  }
  all.push_back(of_software("fsdp-2", "attention_64", 1, weak, 2, &SoftwareFigures::attention_64));
  all.push_back(
      of_software("megatron-22", "collectives", 1, weak, 3, &SoftwareFigures::collectives));
  const auto shared = [&](const char* key, double start, double most, Member member) {
    all.push_back(of_software("shared", key, start, weak, most, member));
  };
  shared("elements", 1.0, 10, &SoftwareFigures::elements);
  shared("launch", 6e-6, 1e-3, &SoftwareFigures::launch);
  shared("logit_bytes", 12, 200, &SoftwareFigures::logit_bytes);
  shared("score_bytes", 12, 200, &SoftwareFigures::score_bytes);
  shared("tensor_rest", 0.35, 1, &SoftwareFigures::tensor_rest);
  shared("sums_rest", 0.1, 1, &SoftwareFigures::sums_rest);
  shared("network_share", 0.75, 1, &SoftwareFigures::network_share);
  shared("network_latency", 1e-5, 1e-3, &SoftwareFigures::network_latency);
  shared("fixed", 0.02, 10, &SoftwareFigures::fixed);
  return all;
}

constexpr int folds = 8;

/// A measured step with its plan.
struct PlannedStep {
  PublishedStep step;
  Config config;
  Plan plan;
  Machine machine;
  int fold = 0;
  double predict(const std::vector<Constant>& constants, const Numbers& values) const {
    Machine changed = machine;
    for (std::size_t i = 0; i < constants.size(); ++i) {
      double* place = constants[i].place(changed, config.cluster);
      if (place != nullptr) *place = std::min(values[i], constants[i].most);
    }
    changed.levels = levels_of(config.cluster, changed, step.ranks);
    return estimate_time(plan, changed, {}, {}, 0).step();
  }
};

/// Plans a step; returns none after writing the reason to `step.unplanned`.
std::optional<PlannedStep> plan_step(PublishedStep& step) {
  ReadResult read = read_config_text(step.config, step.name, {});
  Site site;
  site.world_size = step.ranks;
  site.ranks_per_host = std::min<std::int64_t>(8, step.ranks);
  site.device = DeviceKind::cuda;
  site.cudnn = true;
  PlannedStep planned;
  planned.plan = prepare(read, site, Purpose::plan);
  for (const Diagnostic& one : read.diagnostics.list()) {
    if (one.severity == Severity::error && step.unplanned.empty()) {
      step.unplanned = one.code + ": " + one.message;
    }
  }
  if (!step.unplanned.empty()) return std::nullopt;
  const auto machine = machine_of(read.config.cluster, step.ranks);
  if (!machine) {
    step.unplanned = "section cluster names no device";
    return std::nullopt;
  }
  planned.machine = *machine;
  planned.config = read.config;
  planned.step = step;
  return planned;
}

double mean_of_all(const Numbers& numbers) {
  return numbers.empty() ? 0
                         : std::accumulate(numbers.begin(), numbers.end(), 0.0) /
                               static_cast<double>(numbers.size());
}

double quantile(Numbers numbers, double part) {
  if (numbers.empty()) return 0;
  std::ranges::sort(numbers);
  const double last = static_cast<double>(numbers.size() - 1);
  return numbers[static_cast<std::size_t>(std::lround(part * last))];
}

std::string shares_text(const Numbers& errors) {
  return formatted("mean {:.1f} %, median {:.1f} %, nine tenths below {:.1f} %, most {:.1f} %",
                   100 * mean_of_all(errors), 100 * quantile(errors, 0.5),
                   100 * quantile(errors, 0.9), 100 * quantile(errors, 1));
}

/// Relative errors |prediction / measurement - 1|.
Numbers relative(const Numbers& logs) {
  Numbers all;
  for (const double one : logs) all.push_back(std::abs(std::exp(one) - 1));
  return all;
}

/// Distributes the groups of fitted rows over the folds, ordered by the hash of their names. Other
/// rows are in no fit; the fit of the first fold predicts them.
void deal_folds(std::vector<PlannedStep>& rows) {
  std::map<std::uint64_t, std::vector<PlannedStep*>> groups;
  for (PlannedStep& row : rows) {
    if (row.step.fitted) groups[fnv1a(row.step.group, fnv_offset)].push_back(&row);
  }
  int next = 0;
  for (auto& [hash, members] : groups) {
    for (PlannedStep* row : members) row->fold = next % folds;
    ++next;
  }
}

/// The rank correlation of two lists.
double rank_correlation(const Numbers& a, const Numbers& b) {
  const auto ranks = [](const Numbers& list) {
    std::vector<std::size_t> order(list.size());
    std::iota(order.begin(), order.end(), 0);
    std::ranges::sort(order, [&](std::size_t x, std::size_t y) { return list[x] < list[y]; });
    Numbers found(list.size());
    for (std::size_t i = 0; i < order.size(); ++i) found[order[i]] = static_cast<double>(i);
    return found;
  };
  const Numbers x = ranks(a);
  const Numbers y = ranks(b);
  double sum = 0;
  for (std::size_t i = 0; i < x.size(); ++i) sum += (x[i] - y[i]) * (x[i] - y[i]);
  const auto n = static_cast<double>(x.size());
  return 1 - 6 * sum / (n * (n * n - 1));
}

class Calibrator {
 public:
  /// Plans the rows and tells the errors of the figures in use.
  explicit Calibrator(const std::string& rows) {
    plan_rows(read_published_steps(rows));
    constants_ = concerned(fitted_constants());
    const Numbers errors = errors_with(in_use_);
    tell_errors("with the figures in use", errors);
    tell_sources(errors);
    result_.sets = tell_sets(errors);
    result_.constants = constants_.size();
    result_.mean = mean_of_all(relative(dense(errors)));
    result_.median = quantile(relative(dense(errors)), 0.5);
    result_.experts_mean = mean_of_all(relative(with_experts(errors)));
  }

  void fit_files(const std::string& device_out, const std::string& software_out) {
    if (!constants_.empty()) write_files(fit_all(), device_out, software_out);
  }

  Calibration take() { return std::move(result_); }

 private:
  template <class... Values>
  void tell(fmt::format_string<Values...> pattern, Values&&... values) {
    result_.text += formatted(pattern, std::forward<Values>(values)...);
  }

  void plan_rows(std::vector<PublishedStep> steps) {
    std::map<std::string, int> reasons;
    for (std::size_t i = 0; i < steps.size(); ++i) {
      if (i % 16 == 0) log_info(formatted("planned {} of {} rows", i, steps.size()));
      std::optional<PlannedStep> planned;
      if (steps[i].unplanned.empty()) planned = plan_step(steps[i]);
      if (planned) {
        rows_.push_back(std::move(*planned));
      } else {
        ++reasons[steps[i].unplanned];
      }
    }
    result_.planned = rows_.size();
    const auto compared =
        std::ranges::count(rows_, false, [](const PlannedStep& row) { return row.step.fitted; });
    tell("{} rows, {} planned, of these {} compared only\n", steps.size(), rows_.size(), compared);
    for (const auto& [reason, count] : reasons) tell("  {} not planned: {}\n", count, reason);
    deal_folds(rows_);
    std::map<std::string, double> counts;
    for (const PlannedStep& row : rows_) counts[row.step.source] += row.step.fitted ? 1 : 0;
    // A source has a total weight of its number of rows to the power of 0.6.
    for (const PlannedStep& row : rows_) {
      const double weight = row.step.fitted ? std::pow(counts[row.step.source], -0.4) : 0;
      cases_.push_back({.weight = weight, .concerned = {}, .used = row.step.fitted});
    }
  }

  /// The constants that a row of the fit depends on.
  std::vector<Constant> concerned(std::vector<Constant> all) {
    std::vector<Constant> kept;
    for (Constant& constant : all) {
      bool some = false;
      for (std::size_t i = 0; i < rows_.size(); ++i) {
        Machine machine = rows_[i].machine;
        const double* place = constant.place(machine, rows_[i].config.cluster);
        const bool depends = place != nullptr && rows_[i].step.fitted;
        if (depends && !some) in_use_.push_back(*place);
        some = some || depends;
        cases_[i].concerned.push_back(depends);
      }
      if (some) {
        kept.push_back(std::move(constant));
      } else {
        for (FitCase& one : cases_) one.concerned.pop_back();
      }
    }
    return kept;
  }

  double error_of(std::size_t number, const Numbers& values) const {
    const PlannedStep& row = rows_[number];
    return std::log(row.predict(constants_, values) / row.step.seconds);
  }

  Numbers errors_with(const Numbers& values) const {
    Numbers errors(rows_.size());
    parallel_for(std::ssize(rows_), 1, [&](std::int64_t begin, std::int64_t end) {
      for (auto i = static_cast<std::size_t>(begin); i < static_cast<std::size_t>(end); ++i) {
        errors[i] = error_of(i, values);
      }
    });
    return errors;
  }

  Numbers of_rows(bool experts, const Numbers& errors) const {
    Numbers found;
    for (std::size_t i = 0; i < rows_.size(); ++i) {
      if (rows_[i].step.experts == experts) found.push_back(errors[i]);
    }
    return found;
  }
  Numbers dense(const Numbers& errors) const { return of_rows(false, errors); }
  Numbers with_experts(const Numbers& errors) const { return of_rows(true, errors); }

  void tell_errors(const std::string& what, const Numbers& errors) {
    const Numbers dense_rows = dense(errors);
    tell("{}, {} dense rows: {}\n", what, dense_rows.size(), shares_text(relative(dense_rows)));
    const Numbers experts = with_experts(errors);
    if (experts.empty()) return;
    tell("{}, {} rows with experts: {}\n", what, experts.size(), shares_text(relative(experts)));
  }

  void tell_sources(const Numbers& errors) {
    std::map<std::string, Numbers> by_source;
    for (std::size_t i = 0; i < rows_.size(); ++i) {
      const PublishedStep& step = rows_[i].step;
      by_source[step.source + (step.experts ? " (experts)" : "")].push_back(errors[i]);
    }
    for (const auto& [source, logs] : by_source) {
      tell("  {}{} rows, bias {:+.1f} %, {}\n", padded(source, 40), logs.size(),
           100 * (std::exp(mean_of_all(logs)) - 1), shares_text(relative(logs)));
    }
    for (std::size_t i = 0; i < rows_.size(); ++i) {
      const double off = std::exp(errors[i]) - 1;
      log_debug(formatted("{}: measured {}, planned {:+.1f} %", rows_[i].step.name,
                          format_seconds(rows_[i].step.seconds), 100 * off));
    }
  }

  /// For each set of rows that differ in layout only: whether the fastest layout is chosen.
  std::vector<RowSet> tell_sets(const Numbers& errors) {
    std::vector<RowSet> sets;
    constexpr std::size_t least = 5;
    std::map<std::string, std::vector<std::size_t>> by_set;
    for (std::size_t i = 0; i < rows_.size(); ++i) by_set[rows_[i].step.set].push_back(i);
    for (const auto& [set, members] : by_set) {
      if (set.empty() || members.size() < least) continue;
      Numbers measured;
      Numbers planned;
      for (const std::size_t i : members) {
        measured.push_back(rows_[i].step.seconds);
        planned.push_back(rows_[i].step.seconds * std::exp(errors[i]));
      }
      const auto chosen = std::ranges::min_element(planned) - planned.begin();
      const double lost =
          measured[static_cast<std::size_t>(chosen)] / *std::ranges::min_element(measured) - 1;
      sets.push_back({members.size(), lost, rank_correlation(measured, planned)});
      tell(
          "  set of {} layouts ({}): the choice is {:.1f} % slower than the fastest, rank "
          "correlation {:.2f}\n",
          members.size(), set, 100 * lost, sets.back().correlation);
    }
    return sets;
  }

  Numbers fit_all() {
    Numbers start, spread;
    for (const Constant& constant : constants_) {
      start.push_back(constant.start);
      spread.push_back(constant.spread);
    }
    constexpr int rounds = 8;
    const auto error = [this](std::size_t i, const Numbers& values) { return error_of(i, values); };
    const auto fit_without = [&](int fold) {
      for (std::size_t i = 0; i < rows_.size(); ++i) {
        cases_[i].used = rows_[i].step.fitted && rows_[i].fold != fold;
      }
      const auto tell_round = [](int round, double mean) {
        log_info(formatted("round {}: mean error {:.4f}", round, mean));
      };
      return fit(cases_, start, spread, error, rounds, tell_round);
    };
    const Numbers fitted = fit_without(folds);
    const Numbers errors = errors_with(fitted);
    tell_errors("fitted", errors);
    tell_sources(errors);
    tell_sets(errors);
    Numbers held(rows_.size());
    for (int fold = 0; fold < folds; ++fold) {
      log_info(formatted("fold {} of {}", fold + 1, folds));
      const Numbers values = fit_without(fold);
      for (std::size_t i = 0; i < rows_.size(); ++i) {
        if (rows_[i].fold == fold) held[i] = error_of(i, values);
      }
    }
    tell_errors("by eight folds of groups", held);
    result_.folds_mean = mean_of_all(relative(dense(held)));
    result_.folds_median = quantile(relative(dense(held)), 0.5);
    tell("{} constants\n", constants_.size());
    for (std::size_t i = 0; i < constants_.size(); ++i) {
      const Constant& constant = constants_[i];
      tell("  {:<14}{:<18}{:>12.4g}  in use {:.4g}{}\n", constant.file, constant.key,
           std::min(fitted[i], constant.most), in_use_[i],
           fitted[i] >= constant.most ? "  held by its cap" : "");
    }
    return fitted;
  }

  /// `text` with the line `key: value`, which replaces an existing line of that key.
  static std::string with_value(const std::string& text, const std::string& key, double value) {
    const std::string line = key + ": " + printed("%.4g", value);
    std::size_t begin = text.starts_with(key + ":") ? 0 : text.find("\n" + key + ":");
    if (begin == std::string::npos) {
      const std::size_t place = text.find("\nsources:");
      const std::size_t at = place == std::string::npos ? text.size() : place + 1;
      return text.substr(0, at) + line + "\n" + text.substr(at);
    }
    if (begin > 0) ++begin;
    const std::size_t end = text.find('\n', begin);
    return text.substr(0, begin) + line + (end == std::string::npos ? "" : text.substr(end));
  }

  void write_known(std::span<const KnownFile> files, const std::string& folder, bool devices,
                   const Numbers& values) {
    for (const KnownFile& file : files) {
      std::string text(file.text);
      bool changed = false;
      for (std::size_t i = 0; i < constants_.size(); ++i) {
        const std::string name(file.name);
        if (constants_[i].file != (devices ? generation_of(name) : name)) continue;
        text = with_value(text, constants_[i].key, std::min(values[i], constants_[i].most));
        changed = true;
      }
      if (!changed) continue;
      const std::string path = folder + "/" + std::string(file.name) + ".yaml";
      write_whole_file(path, text);
      tell("wrote {}\n", path);
    }
  }

  void write_files(const Numbers& values, const std::string& device_out,
                   const std::string& software_out) {
    if (!device_out.empty()) write_known(known_devices(), device_out, true, values);
    if (software_out.empty()) return;
    const KnownFile shared = shared_software();
    write_known({&shared, 1}, software_out, false, values);
    write_known(known_software(), software_out, false, values);
  }

  std::vector<PlannedStep> rows_;
  std::vector<FitCase> cases_;
  std::vector<Constant> constants_;
  Numbers in_use_;  // values of the constants in use
  Calibration result_;
};

}  // namespace

Calibration calibrate(const std::string& rows, const std::string& device_out,
                      const std::string& software_out) {
  set_thread_count(usable_cores());
  Calibrator calibrator(rows);
  calibrator.fit_files(device_out, software_out);
  return calibrator.take();
}

Calibration errors_of_shipped(const std::string& rows) {
  set_thread_count(usable_cores());
  return Calibrator(rows).take();
}

}  // namespace trainctl
