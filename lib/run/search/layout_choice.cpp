#include "run/search/layout_choice.h"

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <limits>

#include "base/file.h"
#include "base/integers.h"
#include "comm/values.h"
#include "config/devices/figures.h"
#include "config/schema/values.h"
#include "config/schema/words.h"
#include "config/yaml/tree.h"
#include "formats/print/print.h"
#include "formats/print/text.h"
#include "formats/strategy/file.h"
#include "formats/strategy/requested_files.h"

namespace trainctl {

namespace {

namespace fs = std::filesystem;

constexpr const char* splits_section = "parallel.operator_splits.";
constexpr const char* text_key = "text of load_file";
constexpr const char* device_key = "figures of cluster.device";

/// The keys that decide the answer of a rule-based search.
constexpr std::string_view keys_read[] = {"model.family",
                                          "model.num_layers",
                                          "model.hidden_size",
                                          "model.ffn_hidden_size",
                                          "model.num_attention_heads",
                                          "model.num_query_groups",
                                          "model.kv_channels",
                                          "model.seq_length",
                                          "model.vocab_size",
                                          "model.make_vocab_size_divisible_by",
                                          "model.tie_word_embeddings",
                                          "train.global_batch_size",
                                          "train.micro_batch_size",
                                          "train.micro_batch_num",
                                          "moe.num_experts",
                                          "moe.first_dense_layers",
                                          "moe.layer_frequency",
                                          "parallel.search_mode",
                                          "parallel.data_parallel",
                                          "parallel.tensor_parallel",
                                          "parallel.context_parallel",
                                          "parallel.pipeline_stages",
                                          "parallel.virtual_pipeline_stages",
                                          "parallel.pipeline.scheduler",
                                          "parallel.pipeline.first_stage_layers",
                                          "parallel.pipeline.last_stage_layers",
                                          "parallel.pipeline.account_for_embedding",
                                          "parallel.pipeline.account_for_loss",
                                          "parallel.pipeline.layout",
                                          "parallel.pipeline.offset"};

/// The sections that dynamic_programming also reads, for its prices of time and memory.
constexpr std::string_view sections_priced[] = {"model.",     "moe.",     "precision.",
                                                "optimizer.", "hooks.",   "recompute.",
                                                "offload.",   "cluster.", "parallel."};
constexpr std::string_view keys_of_a_rank[] = {
    "parallel.global_rank", "parallel.device_num", "parallel.threads_per_rank",
    "parallel.strategy_ckpt_config.save_file", "parallel.group_ckpt_save_file"};

/// Keys of other sections that add communication to a step, or memory to a rank.
constexpr std::string_view keys_priced[] = {
    "checkpoint.asynchronous", "data.eod_mask_loss",        "data.packing",
    "data.prefetch",           "data.reset_attention_mask", "log.max_attention_logit",
    "log.timer_level",         "log.barrier_with_timers"};

bool is_priced(const std::string& path) {
  if (std::ranges::find(keys_priced, path) != std::end(keys_priced)) return true;
  return std::ranges::any_of(sections_priced,
                             [&](std::string_view one) { return path.starts_with(one); }) &&
         std::ranges::find(keys_of_a_rank, path) == std::end(keys_of_a_rank);
}

bool is_read(const std::string& path, SearchMode mode) {
  return std::ranges::find(keys_read, path) != std::end(keys_read) ||
         path.starts_with(splits_section) || path == strategy_file_key ||
         (mode == "dynamic_programming" && is_priced(path));
}

std::string text_of_file(const fs::path& path) {
  return read_beginning(path, std::numeric_limits<std::int64_t>::max());
}

using Values = std::vector<std::pair<std::string, std::string>>;

/// The values that a search reads, before the configuration is changed.
Values values_read(const ReadResult& read) {
  Values values;
  for (auto& [path, value] : config_values(read.config)) {
    if (!is_read(path, read.config.parallel.search_mode)) continue;
    const bool constraint = path != "parallel.tensor_parallel" ||
                            read.config.parallel.tensor_parallel > 1 ||
                            read.sources.places().contains(path);
    values.emplace_back(path, constraint ? value : std::string(not_given));
  }
  const std::string& file = read.config.parallel.strategy_ckpt_config.load_file;
  if (!file.empty()) {
    const bool regular = kind_of_file(file) == FileKind::regular;
    values.emplace_back(text_key,
                        regular ? hex_text(fnv1a(text_of_file(file))) : std::string(not_given));
  }
  const ClusterConfig& cluster = read.config.cluster;
  if (read.config.parallel.search_mode == "dynamic_programming" && cluster.device) {
    values.emplace_back(device_key, hex_text(fnv1a(std::string(device_text(cluster)))));
  }
  return values;
}

std::string quoted(const std::string& text) {
  std::string out = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') out += '\\';
    out += c;
  }
  return out + "\"";
}

std::string layout_text(const SearchReport& report, std::int64_t world, const Values& values) {
  std::string text =
      "# The answer of auto_parallel for this run, taken when it resumes. --search-again searches "
      "again.\n"
      "world_size: " +
      std::to_string(world) +
      "\nparallel:\n  tensor_parallel: " + std::to_string(report.tensor_parallel) +
      "\n  data_parallel: " + std::to_string(report.data_parallel) + "\n";
  const OperatorSplitsConfig splits = splits_config(report.splits);
  const auto line = [&](const char* key, const std::string& value) {
    text += "  " + std::string(key) + ": " + quoted(value) + "\n";
  };
  const auto word = [](const std::optional<SplitBy>& split) {
    return split ? std::string(word_of(*split)) : std::string(not_given);
  };
  line("embedding", word(splits.embedding));
  line("attention", splits.attention.value_or(std::string(not_given)));
  line("feed_forward", splits.feed_forward.value_or(std::string(not_given)));
  line("head", word(splits.head));
  text += "read:\n";
  for (const auto& [path, value] : values)
    text += "  " + quoted(path) + ": " + quoted(value) + "\n";
  return text + "digest: " + hex_text(fnv1a(text)) + "\n";
}

/// Reads a layout.yaml, from the file or from another rank.
class PlacementFileReader {
 public:
  PlacementFileReader(std::string path, std::string text, Diagnostics& diagnostics)
      : path_(std::move(path)), text_(std::move(text)), diagnostics_(diagnostics) {
    diagnostics.add_source(path_, text_);
    const int source = tree_.add_text(Place::Origin::file, path_);
    Diagnostics found;
    const std::string normal = normalise_text(text_);
    if (check_text(normal, tree_.texts.front(), found))
      root_ = parse_yaml(tree_, normal, source, found);
  }

  /// Whether the file is unchanged since it was written.
  bool is_whole() const {
    const std::size_t at = text_.rfind("digest: ");
    if (root_ < 0 || at == std::string::npos) return false;
    return text_.substr(at) == "digest: " + hex_text(fnv1a(text_.substr(0, at))) + "\n";
  }

  /// The value of a key; "" if the file lacks it.
  std::string value(const char* section, const std::string& key) const {
    const YamlEntry* entry = find(section, key);
    return entry == nullptr ? "" : tree_.node(entry->value).scalar;
  }

  void refuse(const std::string& message, const YamlEntry* entry) {
    Place place{
        .origin = Place::Origin::file, .file = path_, .line = 1, .column = 1, .end_column = 2};
    if (entry != nullptr) place = tree_.place(entry->key_span);
    diagnostics_.add({Severity::error, "layout-stale", "parallel.parallel_mode", message,
                      "start with --search-again, which searches again and replaces the file",
                      place});
  }

  const YamlEntry* find(const char* section, const std::string& key) const {
    int map = root_;
    if (*section != '\0') {
      const YamlEntry* entry =
          tree_.node(root_).kind == YamlNode::Kind::map ? tree_.find(root_, section) : nullptr;
      if (entry == nullptr || tree_.node(entry->value).kind != YamlNode::Kind::map) return nullptr;
      map = entry->value;
    }
    return tree_.node(map).kind == YamlNode::Kind::map ? tree_.find(map, key) : nullptr;
  }

 private:
  std::string path_;
  std::string text_;
  Diagnostics& diagnostics_;
  YamlTree tree_;
  int root_ = -1;
};

/// Whether every value that the search read is unchanged.
bool is_fresh(PlacementFileReader& file, const Values& values) {
  if (!file.is_whole()) {
    file.refuse("the file was changed after the search wrote it: its digest is another",
                file.find("", "digest"));
    return false;
  }
  for (const auto& [path, value] : values) {
    const std::string then = file.value("read", path);
    if (then == value) continue;
    file.refuse(
        "the search read " + path + ": " + shown(then) + ", and it is " + shown(value) + " now",
        file.find("read", path));
    return false;
  }
  return true;
}

std::optional<SearchReport> report_in(const PlacementFileReader& file, const ReadResult& read,
                                      std::int64_t ranks) {
  SearchReport report;
  report.mode = read.config.parallel.search_mode;
  report.ranks = ranks;
  report.tensor_parallel = std::stoll(file.value("parallel", "tensor_parallel"));
  report.data_parallel = std::stoll(file.value("parallel", "data_parallel"));
  OperatorSplitsConfig splits;
  const auto text = [&](const char* key) -> std::optional<std::string> {
    const std::string value = file.value("parallel", key);
    return value == not_given ? std::nullopt : std::optional(value);
  };
  const auto word = [&](const char* key) {
    const auto value = text(key);
    return value ? parse_split(*value) : std::nullopt;
  };
  splits.embedding = word("embedding");
  splits.head = word("head");
  splits.attention = text("attention");
  splits.feed_forward = text("feed_forward");
  report.splits = given_splits(splits, read.config.model.num_layers);
  return report;
}

/// The number of ranks of a stage without context parallelism.
std::int64_t ranks_of_a_stage(const ParallelConfig& parallel, const Site& site) {
  return site.world_size /
         std::max<std::int64_t>(1, parallel.pipeline_stages * parallel.context_parallel);
}

/// The layout.yaml of the run that this run may continue, or "".
std::string earlier_file(const OutputConfig& output, bool again) {
  if (again || output.overwrite || output.dir.find('{') != std::string::npos) return "";
  const fs::path path = fs::path(output.dir) / layout_file_name;
  return kind_of_file(path) == FileKind::regular ? path.string() : "";
}

}  // namespace

ChosenArrangement choose_layout(ReadResult& read, const Site& site,
                                const ArrangementSearcher& search,
                                const ArrangementRequest& request) {
  ChosenArrangement choice;
  const ParallelConfig& parallel = read.config.parallel;
  const bool searches = parallel.parallel_mode == ParallelMode::auto_parallel;
  if (!searches || read.diagnostics.has_errors()) return choice;
  if (!request.answer.empty()) {
    const PlacementFileReader file(layout_file_name, request.answer, read.diagnostics);
    choice.report = report_in(file, read, ranks_of_a_stage(parallel, site));
    choice.file = request.answer;
    take_answer(*choice.report, read.config, read.sources);
    return choice;
  }
  const Values values = values_read(read);
  const std::string world = std::to_string(site.world_size);
  std::string note;
  if (const std::string path = earlier_file(read.config.output, request.again); !path.empty()) {
    PlacementFileReader file(path, text_of_file(path), read.diagnostics);
    const std::string then = file.value("", "world_size");
    if (then == world || !file.is_whole()) {
      if (!is_fresh(file, values)) return choice;
      choice.report = report_in(file, read, ranks_of_a_stage(parallel, site));
      choice.taken_from = path;
      take_answer(*choice.report, read.config, read.sources);
    } else {
      note = path + " is for " + then + " ranks; searched again for " + world;
    }
  }
  if (!choice.report)
    choice.report = settle_search(read.config, read.sources, site, search, read.diagnostics);
  if (!choice.report) return choice;
  if (!note.empty()) choice.report->notes.insert(choice.report->notes.begin(), note);
  choice.file = layout_text(*choice.report, site.world_size, values);
  return choice;
}

void prepare_with_one_answer(Group& everyone, const char* what, bool searches,
                             ArrangementRequest& layout, const std::function<void()>& prepare) {
  const bool first = everyone.rank() == 0;
  // Rank 0 decides, so that ranks with different files do not wait for each other.
  if (!gather_all(everyone, searches).front()) {
    return while_others_wait(everyone, what, true, prepare);
  }
  while_others_wait(everyone, what, first, prepare);
  std::string answer = first ? layout.choice->file : "";
  broadcast_bytes(everyone, answer, 0);
  layout.answer = answer;
  while_others_wait(everyone, what, !first, prepare);
  layout.answer.clear();
}

}  // namespace trainctl
