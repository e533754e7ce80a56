// trainctl plan: prints what every rank would do, from arithmetic alone.

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <iostream>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "arguments.h"
#include "base/error.h"
#include "base/file.h"
#include "base/log.h"
#include "base/parallel_for.h"
#include "base/text.h"
#include "base/units.h"
#include "bench/bench.h"
#include "commands.h"
#include "config/devices/figures.h"
#include "config/schema/parallel_config.h"
#include "formats/print/print.h"
#include "formats/print/rows.h"
#include "formats/strategy/requested_files.h"
#include "output.h"
#include "plan/cost/forms.h"
#include "planned.h"
#include "run/calibration/calibrate.h"
#include "run/directory/signals.h"
#include "run/layouts/search_layouts.h"
#include "run/layouts/search_page.h"
#include "run/preflight/machine.h"

namespace trainctl {

// trainctl plan --search: searches the layouts of a configuration for the fastest one.

namespace {

struct SearchOptions {
  bool search = false;
  double gap = 2;      // %
  double reserve = 4;  // GiB
  std::int64_t top = 10;
  std::string save;
  std::string world_sizes;  // "64,128"
  std::string free, fix;    // words of searched keys, with commas between them
};

struct PlanCommand {
  PlanRequest request;
  std::string format = "table";
  std::int64_t rank = -1;
  std::string groups;
  std::string memory_model = "own";
  std::string lr_at;
  std::string output;
  bool force = false;
  std::vector<std::string> diff;
  double memory_limit = 0;   // GiB; 0 if not given
  bool explain = false;      // explains the search of auto_parallel or --search
  std::string command_line;  // shown on the page
  std::string calibrate;     // a file of measured steps
  std::string device_out, software_out;
  bool only_errors = false;
  bool measure = false;
  int local_ranks = 0;  // ranks that --measure runs; one if 0
  SearchOptions searching;
};

constexpr const char* plan_name = "trainctl plan";

/// The memory of a rank that a search may use, in GiB.
double search_limit(const PlanCommand& command, const Config& config) {
  if (command.memory_limit > 0) return command.memory_limit;
  Diagnostics none;
  const DeviceFigures device =
      read_device(device_text(config.cluster), *config.cluster.device, none);
  const double memory = config.cluster.device_memory.value_or(device.memory_gib);
  const double reserve = command.searching.reserve;
  if (reserve >= memory) {
    const bool given = config.cluster.device_memory.has_value();
    refuse(plan_name, "--reserve " + printed("%.4g", reserve) + " leaves nothing of " +
                          printed("%.4g", memory) + " GiB, the memory of " +
                          (given ? "cluster.device_memory" : device.name) +
                          "; give a smaller --reserve, or --memory-limit");
  }
  return memory - reserve;
}

/// The words of --free or --fix: keys that are searched, or can be.
std::vector<std::string> words_of(const std::string& option, const std::string& text) {
  std::vector<std::string> known;
  for (const SearchedKey& key : searched_keys()) known.emplace_back(key.word);
  std::vector<std::string> words;
  for (std::size_t begin = 0; begin <= text.size();) {
    const std::size_t end = std::min(text.find(',', begin), text.size());
    std::string word = text.substr(begin, end - begin);
    for (const SearchedKey& key : searched_keys()) {
      if (std::ranges::find(key.paths, word) != key.paths.end()) word = key.word;
    }
    for (const std::string_view other : unsearched_keys(1)) {
      if (word != other && !other.ends_with("." + word)) continue;
      refuse(plan_name, option + " " + word + ": it is not searched; search once more for " +
                            "each of its values, with --set " + std::string(other) + "=VALUE");
    }
    if (std::ranges::find(known, word) == known.end()) {
      refuse_word(plan_name, "key of " + option, word, known);
    }
    if (std::ranges::find(words, word) != words.end()) {
      refuse(plan_name, option + " " + text + ": " + word + " is there twice");
    }
    words.push_back(word);
    begin = end + 1;
  }
  return words;
}

KeyChoice key_choice(const SearchOptions& options) {
  KeyChoice choice;
  if (!options.free.empty()) choice.freed = words_of("--free", options.free);
  if (!options.fix.empty()) choice.fixed = words_of("--fix", options.fix);
  for (const std::string& word : choice.freed) {
    if (std::ranges::find(choice.fixed, word) == choice.fixed.end()) continue;
    refuse(plan_name, "--free and --fix exclude each other: both have " + word);
  }
  return choice;
}

/// The values of --free and --fix, as shown in the help.
std::string key_words() { return joined(searched_keys(), "|", &SearchedKey::word) + ",..."; }

/// Refuses a freed key that is not searched with this number of ranks.
void check_freed_keys(const PlanCommand& command, std::int64_t world) {
  for (const std::string& word : key_choice(command.searching).freed) {
    const std::int64_t most = max_ranks_of(word);
    if (world <= most) continue;
    const auto key = std::ranges::find(searched_keys(), word, &SearchedKey::word);
    refuse(
        plan_name,
        formatted("--free {}: it is searched with at most {} ranks, and there are {}; search once "
                  "more for each of its values, with --set {}=VALUE",
                  word, most, world, key->paths.front()));
  }
}

/// Searches one world size. If `page` is not null, sets it to the page of the findings.
SearchedArrangements search_world(const PlanCommand& command, const PlanRequest& request,
                                  std::string* page) {
  const Planned planned = plan_config(request, Purpose::plan);
  const Config& config = planned.read.config;
  check_freed_keys(command, planned.site.world_size);
  ArrangementSearch search{config, planned.read.sources, planned.site,
                           search_limit(command, config)};
  search.gap = command.searching.gap / 100;
  search.top = static_cast<int>(command.searching.top);
  search.keys = key_choice(command.searching);
  search.stops = [] { return stop_signal() != 0; };
  search.tell = [](const std::string& line) { log_info(line); };
  SearchedArrangements searched = search_layouts(search);
  if (page != nullptr) {
    *page = print_search_page(search, searched,
                              {.title = std::filesystem::path(request.config).stem().string(),
                               .file = request.config,
                               .command = command.command_line,
                               .sets = request.set_options});
  }
  if (searched.found.empty() || command.searching.save.empty()) return searched;
  write_whole_file(command.searching.save, best_config(search, searched));
  return searched;
}

std::vector<SearchedArrangements> search_worlds(const PlanCommand& command) {
  std::vector<SearchedArrangements> all;
  const auto worlds = numbers_of(plan_name, "--world-sizes", command.searching.world_sizes, 1);
  for (const std::int64_t world : worlds) check_freed_keys(command, world);
  for (const std::int64_t world : worlds) {
    if (stop_signal() != 0) break;
    PlanRequest request = command.request;
    request.world_size = world;
    all.push_back(search_world(command, request, nullptr));
  }
  return all;
}

/// Whether some search found a layout that fits.
bool any_fits(const std::vector<SearchedArrangements>& worlds) {
  return std::ranges::any_of(worlds, [](const auto& one) { return !one.found.empty(); });
}

int show_worlds(const PlanCommand& command) {
  const std::vector<SearchedArrangements> worlds = search_worlds(command);
  deliver(command.format == "json" ? print_worlds_json(worlds) : print_worlds(worlds),
          command.output);
  return any_fits(worlds) ? 0 : static_cast<int>(ExitCode::does_not_fit);
}

void add_search_options(CommandLine& line, SearchOptions& options) {
  line.add_flag("--search", options.search,
                "Find the layout with the least time of a step that fits: the sizes of section "
                "parallel, train.micro_batch_size and recompute, unless they are given");
  line.add_number("--gap", options.gap,
                  "With --search: end when no other layout can be faster by more %; default 2", 0);
  line.add_number("--reserve", options.reserve,
                  "With --search: GiB of the device to leave free, without --memory-limit; "
                  "default 4",
                  0);
  line.add_whole_number("--top", options.top,
                        "With --search: how many others to compare with the best; default 10", 0);
  line.add_text("--world-sizes", options.world_sizes,
                "With --search: search these numbers of ranks, and show one row for each",
                "N,N,...");
  line.add_text("--free", options.free,
                "With --search: search these keys although the file gives them", key_words());
  line.add_text("--fix", options.fix,
                "With --search: leave these keys as the file or the default has them", key_words());
  line.add_text("--save", options.save, "With --search: write the best as a configuration", "FILE");
}

/// Refuses options that need --search, do nothing with it, or exclude each other.
void check_search_options(const CommandLine& line, const PlanCommand& command) {
  const SearchOptions& options = command.searching;
  for (const char* name :
       {"--save", "--world-sizes", "--gap", "--reserve", "--top", "--free", "--fix"}) {
    if (line.given(name) && !options.search) {
      refuse(plan_name, formatted("{} belongs to --search", name));
    }
  }
  for (const char* name : {"--rank", "--lr-at", "--memory-model", "--data"}) {
    if (line.given(name) && options.search) {
      refuse(plan_name, formatted("{} is for one plan, without --search", name));
    }
  }
  for (const char* name : {"--free", "--fix"}) {
    if (line.given(name))
      words_of(name, std::string(name) == "--free" ? options.free : options.fix);
  }
  key_choice(options);
  if (line.given("--reserve") && line.given("--memory-limit")) {
    refuse(plan_name, "--memory-limit is the limit itself; remove --reserve");
  }
  if (!options.save.empty() && !command.force) refuse_existing(plan_name, options.save);
  if (!line.given("--world-sizes")) return;
  if (command.request.world_size > 0 || !options.save.empty() || command.format == "html") {
    refuse(plan_name, "--world-sizes is for --format table|json, without --world-size and --save");
  }
  const std::string given = "--world-sizes " + options.world_sizes + ": ";
  const auto worlds = numbers_of(plan_name, "--world-sizes", options.world_sizes, 1);
  if (worlds.empty()) refuse(plan_name, given + "must be numbers of ranks");
  std::set<std::int64_t> known;
  for (const std::int64_t world : worlds) {
    if (world > max_ranks) {
      refuse(plan_name, formatted("{}at most {} ranks", given, max_ranks));
    }
    if (!known.insert(world).second) {
      refuse(plan_name, formatted("{}{} is there twice", given, world));
    }
  }
}

/// Searches and shows the findings. Returns the exit code.
int show_search(const PlanCommand& command) {
  const PlanRequest& request = command.request;
  // Shows errors of the file itself. Rules about sizes are checked for each layout.
  ReadResult read = read_config(request.config, request.set_options);
  forgive_missing(Purpose::plan, read.diagnostics);
  print_message(render_text(read.diagnostics, color_on_stderr()));
  if (read.diagnostics.has_errors()) return static_cast<int>(ExitCode::config);
  if (read.config.parallel.parallel_mode == ParallelMode::auto_parallel) {
    refuse(plan_name,
           "--search finds sizes for plain layouts, and parallel_mode auto_parallel is a search of "
           "its own; add --set parallel.parallel_mode=semi_auto_parallel");
  }
  if (!read.config.cluster.device) {
    refuse(plan_name, "--search compares times by a device: set cluster.device");
  }
  const KeyChoice keys = key_choice(command.searching);
  if (read.config.moe.num_experts < 2 &&
      std::ranges::find(keys.freed, "expert_parallel") != keys.freed.end()) {
    refuse(plan_name, "--free expert_parallel: the model has no experts");
  }
  static constexpr SignalEffect effect{.text = "the search ends with the best so far"};
  catch_stop_signals(effect);
  set_thread_count(usable_cores());
  if (!command.searching.world_sizes.empty()) return show_worlds(command);
  std::string page;
  const bool html = command.format == "html";
  const SearchedArrangements searched = search_world(command, request, html ? &page : nullptr);
  const bool json = command.format == "json";
  deliver(html   ? page
          : json ? print_search_json(searched)
                 : print_search(searched, command.explain),
          command.output);
  if (!command.output.empty()) print_message("wrote " + command.output + "\n");
  if (searched.found.empty()) return static_cast<int>(ExitCode::does_not_fit);
  if (!command.searching.save.empty()) print_message("wrote " + command.searching.save + "\n");
  return 0;
}

constexpr const char* plan_examples =
    "  trainctl plan --config configs/gpt.yaml --world-size 8\n"
    "  trainctl plan --config configs/llama3-8b.yaml --world-size 1024 --ranks-per-host 8\n"
    "  trainctl plan --config configs/gpt.yaml --rank 0 --format json\n"
    "  trainctl plan --config configs/gpt.yaml --format html --memory-limit 16 -o plan.html\n"
    "  trainctl plan --config configs/gpt.yaml --world-size 8 --groups dp\n"
    "  trainctl plan --config configs/gpt.yaml --lr-at 0,50,199 --format json\n"
    "  trainctl plan --diff configs/gpt.yaml other.yaml\n"
    "  trainctl plan --config configs/tiny.yaml --set cluster.device=cpu-avx2 --measure\n"
    "  trainctl plan --config configs/tiny.yaml --set cluster.device=cpu-avx2 --world-size 2 "
    "--measure --local-ranks 2\n"
    "  trainctl plan --config configs/tiny.yaml --set cluster.device=cpu-avx2 --world-size 4 "
    "--search\n"
    "  trainctl plan --config configs/tiny.yaml --set cluster.device=cpu-avx2 --search "
    "--world-sizes 2,4\n"
    "  trainctl plan --calibrate tests/plan/published_steps.json --no-fit\n";

MemoryModels memory_models_of(const std::string& word) {
  const std::vector<std::string> words = {"own", "megatron", "megatron-0.15", "korthikanti", "all"};
  const auto found = std::ranges::find(words, word);
  if (found == words.end()) {
    refuse(plan_name,
           "--memory-model " + word + ": must be own|megatron|megatron-0.15|korthikanti|all");
  }
  return MemoryModels(static_cast<int>(found - words.begin()));
}

std::vector<std::int64_t> steps_of(const std::string& text) {
  return numbers_of(plan_name, "--lr-at", text, 0);
}

void check_rank_given(std::int64_t rank, const Planned& planned) {
  if (rank < planned.site.world_size) return;
  refuse(plan_name, formatted("--rank {} does not exist: ranks are 0 to {}", rank,
                              planned.site.world_size - 1));
}

Purpose purpose_of(const PlanCommand& command) {
  return command.lr_at.empty() ? Purpose::plan : Purpose::rates;
}

/// The plan of a file. If there is none, shows the failure in the requested form and sets `code` to
/// the exit code. Warnings are shown too, but the JSON document contains them itself.
std::optional<Planned> plan_of(const PlanCommand& command, const std::string& file, int& code) {
  const bool json = command.format == "json";
  PlanRequest request = command.request;
  request.config = file;
  try {
    Planned planned = plan_config(request, purpose_of(command));
    const Diagnostics& diagnostics = planned.read.diagnostics;
    if (!json) print_message(render_text(diagnostics, color_on_stderr()));
    if (planned.ok()) return planned;
    if (json) print(with_newline(render_json(diagnostics)));
    code = static_cast<int>(ExitCode::config);
  } catch (const Error& failure) {
    if (!json) throw;
    code = print_unreadable(file, failure);
  }
  return std::nullopt;
}

PrintInput print_input(const PlanCommand& command, const Planned& planned) {
  PrintInput input{.plan = planned.plan, .config = &planned.read.config, .rank = command.rank};
  const std::int64_t global_rank = planned.read.config.parallel.global_rank;
  if (command.rank < 0 && global_rank > 0) input.rank = global_rank;
  input.memory_models = memory_models_of(command.memory_model);
  input.lr_at = steps_of(command.lr_at);
  input.diagnostics = &planned.read.diagnostics;
  if (planned.layout.report) input.search = &*planned.layout.report;
  input.explain_search = command.explain;
  if (command.memory_limit > 0) input.memory_limit = command.memory_limit;
  return input;
}

std::string text_of(const PlanCommand& command, const PrintInput& input) {
  const bool json = command.format == "json";
  if (!command.groups.empty()) {
    return json ? print_groups_json(input, command.groups)
                : print_groups_table(input, command.groups);
  }
  if (command.format == "html") {
    const PlanRequest& request = command.request;
    return print_html(input, {.title = std::filesystem::path(request.config).stem().string(),
                              .file = request.config,
                              .command = command.command_line,
                              .sets = request.set_options});
  }
  return json ? print_json(input) : print_table(input);
}

int show_findings(const PlanCommand& command) {
  const Planned planned = plan_config(command.request, purpose_of(command));
  print(render_github(planned.read.diagnostics));
  return static_cast<int>(planned.ok() ? ExitCode::ok : ExitCode::config);
}

/// The needs of one form of recomputation if all layers have it, from a plan with that form.
struct Form {
  std::string name;
  double flops = 0;        // repeated by a layer for a micro-batch
  std::int64_t bytes = 0;  // memory of the fullest rank
};

/// The forms of the plan's table that a run can have here, those that repeat least work first.
std::vector<Form> planned_forms(const PlanCommand& command, const Planned& planned) {
  std::vector<Form> forms;
  const auto& stages = planned.plan.stages;
  const auto fullest = std::max_element(stages.begin(), stages.end(),
                                        [](const StagePlan& left, const StagePlan& right) {
                                          return left.memory.device() < right.memory.device();
                                        });
  const auto stage = static_cast<int>(fullest - stages.begin());
  const Config& config = planned.read.config;
  for (const RecomputeCost& cost :
       compare_forms(planned.plan, stage, move_config(config), config.cluster)) {
    if (cost.form == "none") continue;
    PlanRequest request = command.request;
    request.set_options.emplace_back("recompute.enable=true");
    request.set_options.push_back("recompute.select=" + cost.form);
    ReadResult read = read_config(request.config, request.set_options);
    const Plan again = prepare(read, planned.site, purpose_of(command), {}, request.reads_data);
    if (read.diagnostics.has_errors()) continue;
    forms.push_back({cost.form, cost.flops, again.max_memory().device()});
  }
  std::stable_sort(forms.begin(), forms.end(),
                   [](const Form& left, const Form& right) { return left.flops < right.flops; });
  return forms;
}

/// After a plan that does not fit, tells which form of recomputation would fit.
void tell_what_fits(const PlanCommand& command, const Planned& planned, const MemoryFit& fit) {
  const double limit = fit.gibibytes * gibibyte;
  const Form* least = nullptr;
  const std::vector<Form> forms = planned_forms(command, planned);
  for (const Form& form : forms) {
    if (static_cast<double>(form.bytes) <= limit) {
      return print_message("it fits with --set recompute.enable=true --set recompute.select=" +
                           form.name + ": " + format_bytes(form.bytes) + " per rank\n");
    }
    if (least == nullptr || form.bytes < least->bytes) least = &form;
  }
  const std::int64_t own = planned.plan.max_memory().device();
  const std::int64_t bytes = least == nullptr ? own : std::min(own, least->bytes);
  const auto lacking = static_cast<std::int64_t>(static_cast<double>(bytes) - limit);
  print_message(
      "no form of recomputation fits: " +
      (least == nullptr || own <= least->bytes ? "the plan" : "recompute.select " + least->name) +
      " needs " + format_bytes(bytes) + " per rank, " + format_bytes(lacking) +
      " more than there is; more ranks, a smaller micro_batch_size or offload need less\n");
}

int show_plan(const PlanCommand& command) {
  int code = 0;
  const std::optional<Planned> planned = plan_of(command, command.request.config, code);
  if (!planned) return code;
  check_rank_given(command.rank, *planned);
  if (planned->steps_unknown) {
    print_message("steps unknown: train.epochs counts them in the data, which --data reads\n");
  }
  const PrintInput input = print_input(command, *planned);
  deliver(text_of(command, input), command.output);
  write_layout_files(planned->read.config, planned->plan, std::max<std::int64_t>(0, input.rank));
  if (!command.output.empty()) print_message("wrote " + command.output + "\n");
  if (command.measure) {
    BenchRequest bench;
    bench.config = command.request.config;
    bench.set_options = command.request.set_options;
    measure_plan(bench, command.local_ranks, std::cout);
    finish_output();
  }
  const MemoryFit fit = memory_fit(input);
  if (command.memory_limit <= 0 || fit.fits()) return 0;
  print_message(fit_text(fit) + "\n");
  tell_what_fits(command, *planned, fit);
  return static_cast<int>(ExitCode::does_not_fit);
}

int show_diff(const PlanCommand& command) {
  int code = 0;
  const std::optional<Planned> before = plan_of(command, command.diff[0], code);
  if (!before) return code;
  const std::optional<Planned> after = plan_of(command, command.diff[1], code);
  if (!after) return code;
  const PrintInput left = print_input(command, *before);
  const PrintInput right = print_input(command, *after);
  const bool json = command.format == "json";
  deliver(json ? print_diff_json(left, right) : print_diff_table(left, right), command.output);
  return 0;
}

void add_options(CommandLine& line, PlanCommand& command) {
  add_plan_options(line, command.request);
  line.require("--config", false);  // --diff names its own files
  line.add_format(command.format, {"table", "json", "html", "github"});
  line.add_whole_number(
      "--rank", command.rank,
      "Show one rank; default: parallel.global_rank if above 0, else all ranks, grouped", 0);
  line.add_text("--groups", command.groups,
                "Show only the groups of this kind, for example tp, dp-cp, expert:ep", "KIND");
  line.add_text("--memory-model", command.memory_model,
                "Published estimates to show next to the plan's own: own|megatron|megatron-0.15|"
                "korthikanti|all; default own",
                "MODEL");
  line.add_number("--memory-limit", command.memory_limit,
                  "GiB of a rank: say whether the plan fits, and end with 72 if not; default: "
                  "recompute.memory_limit",
                  0);
  line.add_flag("--data", command.request.reads_data,
                "Read the training data where train.epochs counts the steps in it");
  line.add_text("--lr-at", command.lr_at, "Show the learning rate and weight decay at these steps",
                "N,N,...");
  line.add_flag("--explain", command.explain,
                "auto_parallel: also the costs of each product in each round; --search: what each "
                "decision is worth, and the seconds of the best by kind");
  line.add_text("-o,--output", command.output, "Write to a file instead of standard output",
                "FILE");
  line.add_flag("--force", command.force, "Replace the output file if there is one");
  line.add_flag("--measure", command.measure,
                "Also run some steps of one rank here, and compare their time with the planned one "
                "kind by kind");
  line.add_whole_number("--local-ranks", command.local_ranks,
                        "With --measure: the number of ranks, as threads, in the file's layout", 2,
                        1024);
  add_search_options(line, command.searching);
  line.add_text("--calibrate", command.calibrate,
                "Compare prices with measured steps, fit what is fitted, and show both errors",
                "ROWS.json");
  line.add_text("--device-out", command.device_out,
                "With --calibrate: write the devices' files with what was fitted to this folder",
                "DIR");
  line.add_text("--software-out", command.software_out,
                "With --calibrate: the same for the files of software", "DIR");
  line.add_flag("--no-fit", command.only_errors,
                "With --calibrate: only the errors of the figures in use");
  line.add_texts("--diff", command.diff, "Show the differences between two files", "FILE FILE", 2);
}

void check_together(const CommandLine& line, const PlanCommand& command) {
  const bool diff = !command.diff.empty();
  if (command.calibrate.empty()) {
    if (!command.device_out.empty() || !command.software_out.empty() || command.only_errors) {
      refuse(plan_name, "--device-out, --software-out and --no-fit belong to --calibrate");
    }
  } else if (diff || !command.request.config.empty()) {
    refuse(plan_name,
           "--calibrate takes its configurations from the rows; remove --config and "
           "--diff");
  } else {
    return;
  }
  if (command.searching.search &&
      (diff || command.measure || !command.groups.empty() || command.format == "github")) {
    refuse(plan_name, "--search is alone, with --format table|json|html");
  }
  check_search_options(line, command);
  if (!command.searching.world_sizes.empty() && command.explain) {
    refuse(plan_name, "--explain is about one number of ranks, not --world-sizes");
  }
  if (diff && !command.request.config.empty()) {
    refuse(plan_name, "--diff takes both files; remove --config");
  }
  if (!diff && command.request.config.empty()) refuse(plan_name, "--config is required");
  const bool page = command.format == "html" || command.format == "github";
  if (page && diff) refuse(plan_name, "--diff supports --format table|json, not " + command.format);
  if (page && !command.groups.empty()) {
    refuse(plan_name, "--groups supports --format table|json, not " + command.format);
  }
  if (command.local_ranks > 0 && !command.measure) {
    refuse(plan_name, "--local-ranks belongs to --measure");
  }
  if (command.measure && (diff || command.format != "table" || !command.groups.empty())) {
    refuse(plan_name, "--measure is for the table of one plan");
  }
  if (diff && command.memory_limit > 0) refuse(plan_name, "--memory-limit is for one plan");
  if (diff && !command.groups.empty()) refuse(plan_name, "--diff and --groups exclude each other");
  if (!command.output.empty() && !command.force) refuse_existing(plan_name, command.output);
  memory_models_of(command.memory_model);
  steps_of(command.lr_at);
}

}  // namespace

int run_plan(const Arguments& arguments) {
  CommandLine line(
      "Shows what a run would do: layout, memory, communication and the rows of a step.",
      plan_name);
  PlanCommand command;
  add_options(line, command);
  if (!line.parse(arguments, plan_examples)) return 0;
  check_together(line, command);
  if (line.given("--memory-limit") && command.memory_limit <= 0) {
    refuse(plan_name, "--memory-limit must be above 0");
  }
  if (!command.calibrate.empty()) {
    const Calibration found = command.only_errors ? errors_of_shipped(command.calibrate)
                                                  : calibrate(command.calibrate, command.device_out,
                                                              command.software_out);
    print(found.text);
    return 0;
  }
  command.command_line = formatted("{} {}", plan_name, shell_line(arguments));
  if (command.searching.search) return show_search(command);
  if (!command.diff.empty()) return show_diff(command);
  return command.format == "github" ? show_findings(command) : show_plan(command);
}

}  // namespace trainctl
