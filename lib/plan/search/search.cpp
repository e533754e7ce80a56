#include "plan/search/search.h"

#include <algorithm>

#include "base/at.h"
#include "config/schema/words.h"
#include "plan/rules/check.h"
#include "plan/rules/place_layers.h"
#include "plan/search/propagation.h"
#include "plan/search/words.h"

namespace trainctl {

namespace {

// MindSpore visits the data last with more ranks than this; with stages, only if a micro-batch also
// has fewer sequences than this.
constexpr std::int64_t max_ranks_data_in_order = 32;
constexpr std::int64_t sequences_data_in_order = 8;

constexpr const char* splits_key = "parallel.operator_splits";
constexpr const char* search_key = "parallel.search_mode";

std::string last_name(const std::string& name) { return name.substr(name.rfind('.') + 1); }

class ArrangementSearch {
 public:
  ArrangementSearch(const SearchInput& input, Check& check)
      : input_(input),
        config_(as_semi_auto(input.config)),
        facts_(config_, input.site),
        check_(check) {
    report_.mode = input.config.parallel.search_mode;
    report_.given = input.given;
    for (std::int64_t layer = 0; layer < facts_.model.layers; ++layer) {
      if (facts_.model.kind(layer).experts) at(report_.given.feed_forward, layer).reset();
    }
    report_.ranks = facts_.site.world_size / (facts_.mesh.pp * facts_.mesh.cp);
  }

  std::optional<SearchReport> run() {
    if (!sizes_divide(input_, facts_.mesh)) return std::nullopt;
    const bool recursive = report_.mode == "recursive_programming";
    const bool found = recursive ? search_rounds() : spread();
    return found ? std::optional(std::move(report_)) : std::nullopt;
  }

 private:
  /// The configuration as semi_auto_parallel, the mode in which the result distributes layers.
  static Config as_semi_auto(Config config) {
    config.parallel.parallel_mode = ParallelMode::semi_auto_parallel;
    return config;
  }

  const ParallelConfig& parallel() const { return config_.parallel; }

  bool search_rounds() {
    if (facts_.has_experts() && !config_.moe.expert_group_size)
      return false;  // check_experts reports it
    if (report_.given.any() && !input_.tensor_parallel) {
      check_.error("search-operator", splits_key,
                   "splits that are given need tensor_parallel: by features, " +
                       counted(report_.ranks, "rank") + " may be cut in any number of parts",
                   "give parallel.tensor_parallel, or leave operator_splits out");
      return false;
    }
    const StageMap map = make_stage_map(config_, check_);
    if (map.all.empty()) return false;
    for (int stage = 0; stage < map.stages; ++stage) cut_stage(map, stage);
    std::int64_t weight_parts = 1;
    for (const StageSearch& one : report_.stages) {
      weight_parts = std::max(weight_parts, max_weight_parts(one.parts));
    }
    const std::int64_t data_parallel = report_.ranks / weight_parts;
    report_.splits = report_.given;
    for (const StageSearch& one : report_.stages) {
      add_words(one.net, one.parts, report_.ranks, data_parallel, report_.splits);
    }
    if (!report_.splits.embedding) report_.splits.embedding = report_.splits.head;
    settle_sizes(data_parallel);
    add_merged();
    return true;
  }

  /// The number of sequences of a micro-batch on all replicas of a stage.
  std::int64_t sequences() const {
    const TrainConfig& train = config_.train;
    const std::int64_t batch = train.global_batch_size;
    const std::int64_t most = product_of({report_.ranks, train.micro_batch_size.value_or(1)});
    std::int64_t count = facts_.mesh.pp == 1 ? batch : report_.ranks;
    if (batch < 1) {
      count = most;
    } else if (train.micro_batch_num) {
      count = batch / std::max<std::int64_t>(1, *train.micro_batch_num);
    } else if (train.micro_batch_size) {
      count = std::min(batch, most);
    }
    return std::max<std::int64_t>(1, count);
  }

  void cut_stage(const StageMap& map, int stage) {
    const std::int64_t batch = sequences();
    const std::int64_t tokens = config_.model.seq_length / facts_.mesh.cp;
    const bool several = map.stages > 1;
    NetInput input{.model = facts_.model, .rows = product_of({batch, tokens})};
    for (int chunk = 0; chunk < map.chunks; ++chunk) {
      const UnitRange& held = map.at(stage, chunk);
      const UnitRange blocks = blocks_in(held, facts_.model.layers);
      for (int unit = blocks.begin; unit < blocks.end; ++unit) input.layers.push_back(unit - 1);
      input.head = input.head || held.holds(head_unit(facts_.model.layers));
      if (chunk == 0) {
        input.data = held.holds(0) ? Shape{batch, config_.model.seq_length}
                                   : Shape{input.rows, facts_.model.hidden};
      }
    }
    input.data_last = facts_.site.world_size > max_ranks_data_in_order &&
                      (!several || batch < sequences_data_in_order);
    SearchNet net = make_net(input);
    std::vector<std::optional<Extents>> given;
    for (const SearchProduct& product : net.products) given.push_back(fixed(product));
    report_.stages.push_back(
        cut_recursively(std::move(net), report_.ranks, several ? batch : 0, given));
    report_.stages.back().stage = stage;
  }

  std::optional<Extents> fixed(const SearchProduct& product) const {
    const auto& word = report_.given.of(product.of, product.layer);
    if (!word) return std::nullopt;
    return parts_of_word(*word, product, report_.ranks, *input_.tensor_parallel);
  }

  /// Sets the data- and tensor-parallel sizes. The batch must be divisible, unless sizes are given.
  void settle_sizes(std::int64_t wanted) {
    const TrainConfig& train = config_.train;
    const std::int64_t number = std::max<std::int64_t>(1, train.micro_batch_num.value_or(1));
    const std::int64_t size = std::max<std::int64_t>(1, train.micro_batch_size.value_or(1));
    const std::int64_t share = train.global_batch_size / number / size;
    std::int64_t data_parallel = wanted;
    if (input_.tensor_parallel) {
      data_parallel = report_.ranks / *input_.tensor_parallel;
    } else if (parallel().data_parallel) {
      data_parallel = *parallel().data_parallel;
    } else if (share > 0 && train.micro_batch_num && train.micro_batch_size) {
      data_parallel = std::min(share, report_.ranks);
    } else if (share > 0) {
      while (report_.ranks % data_parallel != 0 || share % data_parallel != 0) --data_parallel;
    }
    report_.data_parallel = data_parallel;
    report_.tensor_parallel = std::max<std::int64_t>(1, report_.ranks / data_parallel);
    const bool given = input_.tensor_parallel || parallel().data_parallel;
    if (given || report_.data_parallel >= wanted) return;
    report_.notes.push_back(
        named("tensor_parallel", report_.tensor_parallel) + " is more than the " +
        std::to_string(report_.ranks / wanted) + " of the rounds: global_batch_size / " +
        "micro_batch_num / micro_batch_size (" + std::to_string(share) +
        ") must be divisible by data_parallel, and is not by " + std::to_string(wanted));
  }

  /// Adds a note for each operator some of whose products the rounds divide unlike its split.
  void add_merged() {
    if (report_.tensor_parallel == 1) return;
    for (const SearchOperator which :
         {SearchOperator("attention"), SearchOperator("feed_forward"), SearchOperator("head")}) {
      std::string text;
      for (const StageSearch& one : report_.stages) text += merged(which, one, text);
      if (!text.empty())
        report_.notes.push_back("search-merged: " + std::string(word_of(which)) + ": " + text);
    }
  }

  /// The text for the layers of a stage, without repetitions. `before`: the text so far.
  std::string merged(SearchOperator which, const StageSearch& stage,
                     const std::string& before) const {
    std::string text;
    std::string last;
    const auto& products = stage.net.products;
    for (std::size_t product = 0; product < products.size(); ++product) {
      const SearchProduct& one = products[product];
      if (one.of != which) continue;
      const SplitBy word = report_.splits.of(which, one.layer).value_or(SplitBy::features);
      const Extents wanted = parts_of_word(word, one, report_.ranks, report_.tensor_parallel);
      const Extents& found = at(stage.parts, product);
      if (found == wanted) continue;
      const std::string row = last_name(one.name) + " " + parts_text(found) + " becomes " +
                              parts_text(wanted) + " with " + std::string(word_of(word));
      if (before.find(row) != std::string::npos || text.find(row) != std::string::npos) continue;
      text += (before.empty() && text.empty() ? "" : ", ") + row;
    }
    return text;
  }

  bool spread() {
    if (!report_.given.any()) {
      check_.error(
          "search-operator", search_key,
          "sharding_propagation spreads the splits of configured operators, and none is configured",
          "configure one, as operator_splits: {feed_forward: features} with tensor_parallel, or "
          "name a strategy file in strategy_ckpt_config.load_file");
      return false;
    }
    if (!input_.tensor_parallel) {
      check_.error("search-operator", splits_key,
                   "splits that are given need tensor_parallel: the ranks that share an operator",
                   "give parallel.tensor_parallel");
      return false;
    }
    std::vector<bool> has_experts;
    for (std::int64_t layer = 0; layer < facts_.model.layers; ++layer) {
      has_experts.push_back(facts_.model.kind(layer).experts);
    }
    report_.splits = propagate(report_.given, has_experts);
    settle_table();
    settle_sizes(report_.ranks / *input_.tensor_parallel);
    return true;
  }

  /// A tied table has one split: that of the head, unless only the embedding is configured.
  void settle_table() {
    if (!facts_.model.tied) return;
    SearchedSplits& splits = report_.splits;
    if (report_.given.embedding && !report_.given.head) {
      splits.head = splits.embedding;
    } else if (!report_.given.embedding) {
      splits.embedding = splits.head;
    }
  }

  const SearchInput& input_;
  Config config_;
  Facts facts_;
  Check& check_;
  SearchReport report_;
};

}  // namespace

bool sizes_divide(const SearchInput& input, const Mesh& mesh) {
  const std::int64_t others = product_of({mesh.pp, mesh.cp});
  const std::int64_t ranks = input.site.world_size / std::max<std::int64_t>(1, others);
  const auto divides = [&](const std::optional<std::int64_t>& size) {
    return !size || (*size >= 1 && ranks % *size == 0);
  };
  return others >= 1 && input.site.world_size % others == 0 && divides(input.tensor_parallel) &&
         divides(input.config.parallel.data_parallel);
}

std::optional<SearchReport> search_by_rule(const SearchInput& input, Check& check) {
  return ArrangementSearch(input, check).run();
}

void take_answer(const SearchReport& report, Config& config, SourceMap& sources) {
  ParallelConfig& parallel = config.parallel;
  Place place = sources.find("parallel.parallel_mode");
  place.note = "found by " + std::string(word_of(report.mode));
  const auto record = [&](const std::string& path) {
    const Place::Origin origin = sources.find(path).origin;
    if (!sources.places().contains(path) || origin == Place::Origin::defaulted)
      sources.record(path, place);
  };
  parallel.parallel_mode = ParallelMode::semi_auto_parallel;
  parallel.search_mode = ParallelConfig{}.search_mode;
  parallel.tensor_parallel = report.tensor_parallel;
  record("parallel.tensor_parallel");
  if (report.tensor_parallel == 1) return;
  parallel.operator_splits = splits_config(report.splits);
  for (const char* key : {"embedding", "attention", "feed_forward", "head"}) {
    record(std::string(splits_key) + "." + key);
  }
}

}  // namespace trainctl
