// trainctl verify: proves layouts equal to a single rank, over threads of this process or over MPI.

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/json_text.h"
#include "base/log.h"
#include "base/text.h"
#include "base/units.h"
#include "comm/group.h"
#include "comm/values.h"
#include "comm/world.h"
#include "commands.h"
#include "formats/print/text.h"
#include "output.h"
#include "run/agreement.h"
#include "run/directory/signals.h"
#include "run/records/step_records.h"
#include "verify/alone_check.h"
#include "verify/ranks.h"
#include "verify/selection/selection.h"
#include "verify/switches/option_words.h"
#include "verify/verify.h"
#include "verify_tasks.h"

namespace trainctl {

// The output of `trainctl verify`: rows as layouts finish, or one JSON document at the end.
// Progress goes to stderr.

namespace {

using Json = nlohmann::ordered_json;

Json json_of(const Departure& departure) {
  const auto value = [](double number) { return std::isfinite(number) ? Json(number) : Json(); };
  return {{"step", departure.step},          {"what", departure.what},
          {"tensor", departure.tensor},      {"rank", departure.rank},
          {"index", departure.index},        {"found", value(departure.found)},
          {"beside", departure.beside},      {"expected", value(departure.expected)},
          {"error", value(departure.error)}, {"bound", departure.bound}};
}

/// The first few layouts, and the number of the others.
std::string listed(const std::vector<std::string>& layouts) {
  constexpr std::size_t most = 4;
  const std::string text = joined(std::span(layouts).first(std::min(most, layouts.size())), ", ");
  if (layouts.size() <= most) return text;
  return formatted("{} and {} more", text, layouts.size() - most);
}

/// Rows and the summary, on standard output.
class VerifyOutput {
 public:
  struct Options {
    bool json = false;
    std::int64_t steps = 0;
    std::size_t widest = 0;  // letters of the longest layout
    bool pairs = false;      // a row is a pair of layouts, with a checkpoint half way
  };
  /// `selection` lists the skipped layouts; it must outlive this object.
  VerifyOutput(const Options& options, const LayoutSelection& selection)
      : options_(options),
        selection_(selection),
        widths_{std::max<std::size_t>(options.widest, 6), 9, 62, 7} {
    if (!options.json) line({"layout", "error", "largest at", "verdict"}, "seconds");
  }

  /// Call before the rows with these settings, which are in addition to the file's.
  void begin(const Settings& settings) const {
    if (options_.json || settings.empty()) return;
    std::string text = "with";
    for (const std::string& setting : settings) text += " --set " + shell_word(setting);
    print(text + ":\n");
  }

  /// Call before the rows that tell which of `words` make `layout` differ from the single rank.
  void begin_narrowing(const std::string& layout, const std::vector<std::string>& words) const {
    if (options_.json) return;
    print("which of " + joined(words, ", ") + " makes " + layout + " differ:\n");
  }

  struct Row {
    std::string layout;
    std::int64_t ranks = 0;
    Settings settings{};   // settings in addition to the file's
    bool narrows = false;  // run to find the word that makes other layouts differ
  };
  void show(const Row& row, const LayoutVerdict& verdict) {
    if (!row.narrows) (verdict.equal ? equal_ : failed_) += 1;
    if (options_.json) return add_json(row, verdict);
    const Departure& largest = verdict.largest;
    line({row.layout, printed("%.1e", largest.error), largest.error == 0 ? "-" : largest.place(),
          verdict.equal ? "equal" : "DIFFERS"},
         printed("%.2f", verdict.seconds));
    if (verdict.first) print("  first: " + verdict.first->text() + "\n");
    if (!verdict.failure.empty()) print("  ended early: " + verdict.failure + "\n");
  }

  /// The words that all differing layouts have in common, if several layouts ran.
  struct Common {
    Departure first;  // difference of the layout with the fewest words
    std::vector<std::string> words;
    bool together = false;  // equal layouts have some of the words, but not all
  };
  /// Prints the summary. `left`: layouts that did not run because of a signal.
  void finish(std::int64_t left, const std::optional<Common>& common) const {
    if (options_.json) return finish_json(left, common);
    const std::string row = options_.pairs ? "pair" : "layout";
    const std::string cut = formatted(" with a checkpoint after step {}", options_.steps / 2);
    print("\n" + grouped_count(equal_, row) + " equal to a single rank over " +
          grouped_count(options_.steps, "step") + (options_.pairs ? cut : "") +
          (failed_ > 0 ? formatted(", {} not", failed_) : "") + "\n");
    if (common) print("first: " + common->first.place() + "; " + in_common(*common) + "\n");
    for (const auto& [code, layouts] : selection_.skipped) {
      print("skipped " + listed(layouts) + ": " + code + ": " + selection_.rules.at(code) + "\n");
    }
    if (left > 0) print("stopped by a signal; not run: " + grouped_count(left, row) + "\n");
  }

  bool all_equal() const { return failed_ == 0; }

 private:
  void line(const std::vector<std::string>& cells, const std::string& last) const {
    std::string text;
    for (std::size_t i = 0; i < cells.size(); ++i) text += padded(cells[i], widths_[i]) + "  ";
    print(text + padded_left(last, 7) + "\n");
  }

  /// A sentence that says which words the layouts that differ have in common.
  static std::string in_common(const Common& common) {
    if (common.words.empty())
      return "the layouts that differ have no word in common that all others lack";
    const char* others = common.together ? ", and no others with all of these" : ", and no others";
    return "all with " + joined(common.words, ", all with ") + others;
  }

  void add_json(const Row& row, const LayoutVerdict& verdict) {
    Json made = {{"layout", row.layout},
                 {"ranks", row.ranks},
                 {"equal", verdict.equal},
                 {"seconds", verdict.seconds},
                 {"largest", json_of(verdict.largest)}};
    if (!row.settings.empty()) made["settings"] = row.settings;
    if (row.narrows) made["narrows"] = true;
    if (verdict.first) made["first"] = json_of(*verdict.first);
    if (!verdict.failure.empty()) made["failure"] = verdict.failure;
    rows_.push_back(made);
  }

  void finish_json(std::int64_t left, const std::optional<Common>& common) const {
    Json skipped = Json::array();
    for (const auto& [code, layouts] : selection_.skipped) {
      skipped.push_back(
          {{"code", code}, {"message", selection_.rules.at(code)}, {"layouts", layouts}});
    }
    Json document = {{"format_version", 1}, {"steps", options_.steps}, {"equal", all_equal()},
                     {"layouts", rows_},    {"skipped", skipped},      {"not_run", left}};
    if (common && common->together && !common->words.empty()) {
      document["common"] = {joined(common->words, " and ")};
    } else if (common) {
      document["common"] = common->words;
    }
    print(with_newline(json_text(document, JsonText::Style::indent_2)));
  }

  Options options_;
  const LayoutSelection& selection_;
  std::vector<std::size_t> widths_;
  std::int64_t equal_ = 0;
  std::int64_t failed_ = 0;
  Json rows_ = Json::array();
};

using Clock = std::chrono::steady_clock;

/// Progress, on stderr: a live line on a terminal; otherwise, if no rows are printed, a plain line
/// every five seconds.
class VerifyStatus {
 public:
  explicit VerifyStatus(bool rows_tell) : plain_(!live_ && !rows_tell) {}
  void show(const std::string& what) {
    if (live_) std::fprintf(stderr, "\r\x1b[K%s", what.c_str());
    const auto now = Clock::now();
    if (!plain_ || now - shown_ < std::chrono::seconds(5)) return;
    shown_ = now;
    log_info(what);
  }
  void clear() const {
    if (live_) std::fputs("\r\x1b[K", stderr);
  }

 private:
  const bool live_ = stderr_is_terminal();
  const bool plain_;
  Clock::time_point shown_ = Clock::now();
};

constexpr const char* verify_examples =
    "  trainctl verify --config configs/gpt.yaml\n"
    "  trainctl verify --config configs/gpt.yaml --world-size 4 --layouts quick --options quick\n"
    "  trainctl verify --config configs/gpt.yaml --layouts tp2,tp2sp+pp2,tp2+pp2+dp2+gpipe\n"
    "  trainctl verify --config configs/gpt.yaml --world-size 8 --layouts all\n"
    "  trainctl verify --config configs/gpt.yaml --layouts tp2,pp2+vp2 --through-checkpoint\n";

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

constexpr SignalEffect after_this_layout{
    .text = "the layout that runs ends, those after it do not run",
    .requeue_code = static_cast<int>(ExitCode::requeue),
    .interrupt_code = static_cast<int>(ExitCode::requeue)};

/// The seconds of a comparison and of each of its layouts, relative to the record of a single rank,
/// and the seconds that each rank of a layout adds: measured with the files of
/// configs/verify-*.yaml.
constexpr double seconds_of_comparison = 4;
constexpr double seconds_of_layout = 4;
constexpr double seconds_of_rank = 0.05;

double expected_seconds(const VerifyComparisons& all, double record) {
  double seconds = static_cast<double>(all.list.size()) * seconds_of_comparison * record;
  for (const VerifyComparison& comparison : all.list) {
    for (const VerifyTask& task : comparison.tasks) {
      seconds += seconds_of_layout * record +
                 seconds_of_rank * static_cast<double>(task.runs->plan.mesh.world_size());
    }
  }
  return seconds;
}

/// Runs the comparisons, and shows what they find.
class VerifyRun {
 public:
  /// `job`: the ranks of mpirun, of which rank 0 shows all results; null without mpirun.
  VerifyRun(const VerifyCommand& command, VerifyPlanner& planner, const VerifyComparisons& all,
            World* job)
      : command_(command),
        planner_(planner),
        all_(all),
        job_(job),
        status_(command.format != "json") {
    for (const VerifyComparison& comparison : all.list) {
      for (const VerifyTask& task : comparison.tasks)
        widest_ = std::max(widest_, task.name().size());
    }
  }

  int run() {
    // Not under mpirun, which gives a layout no time to end after a signal.
    if (job_ == nullptr) catch_stop_signals(after_this_layout);
    record(all_.list.front(), "a single rank");
    tell_time();
    VerifyOutput output(
        {command_.format == "json", all_.steps, widest_, command_.through_checkpoint},
        all_.selection);
    std::size_t done = 0;
    for (const VerifyComparison& comparison : all_.list) {
      if (stop_signal() != 0) break;
      record(comparison, "a single rank with other settings");
      output.begin(settings_of(comparison.words));
      for (const VerifyTask& task : comparison.tasks) {
        if (stop_signal() != 0) break;
        status_.show(progress(done, task.name()));
        take(task, comparison, false, output);
        ++done;
      }
    }
    if (stop_signal() == 0) narrow(output);
    output.finish(static_cast<std::int64_t>(all_.tasks() - done), common());
    if (!output.all_equal()) return static_cast<int>(ExitCode::diverged);
    return static_cast<int>(done < all_.tasks() ? ExitCode::requeue : ExitCode::ok);
  }

 private:
  /// A layout that ran.
  struct Ran {
    std::string name;
    WordRow said;
    std::optional<LayoutChoice> choice;
    std::vector<Settings> words;
    LayoutVerdict verdict;
  };

  /// Makes the record of the single rank for the comparison, in place of an earlier record.
  void record(const VerifyComparison& comparison, const std::string& what) {
    if (verification_ != nullptr && recorded_ == comparison.words) return;
    status_.show(what);
    const auto start = Clock::now();
    verification_.reset();
    verification_ = std::make_unique<Verification>(comparison.config, all_.steps);
    recorded_ = comparison.words;
    record_seconds_ = seconds_since(start);
    status_.clear();
  }

  void tell_time() {
    if (!all_.note.empty()) print_message(all_.note + "\n");
    const double seconds = expected_seconds(all_, record_seconds_);
    started_ = Clock::now();
    if (all_.tasks() == 1 && seconds < 10) return;
    const auto count = [](std::size_t value, const char* noun) {
      return grouped_count(static_cast<std::int64_t>(value), noun);
    };
    const std::size_t others = all_.list.size() - 1;
    print_message(count(all_.tasks(), command_.through_checkpoint ? "pair" : "layout") +
                  (others > 0 ? ", with " + count(others, "combination") + " of other settings"
                              : std::string()) +
                  ": about " + format_seconds(seconds) + "\n");
  }

  std::string progress(std::size_t done, const std::string& name) const {
    std::string text = formatted("{} of {}: {}", done + 1, all_.tasks(), name);
    if (done == 0) return text;
    const double left = static_cast<double>(all_.tasks() - done) * seconds_since(started_) /
                        static_cast<double>(done);
    return text + ", about " + format_seconds(left) + " left";
  }

  void take(const VerifyTask& task, const VerifyComparison& comparison, bool narrows,
            VerifyOutput& output) {
    LayoutVerdict verdict = verdict_of(task, comparison.config);
    status_.clear();
    output.show({.layout = task.name(),
                 .ranks = task.runs->plan.mesh.world_size(),
                 .settings = settings_of(comparison.words),
                 .narrows = narrows},
                verdict);
    const VerifyCandidate& runs = *task.runs;
    ran_.push_back({task.name(), runs.said, runs.choice, comparison.words, std::move(verdict)});
    if (task.saves == nullptr || task.saves == task.runs) return;
    WordRow& said = ran_.back().said;
    for (const std::string& word : task.saves->said) {
      if (std::find(said.begin(), said.end(), word) == said.end()) said.push_back(word);
    }
  }

  /// Compares one layout with the single rank. The checks that need one rank only are made once for
  /// all layouts (OneRankChecks).
  LayoutVerdict verdict_of(const VerifyTask& task, const Config& config) {
    const VerifiedLayout runs = task.runs->layout(job_);
    if (task.saves == nullptr) {
      LayoutVerdict verdict = verification_->compare(runs);
      if (verdict.equal) verdict.add(one_rank_.verdict_of(config));
      if (verdict.equal && all_.freely) verdict.add(verification_->run_freely(runs));
      return verdict;
    }
    const JobFolder folder(job_);
    const VerifiedLayout saves = task.saves->layout(job_);
    LayoutVerdict verdict =
        verification_->compare_through_checkpoint(saves, runs, folder.path() / "pair");
    if (verdict.equal) verdict.add(one_rank_.verdict_of(config));
    if (verdict.equal && all_.freely) {
      verdict.add(verification_->go_on_freely(saves, runs, folder.path() / "day"));
    }
    return verdict;
  }

  std::vector<WordRow> rows(bool equal) const {
    std::vector<WordRow> found;
    for (const Ran& one : ran_) {
      if (one.verdict.equal == equal) found.push_back(one.said);
    }
    return found;
  }

  WordRow common_to_different() const {
    return without_implied(common_words(rows(false), rows(true)));
  }

  /// The layout with the fewest words among those that differ.
  const Ran* plainest() const {
    const Ran* found = nullptr;
    for (const Ran& one : ran_) {
      if (one.verdict.equal) continue;
      if (found == nullptr || one.said.size() < found->said.size()) found = &one;
    }
    return found;
  }

  std::optional<VerifyOutput::Common> common() const {
    const Ran* plain = plainest();
    if (ran_.size() < 2 || plain == nullptr || !plain->verdict.first) return std::nullopt;
    if (rows(true).empty()) return std::nullopt;
    const WordRow words = common_to_different();
    if (!words.empty()) return VerifyOutput::Common{*plain->verdict.first, words, false};
    return VerifyOutput::Common{*plain->verdict.first, common_together(rows(false), rows(true)),
                                true};
  }

  WordRow suspects() const { return without_implied(suspect_words(rows(false), rows(true))); }

  /// If the differing layouts have several words in common, the plainest one runs without each of
  /// these words: a word without which it still differs is not the cause.
  void narrow(VerifyOutput& output) {
    const Ran* plain = plainest();
    if (command_.through_checkpoint || plain == nullptr || !plain->choice) return;
    if (rows(true).empty() || suspects().size() < 2) return;
    LayoutChoice choice = *plain->choice;
    std::vector<Settings> words = plain->words;
    output.begin_narrowing(plain->name, suspects());
    for (const std::string& word : suspects()) {
      const WordRow left = suspects();
      const bool is_left = std::find(left.begin(), left.end(), word) != left.end();
      if (left.size() < 2 || stop_signal() != 0) return;
      if (is_left) try_without(word, choice, words, output);
    }
  }

  /// Drops `word` from `choice` if the layout still differs without it.
  void try_without(const std::string& word, LayoutChoice& choice, std::vector<Settings>& words,
                   VerifyOutput& output) {
    LayoutChoice fewer = choice;
    for (std::string& one : fewer.words) {
      LayoutChoice only{.sizes = {}, .words = {one}};
      const WordRow said = only.said();
      if (std::find(said.begin(), said.end(), word) != said.end()) one.clear();
    }
    std::vector<Settings> less = words;
    std::erase_if(less, [&](const Settings& one) { return word_text(one) == word; });
    if (fewer.name() == choice.name() && less.size() == words.size()) return;
    const std::optional<VerifyComparison> comparison = planner_.with(fewer, less);
    if (!comparison) return;
    record(*comparison, "a single rank without " + word);
    status_.show(fewer.name() + " without " + word);
    take(comparison->tasks.front(), *comparison, true, output);
    if (ran_.back().verdict.equal) return;
    choice = fewer;
    words = less;
  }

  const VerifyCommand& command_;
  VerifyPlanner& planner_;
  const VerifyComparisons& all_;
  World* job_;
  VerifyStatus status_;
  std::size_t widest_ = 0;
  std::unique_ptr<Verification> verification_;
  std::vector<Settings> recorded_;  // settings of verification_
  OneRankChecks one_rank_;
  double record_seconds_ = 0;  // duration of the last record
  Clock::time_point started_;
  std::vector<Ran> ran_;
};

void require_ranks(const VerifyComparisons& all, const World& job) {
  for (const VerifyCandidate& one : all.list.front().candidates) {
    const std::int64_t ranks = one.plan.mesh.world_size();
    if (ranks <= job.size()) continue;
    throw Error(ExitCode::usage, formatted("layout {} has {} ranks, but mpirun has started {}",
                                           one.name, ranks, job.size()));
  }
}

/// `free_bytes` and `processes` as for VerifyPlanner.
int verify(const VerifyCommand& command, std::int64_t free_bytes, std::int64_t processes,
           World* job) {
  VerifyPlanner planner(command, free_bytes, processes);
  if (!planner.ok()) return static_cast<int>(ExitCode::config);
  const VerifyComparisons all = planner.plan();
  if (job != nullptr) require_ranks(all, *job);
  return VerifyRun(command, planner, all, job).run();
}

/// Every process makes the same plan. Errors of the file or the command are shown by one process.
int verify_in(World& job, const VerifyCommand& command) {
  set_log_rank(job.rank(), job.size());
  if (job.rank() > 0) be_silent();
  const auto everyone = job.everyone("verify");
  agree_on_cpu_level(*everyone);
  const auto free_bytes = std::ranges::min(gather_all(*everyone, available_bytes()));
  const auto processes = std::ranges::max(gather_all(*everyone, job.local_size()));
  try {
    return verify(command, free_bytes, processes, &job);
  } catch (const Error& failure) {
    constexpr ExitCode of_all[] = {ExitCode::config, ExitCode::usage, ExitCode::unavailable};
    if (std::ranges::find(of_all, failure.code()) == std::end(of_all)) throw;
    if (job.rank() == 0) log_error(failure.what());
    return static_cast<int>(failure.code());
  }
}

int verify_over_mpi(VerifyCommand command) {
  const bool lists = !command.layouts.empty() && !command.selects();
  if (command.request.world_size == 0 && !lists) command.request.world_size = launched_as().size;
  WorldOptions options{.check_collectives = true, .report_hangs = true};
  const ReadResult read = read_config(command.request.config, command.request.set_options);
  if (!read.diagnostics.has_errors()) {
    options.deadline_seconds = read.config.parallel.deadline_seconds;
  }
  int code = 0;
  run_mpi_world(options, [&](World& job) { code = verify_in(job, command); });
  return code;
}

}  // namespace

int run_verify(const Arguments& arguments) {
  CommandLine line(
      "Trains a few steps in each layout, over threads or the processes of mpirun, and compares "
      "loss, norm, every gradient and every parameter with a single rank. The data is generated "
      "from the seed.",
      verify_name);
  VerifyCommand command;
  add_plan_options(line, command.request);
  line.remove("--ranks-per-host");
  line.add_text("--layouts", command.layouts,
                "all, quick (about a dozen that have every word), or layouts separated by commas; "
                "default: the file's own layout",
                "LIST|quick|all");
  line.add_choice("--options", command.options,
                  "Also compare with other settings than the file's: quick: each value worth "
                  "trying; all: each pair of values, and of a value and a word of a layout",
                  {"none", "quick", "all"});
  line.add_choice("--size", command.size,
                  "The whole model; one layer of its widths, with little vocabulary and short "
                  "sequences; auto: the whole if it fits and takes no long time",
                  {"auto", "whole", "layer"});
  line.add_number("--memory-limit", command.memory_limit,
                  "GiB that may be used; default: three quarters of what is free", 0);
  line.add_whole_number("--steps", command.steps, "Steps to compare; default: 3", 1, 1000);
  line.add_flag("--exhaustive", command.exhaustive,
                "With --layouts all: every combination of the switches, not only every pair");
  line.add_flag("--through-checkpoint", command.through_checkpoint,
                "Each layout saves a checkpoint after --steps steps; itself and the next layout "
                "load it and take --steps more");
  line.add_flag("--every-pair", command.every_pair,
                "With --through-checkpoint: every layout loads the checkpoint of every other");
  line.add_format(command.format, {"table", "json"});
  if (!line.parse(arguments, verify_examples)) return 0;
  if (command.exhaustive && command.layouts != "all") {
    refuse(verify_name, "--exhaustive requires --layouts all");
  }
  if (command.every_pair && !command.through_checkpoint) {
    refuse(verify_name, "--every-pair requires --through-checkpoint");
  }
  if (launched_as().size > 1) return verify_over_mpi(command);
  return verify(command, available_bytes(), 1, nullptr);
}

}  // namespace trainctl
