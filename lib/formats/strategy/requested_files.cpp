#include "formats/strategy/requested_files.h"

#include <algorithm>
#include <filesystem>

#include "base/error.h"
#include "base/whole_file.h"
#include "formats/strategy/decide.h"
#include "formats/strategy/file.h"
#include "formats/strategy/group_file.h"

namespace trainctl {

namespace {

/// Throws Error{missing_input} or Error{bad_data}.
std::string read_whole(const std::string& path) {
  constexpr std::int64_t most_bytes = std::int64_t{64} << 20;
  // Looked at first: opening a pipe without a writer would wait for one.
  std::error_code unknown;
  const auto kind = std::filesystem::status(path, unknown).type();
  require(kind != std::filesystem::file_type::not_found, ExitCode::missing_input, "no such file");
  require(kind == std::filesystem::file_type::regular, ExitCode::missing_input,
          "expected a regular file");
  const File file = File::open_to_read(path);
  require(file.size() <= most_bytes, ExitCode::missing_input,
          "has " + std::to_string(file.size()) + " bytes, more than the " +
              std::to_string(most_bytes) + " that a strategy file may have");
  std::string text(static_cast<std::size_t>(file.size()), '\0');
  file.read_at(0, text);
  return text;
}

/// "groups.pb" -> "groups-rank3.pb"; without a suffix at the end.
std::string name_for_rank(const std::string& file, std::int64_t rank) {
  const std::filesystem::path path(file);
  std::string name = path.stem().string() + "-rank" + std::to_string(rank);
  return (path.parent_path() / (name += path.extension().string())).string();
}

/// Whole or not at all, for its owner only; folders on the way are made.
void write_private(const std::string& path, std::string_view bytes) {
  const std::filesystem::path folder = std::filesystem::path(path).parent_path();
  std::error_code failure;
  if (!folder.empty()) std::filesystem::create_directories(folder, failure);
  require(!failure, ExitCode::io,
          "cannot create the folder " + folder.string() + ": " + failure.message());
  write_whole_file(path, bytes, 0600);
}

void write_layout_file(const Config& config, const Plan& plan) {
  const StrategyFileConfig& files = config.parallel.strategy_ckpt_config;
  if (files.save_file.empty()) return;
  const OptimizerConfig* states = files.only_trainable_params ? nullptr : &config.optimizer;
  write_private(files.save_file, write_layouts(make_layout_file(plan, config.parallel, states),
                                               is_json_name(files.save_file)));
}

void write_group_file(const std::string& file, const Config& config, const Plan& plan,
                      std::int64_t rank) {
  if (file.empty()) return;
  write_private(file, write_groups(make_group_file(plan, config.parallel, rank)));
}

void add_unreadable(const std::string& file, const Error& failure, Check& check) {
  check.error("strategy-file", strategy_file_key, file + ": " + failure.what(),
              "name a file that parallel.strategy_ckpt_config.save_file wrote, or leave "
              "load_file out");
}

/// What the file says is given to the search, too.
void add_file(const LoadedSplits& loaded, const Facts& facts, SearchInput& input,
              SourceMap& sources, Diagnostics& diagnostics) {
  Check check(sources, diagnostics);
  const Mesh& mesh = facts.mesh;
  const std::int64_t ranks = std::max<std::int64_t>(1, facts.site.world_size / (mesh.pp * mesh.cp));
  if (!input.tensor_parallel) {
    input.tensor_parallel = shared_ranks(loaded, facts.model, ranks, mesh.cp, sources, diagnostics);
  }
  if (!input.tensor_parallel || diagnostics.has_errors()) return;
  Mesh shared = mesh;
  shared.tp = *input.tensor_parallel;
  join_splits(loaded, shared, facts.model, input.given, sources, diagnostics);
  if (input.config.parallel.search_mode == SearchMode::recursive_programming) {
    check.warning("search-load-file", strategy_file_key,
                  "its operators stay as they are and the others are searched; MindSpore 2.10 "
                  "ignores the file in this search mode");
  }
}

}  // namespace

void settle_splits(Config& config, SourceMap& sources, const Site& site, Diagnostics& diagnostics) {
  const std::string& file = config.parallel.strategy_ckpt_config.load_file;
  const Check check(sources, diagnostics);
  const Facts facts(config, site);
  const bool reads = facts.mode == ParallelMode::semi_auto_parallel && !file.empty();
  if (!reads || !facts.mesh_is_clean(check) || facts.mesh.tp == 1 || !check.clean({"model"})) {
    return;
  }
  try {
    const bool json = is_json_name(file);
    const std::string text = read_whole(file);
    const LayoutFile layouts = read_layouts(text, json);
    decide_splits({file, json ? std::string_view(text) : std::string_view(), layouts}, facts.mesh,
                  facts.model, config, sources, diagnostics);
  } catch (const Error&) {
    return;  // check_layout_file says it
  }
}

std::optional<SearchReport> settle_search(Config& config, SourceMap& sources, const Site& site,
                                          const LayoutSearcher& search, Diagnostics& diagnostics) {
  Check check(sources, diagnostics);
  const Facts facts(config, site);
  if (facts.mode != ParallelMode::auto_parallel || diagnostics.has_errors()) return std::nullopt;
  const ParallelConfig& parallel = config.parallel;
  SearchInput input{.config = config,
                    .sources = sources,
                    .site = site,
                    .given = given_splits(parallel.operator_splits, config.model.num_layers),
                    .tensor_parallel = {}};
  const char* size = "parallel.tensor_parallel";
  if (parallel.tensor_parallel > 1 || check.given(size))
    input.tensor_parallel = parallel.tensor_parallel;
  const std::string& file = parallel.strategy_ckpt_config.load_file;
  if (!file.empty()) {
    try {
      const bool json = is_json_name(file);
      const std::string text = read_whole(file);
      const LayoutFile layouts = read_layouts(text, json);
      add_file({file, json ? std::string_view(text) : std::string_view(), layouts}, facts, input,
               sources, diagnostics);
    } catch (const Error& failure) {
      add_unreadable(file, failure, check);
    }
  }
  if (diagnostics.has_errors()) return std::nullopt;
  std::optional<SearchReport> report = search(input, check);
  if (report) take_answer(*report, config, sources);
  return report;
}

void check_layout_file(const Config& config, const Plan& plan, const SourceMap& sources,
                       Diagnostics& diagnostics) {
  const std::string& file = config.parallel.strategy_ckpt_config.load_file;
  if (file.empty()) return;
  Check check(sources, diagnostics);
  try {
    const LayoutFile loaded = read_layouts(read_whole(file), is_json_name(file));
    compare_layouts(loaded, make_layout_file(plan, config.parallel, &config.optimizer), file,
                    check);
  } catch (const Error& failure) {
    add_unreadable(file, failure, check);
  }
}

void write_layout_files(const Config& config, const Plan& plan, std::int64_t rank) {
  write_layout_file(config, plan);
  write_group_file(config.parallel.group_ckpt_save_file, config, plan, rank);
}

void write_own_layout_files(const Config& config, const Plan& plan, std::int64_t rank) {
  if (rank == 0) write_layout_file(config, plan);
  const std::string& groups = config.parallel.group_ckpt_save_file;
  const bool alone = groups.empty() || plan.mesh.world_size() == 1;
  write_group_file(alone ? groups : name_for_rank(groups, rank), config, plan, rank);
}

}  // namespace trainctl
