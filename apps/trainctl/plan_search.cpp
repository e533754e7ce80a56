#include "plan_search.h"

#include <algorithm>
#include <filesystem>
#include <set>

#include "base/error.h"
#include "base/log.h"
#include "base/parallel_for.h"
#include "base/units.h"
#include "base/whole_file.h"
#include "config/devices/read_figures.h"
#include "config/schema/most_ranks.h"
#include "output.h"
#include "run/directory/signals.h"
#include "run/layouts/search_layouts.h"
#include "run/layouts/search_page.h"
#include "run/preflight/machine.h"

namespace trainctl {

namespace {

constexpr const char* search_program = "trainctl plan";

/// GiB of a rank that a search may use.
double search_limit(const SearchCommand& command, const Config& config) {
  if (command.memory_limit > 0) return command.memory_limit;
  Diagnostics none;
  const DeviceFigures device =
      read_device(device_text(config.cluster), *config.cluster.device, none);
  const double memory = config.cluster.device_memory.value_or(device.memory_gib);
  const double reserve = command.options.reserve;
  if (reserve >= memory) {
    const bool given = config.cluster.device_memory.has_value();
    refuse(search_program, "--reserve " + printed("%.4g", reserve) + " leaves nothing of " +
                               printed("%.4g", memory) + " GiB, the memory of " +
                               (given ? "cluster.device_memory" : device.name) +
                               "; give a smaller --reserve, or --memory-limit");
  }
  return memory - reserve;
}

/// One of the world sizes. `page`, if given, becomes the page of what was found.
SearchedLayouts search_world(const SearchCommand& command, const PlanRequest& request,
                             std::string* page) {
  const Planned planned = plan_config(request, Purpose::plan);
  const Config& config = planned.read.config;
  LayoutSearch search{config, planned.read.sources, planned.site, search_limit(command, config)};
  search.gap = command.options.gap / 100;
  search.top = static_cast<int>(command.options.top);
  search.stops = [] { return stop_signal() != 0; };
  search.tell = [](const std::string& line) { log_info(line); };
  SearchedLayouts searched = search_layouts(search);
  if (page != nullptr) {
    *page = print_search_page(search, searched,
                              {.title = std::filesystem::path(request.config).stem().string(),
                               .file = request.config,
                               .command = command.command_line,
                               .sets = request.set_options});
  }
  if (searched.found.empty() || command.options.save.empty()) return searched;
  const FoundLayout& best = searched.found.front();
  write_whole_file(command.options.save, "# The best layout that trainctl plan --search found: " +
                                             layout_text(best.layout, searched.world) + "\n" +
                                             dump_config(config_of(search, best), nullptr));
  return searched;
}

std::vector<SearchedLayouts> search_worlds(const SearchCommand& command) {
  std::vector<SearchedLayouts> all;
  for (const std::int64_t world :
       numbers_of(search_program, "--world-sizes", command.options.world_sizes, 1)) {
    if (stop_signal() != 0) break;
    PlanRequest request = command.request;
    request.world_size = world;
    all.push_back(search_world(command, request, nullptr));
  }
  return all;
}

/// Whether some search found a layout that fits.
bool any_fits(const std::vector<SearchedLayouts>& worlds) {
  return std::ranges::any_of(worlds, [](const auto& one) { return !one.found.empty(); });
}

int show_worlds(const SearchCommand& command) {
  const std::vector<SearchedLayouts> worlds = search_worlds(command);
  deliver(command.format == "json" ? print_worlds_json(worlds) : print_worlds(worlds),
          command.output);
  return any_fits(worlds) ? 0 : static_cast<int>(ExitCode::does_not_fit);
}

}  // namespace

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
  line.add_text("--save", options.save, "With --search: write the best as a configuration", "FILE");
}

void check_search_options(const CommandLine& line, const SearchOptions& options,
                          const PlanRequest& request, const std::string& format, bool force) {
  for (const char* name : {"--save", "--world-sizes", "--gap", "--reserve", "--top"}) {
    if (line.given(name) && !options.search) {
      refuse(search_program, std::string(name) + " belongs to --search");
    }
  }
  for (const char* name : {"--rank", "--lr-at", "--memory-model", "--data"}) {
    if (line.given(name) && options.search) {
      refuse(search_program, std::string(name) + " is for one plan, without --search");
    }
  }
  if (line.given("--reserve") && line.given("--memory-limit")) {
    refuse(search_program, "--memory-limit is the limit itself; remove --reserve");
  }
  if (!options.save.empty() && !force) refuse_existing(search_program, options.save);
  if (!line.given("--world-sizes")) return;
  if (request.world_size > 0 || !options.save.empty() || format == "html") {
    refuse(search_program,
           "--world-sizes is for --format table|json, without --world-size and --save");
  }
  const std::string given = "--world-sizes " + options.world_sizes + ": ";
  const auto worlds = numbers_of(search_program, "--world-sizes", options.world_sizes, 1);
  if (worlds.empty()) refuse(search_program, given + "must be numbers of ranks");
  std::set<std::int64_t> known;
  for (const std::int64_t world : worlds) {
    if (world > most_ranks) {
      refuse(search_program, given + "at most " + std::to_string(most_ranks) + " ranks");
    }
    if (!known.insert(world).second) {
      refuse(search_program, given + std::to_string(world) + " is there twice");
    }
  }
}

int show_search(const SearchCommand& command) {
  const PlanRequest& request = command.request;
  // What is wrong with the file itself; rules about sizes are for each layout.
  ReadResult read = read_config(request.config, request.set_options);
  forgive_missing(Purpose::plan, read.diagnostics);
  print_message(render_text(read.diagnostics, color_on_stderr()));
  if (read.diagnostics.has_errors()) return static_cast<int>(ExitCode::config);
  if (read.config.parallel.parallel_mode == ParallelMode::auto_parallel) {
    refuse(search_program,
           "--search finds sizes for plain layouts, and parallel_mode auto_parallel is a search of "
           "its own; add --set parallel.parallel_mode=semi_auto_parallel");
  }
  if (!read.config.cluster.device) {
    refuse(search_program, "--search compares times by a device: set cluster.device");
  }
  static constexpr SignalEffect effect{.text = "the search ends with the best so far"};
  catch_stop_signals(effect);
  set_thread_count(usable_cores());
  if (!command.options.world_sizes.empty()) return show_worlds(command);
  std::string page;
  const bool html = command.format == "html";
  const SearchedLayouts searched = search_world(command, request, html ? &page : nullptr);
  const bool json = command.format == "json";
  deliver(html   ? page
          : json ? print_search_json(searched)
                 : print_search(searched, command.explain),
          command.output);
  if (!command.output.empty()) print_message("wrote " + command.output + "\n");
  if (searched.found.empty()) return static_cast<int>(ExitCode::does_not_fit);
  if (!command.options.save.empty()) print_message("wrote " + command.options.save + "\n");
  return 0;
}

}  // namespace trainctl
