#include "formats/strategy/requested_files.h"

#include <algorithm>
#include <filesystem>
#include <map>
#include <optional>
#include <set>
#include <type_traits>
#include <vector>

#include "base/at.h"
#include "base/error.h"
#include "base/file.h"
#include "config/schema/values.h"
#include "config/schema/words.h"
#include "formats/strategy/file.h"
#include "plan/tables/splits.h"

namespace trainctl {

namespace {

std::string word(SplitBy split) { return std::string(word_of(split)); }

std::string splits_path(const char* key) { return std::string("parallel.operator_splits.") + key; }

std::string shown_inputs(const OperatorSplit& split) {
  std::string text;
  for (const std::vector<std::int64_t>& input : split.inputs) {
    text += (text.empty() ? "[" : ", [");
    for (std::size_t i = 0; i < input.size(); ++i) {
      text += (i > 0 ? "," : "") + std::to_string(input[i]);
    }
    text += "]";
  }
  return "[" + text + "]";
}

/// The products of an operator of operator_splits in one layer; `first` represents them.
struct Products {
  std::string first;
  std::vector<std::string> others;
  std::string between;  // tensor between the products
};

Products attention_products(std::int64_t layer, bool shares_keys) {
  const std::string name = "layers." + std::to_string(layer) + ".attention";
  Products products{name + ".q", {name + ".gate", name + ".out"}, name + ".context"};
  // Ranks that share heads of keys hold their weights whole in every split.
  if (!shares_keys) products.others.insert(products.others.begin(), {name + ".k", name + ".v"});
  return products;
}

Products mlp_products(std::int64_t layer) {
  const std::string name = "layers." + std::to_string(layer) + ".mlp";
  return {name + ".up", {name + ".gate", name + ".down"}, name + ".act"};
}

constexpr const char* embedding_name = "embedding.token";
constexpr const char* head_name = "head";

std::string word_or_none(const std::optional<SplitBy>& split) { return split ? word(*split) : ""; }

/// Names of operators whose split follows from the number of ranks that share their weights. Keys
/// and values are left out, since several ranks may hold the same heads.
std::set<std::string> searched_names(std::int64_t layers) {
  std::set<std::string> names{embedding_name, head_name};
  for (std::int64_t layer = 0; layer < layers; ++layer) {
    for (const Products& products : {attention_products(layer, true), mlp_products(layer)}) {
      names.insert(products.first);
      names.insert(products.others.begin(), products.others.end());
    }
  }
  return names;
}

class Decision {
 public:
  Decision(const LoadedSplits& loaded, const Mesh& mesh, SourceMap& sources,
           Diagnostics& diagnostics)
      : loaded_(loaded), mesh_(mesh), sources_(sources), diagnostics_(diagnostics) {
    for (const OperatorSplit& split : loaded.layouts.operators) operators_[split.name] = &split;
    if (!loaded.text.empty()) diagnostics.add_source(loaded.name, std::string(loaded.text));
  }

  /// The split of an operator, if the file has it and splits it in one of the three ways.
  std::optional<SplitBy> of(const char* key, const std::string& name) {
    const auto found = operators_.find(name);
    if (found == operators_.end()) return std::nullopt;
    const auto split = read(*found->second);
    if (!split) {
      complain(splits_path(key), name,
               "operator '" + shown(name) + "' splits its inputs " + shown_inputs(*found->second) +
                   ", which is none of the splits of " + ways(),
               "cut the weight for features, or only the tokens, or neither");
    }
    return split;
  }

  /// The split of several operators that must be split alike.
  std::optional<SplitBy> of(const char* key, const Products& products) {
    const auto first = of(key, products.first);
    for (const std::string& name : products.others) {
      const auto other = of(key, name);
      if (!first || !other || *first == *other) continue;
      complain(splits_path(key), name,
               "operator '" + name + "' has the split " + word(*other) + ", but '" +
                   products.first + "' (" + place_of(products.first).position() + ") the split " +
                   word(*first) + ": the tensor between them, " + products.between +
                   ", stays where it is made",
               "give both the same split");
    }
    return first;
  }

  /// Sets the configuration's value `said`, a word or a list, to the file's value `found`. If the
  /// configuration already has another value, reports that.
  template <class Value>
  void settle(const char* key, std::optional<Value>& said, const Value& found, bool same,
              const std::string& name, const std::string& shown_value) {
    const std::string path = splits_path(key);
    if (!said) {
      said = found;
      sources_.record(path, place_of(name));
    } else if (!same) {
      diagnostics_.add({Severity::error, "strategy-operators", path,
                        "it contradicts " + place_of(name).position() + ", where '" + name +
                            "' and its like have the split " + shown_value,
                        std::string("leave operator_splits.") + key + " or load_file out",
                        sources_.find(path)});
    }
  }

 private:
  std::string ways() const {
    const std::int64_t cp = mesh_.cp;
    return std::to_string(mesh_.tp) + " ranks: a cut weight, whole weights with " +
           std::to_string(cp * mesh_.tp) + " parts of the tokens, or with " + std::to_string(cp);
  }

  std::optional<SplitBy> read(const OperatorSplit& split) const {
    if (split.inputs.size() < 2 || split.inputs[0].size() < 2) return std::nullopt;
    const auto cut = [](std::int64_t parts) { return parts > 1; };
    const std::int64_t tokens = split.inputs[0][1];
    if (std::ranges::any_of(split.inputs[1], cut)) {
      return tokens == mesh_.cp ? std::optional(SplitBy::features) : std::nullopt;
    }
    if (tokens == mesh_.cp * mesh_.tp) return SplitBy::tokens;
    return tokens == mesh_.cp ? std::optional(SplitBy::whole) : std::nullopt;
  }

  /// The operator's place in the file; for protobuf, the place that names the file.
  Place place_of(const std::string& name) const {
    const std::string_view text = loaded_.text;
    const std::string quoted = "\"" + name + "\"";
    const std::size_t at = text.find(quoted);
    if (at == std::string_view::npos) return sources_.find(strategy_file_key);
    const std::size_t line = text.rfind('\n', at);
    const std::size_t begin = line == std::string_view::npos ? 0 : line + 1;
    Place place{.origin = Place::Origin::file, .file = loaded_.name};
    place.line = static_cast<int>(std::count(text.begin(), text.begin() + at, '\n')) + 1;
    place.column = static_cast<int>(at - begin) + 1;
    place.end_column = place.column + static_cast<int>(quoted.size());
    return place;
  }

  void complain(const std::string& path, const std::string& name, const std::string& message,
                const std::string& help) {
    diagnostics_.add({Severity::error, "strategy-operators", path, message, help, place_of(name)});
  }

  const LoadedSplits& loaded_;
  const Mesh& mesh_;
  SourceMap& sources_;
  Diagnostics& diagnostics_;
  std::map<std::string, const OperatorSplit*> operators_;
};

/// The splits of all layers; none for a layer whose operator the file lacks. Sets `first` to the
/// first product found.
template <class ProductsOf>
std::vector<std::optional<SplitBy>> read_layers(Decision& decision, const char* key,
                                                std::int64_t layers, const ProductsOf& products_of,
                                                std::string& first) {
  std::vector<std::optional<SplitBy>> splits(static_cast<std::size_t>(layers));
  for (std::int64_t layer = 0; layer < layers; ++layer) {
    const Products products = products_of(layer);
    splits[static_cast<std::size_t>(layer)] = decision.of(key, products);
    if (splits[static_cast<std::size_t>(layer)] && first.empty()) first = products.first;
  }
  return splits;
}

/// The splits in the file, and the first operator with each of them.
struct FileSplits {
  SearchedSplits splits;
  std::string attention, feed_forward;
};

FileSplits read_splits(Decision& decision, const Mesh& mesh, const ModelShape& model) {
  FileSplits read;
  read.splits.embedding = decision.of("embedding", embedding_name);
  read.splits.head = decision.of("head", head_name);
  read.splits.attention = read_layers(
      decision, "attention", model.layers,
      [&](std::int64_t layer) {
        return attention_products(layer, model.kind(layer).kv_heads < mesh.tp);
      },
      read.attention);
  read.splits.feed_forward =
      read_layers(decision, "feed_forward", model.layers, mlp_products, read.feed_forward);
  return read;
}

}  // namespace

void decide_splits(const LoadedSplits& loaded, const Mesh& mesh, const ModelShape& model,
                   Config& config, SourceMap& sources, Diagnostics& diagnostics) {
  Decision decision(loaded, mesh, sources, diagnostics);
  const FileSplits read = read_splits(decision, mesh, model);
  const OperatorSplitsConfig found = splits_config(read.splits);
  OperatorSplitsConfig& said = config.parallel.operator_splits;
  const auto settle = [&](const char* key, auto& given, const auto& wanted, const std::string& name,
                          const std::string& shown_value) {
    if (!wanted) return;
    bool same = given == wanted;
    if constexpr (std::is_same_v<std::decay_t<decltype(*wanted)>, std::string>) {
      same = given && parse_layer_splits(*given, model.layers).values ==
                          parse_layer_splits(*wanted, model.layers).values;
    }
    decision.settle(key, given, *wanted, same, name, shown_value);
  };
  settle("embedding", said.embedding, found.embedding, embedding_name,
         word_or_none(found.embedding));
  settle("head", said.head, found.head, head_name, word_or_none(found.head));
  settle("attention", said.attention, found.attention, read.attention,
         found.attention.value_or(""));
  settle("feed_forward", said.feed_forward, found.feed_forward, read.feed_forward,
         found.feed_forward.value_or(""));
}

namespace {

/// decide_splits() for a search: operators that the file lacks keep their values of `splits`.
void join_splits(const LoadedSplits& loaded, const Mesh& mesh, const ModelShape& model,
                 SearchedSplits& splits, SourceMap& sources, Diagnostics& diagnostics) {
  Decision decision(loaded, mesh, sources, diagnostics);
  const FileSplits read = read_splits(decision, mesh, model);
  const auto join = [&](const char* key, std::optional<SplitBy>& given,
                        const std::optional<SplitBy>& found, const std::string& name) {
    if (found) decision.settle(key, given, *found, given == found, name, word(*found));
  };
  join("embedding", splits.embedding, read.splits.embedding, embedding_name);
  join("head", splits.head, read.splits.head, head_name);
  for (std::int64_t layer = 0; layer < model.layers; ++layer) {
    join("attention", at(splits.attention, layer), at(read.splits.attention, layer),
         attention_products(layer, false).first);
    join("feed_forward", at(splits.feed_forward, layer), at(read.splits.feed_forward, layer),
         mlp_products(layer).first);
  }
}

}  // namespace

std::optional<std::int64_t> shared_ranks(const LoadedSplits& loaded, const ModelShape& model,
                                         std::int64_t ranks, std::int64_t context_parallel,
                                         const SourceMap& sources, Diagnostics& diagnostics) {
  std::optional<std::int64_t> found;
  std::string first;
  const auto refuse = [&](const OperatorSplit& split, const std::string& why) {
    diagnostics.add({Severity::error, "strategy-operators", strategy_file_key,
                     "operator '" + shown(split.name) + "' splits its inputs " +
                         shown_inputs(split) + ": " + why,
                     "give parallel.tensor_parallel, or another file",
                     sources.find(strategy_file_key)});
    return std::nullopt;
  };
  const std::set<std::string> names = searched_names(model.layers);
  const OperatorSplit* by_tokens = nullptr;
  for (const OperatorSplit& split : loaded.layouts.operators) {
    if (!names.contains(split.name) || split.inputs.size() < 2 || split.inputs[0].size() < 2) {
      continue;
    }
    const std::int64_t rows = split.inputs[0][0] * split.inputs[0][1] / context_parallel;
    const std::int64_t cut = std::ranges::max(split.inputs[1]);
    if (cut == 1 && rows == ranks) {
      by_tokens = &split;
      continue;
    }
    if (rows < 1) continue;
    const std::int64_t here = cut > 1 ? cut : ranks / rows;
    if (rows * here != ranks) {
      return refuse(split, std::to_string(rows) + " parts of the tokens x " + std::to_string(here) +
                               " of the weights are not the " + std::to_string(ranks) +
                               " ranks of a stage");
    }
    if (found && *found != here) {
      return refuse(split, std::to_string(here) + " ranks share it, and " + std::to_string(*found) +
                               " share '" + first + "'");
    }
    if (!found) first = split.name;
    found = here;
  }
  if (!found && by_tokens != nullptr) {
    return refuse(*by_tokens,
                  "all its operators are split by tokens, which any number of ranks may share");
  }
  return found;
}

namespace {

/// The contents of a file. Throws Error{missing_input} or Error{bad_data}.
std::string read_whole(const std::string& path) {
  constexpr std::int64_t max_bytes = std::int64_t{64} << 20;
  // The kind is checked first, since opening a pipe without a writer would block.
  std::error_code unknown;
  const auto kind = std::filesystem::status(path, unknown).type();
  require(kind != std::filesystem::file_type::not_found, ExitCode::missing_input, "no such file");
  require(kind == std::filesystem::file_type::regular, ExitCode::missing_input,
          "expected a regular file");
  const File file = File::open_to_read(path);
  require(file.size() <= max_bytes, ExitCode::missing_input,
          "has " + std::to_string(file.size()) + " bytes, more than the " +
              std::to_string(max_bytes) + " that a strategy file may have");
  std::string text(static_cast<std::size_t>(file.size()), '\0');
  file.read_at(0, text);
  return text;
}

/// The name of a rank's own file: "groups.pb" -> "groups-rank3.pb".
std::string name_for_rank(const std::string& file, std::int64_t rank) {
  const std::filesystem::path path(file);
  std::string name = path.stem().string() + "-rank" + std::to_string(rank);
  return (path.parent_path() / (name += path.extension().string())).string();
}

/// Writes the file completely or not at all, readable only by its owner; creates missing folders.
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

/// Passes the splits of the file to the search.
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
  if (input.config.parallel.search_mode == "recursive_programming") {
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
    const PlacementFile layouts = read_layouts(text, json);
    decide_splits({file, json ? std::string_view(text) : std::string_view(), layouts}, facts.mesh,
                  facts.model, config, sources, diagnostics);
  } catch (const Error&) {
    return;  // check_layout_file reports it
  }
}

std::optional<SearchReport> settle_search(Config& config, SourceMap& sources, const Site& site,
                                          const ArrangementSearcher& search,
                                          Diagnostics& diagnostics) {
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
      const PlacementFile layouts = read_layouts(text, json);
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
    const PlacementFile loaded = read_layouts(read_whole(file), is_json_name(file));
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
