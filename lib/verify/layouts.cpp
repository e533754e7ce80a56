#include "verify/layouts.h"

#include <algorithm>
#include <set>
#include <string_view>
#include <utility>

#include "base/error.h"
#include "config/report/diagnostics.h"
#include "plan/rules/check.h"

namespace trainctl {

namespace {

std::vector<std::string> split(const std::string& text, char separator) {
  std::vector<std::string> parts;
  for (std::size_t begin = 0; begin <= text.size();) {
    const std::size_t end = std::min(text.find(separator, begin), text.size());
    parts.push_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return parts;
}

[[noreturn]] void refuse_layout(const std::string& layout, const std::string& why) {
  throw Error(ExitCode::usage, "layout '" + layout + "': " + why);
}

/// A layout that is being parsed from its words.
class LayoutText {
 public:
  explicit LayoutText(const std::string& text) : text_(text) {
    for (const std::string& word : split(text, '+')) read(word);
  }

  LayoutChoice choice(std::int64_t world_size) {
    if (choice_.ranks() > max_layout_ranks) {
      refuse_layout(text_, "more than " + std::to_string(max_layout_ranks) + " ranks");
    }
    if (world_size > 0) fill(world_size);
    for (std::size_t i = 0; i < choice_.words.size(); ++i) check_meaning(i);
    return choice_;
  }

 private:
  /// Sets the number of replicas, if not given, to the number of ranks divided by the other sizes.
  void fill(std::int64_t world_size) {
    const std::int64_t model = choice_.sizes.tp * choice_.sizes.pp * choice_.sizes.cp;
    if (!seen_.contains("dp") && world_size % model == 0) choice_.sizes.dp = world_size / model;
    if (choice_.ranks() != world_size) {
      refuse_layout(text_, std::to_string(choice_.ranks()) + " ranks (" + choice_.name() +
                               "), but --world-size is " + std::to_string(world_size));
    }
  }

  void check_meaning(std::size_t index) {
    const LayoutSwitch& row = layout_switches()[index];
    const std::string& word = choice_.words[index];
    Config any;
    any.moe.num_experts = std::max<std::int64_t>(2, choice_.sizes.dp);
    any.parallel.pipeline.dtype = ComputeType::bf16;
    any.data.packing = false;
    if (word.empty() || row.needs.empty()) return;
    if (row.words(any, choice_.sizes) != std::vector<std::string>{""}) return;
    refuse_layout(text_, word + " has no effect without several " + std::string(row.needs));
  }

  void once(const std::string& kind) {
    if (!seen_.insert(kind).second) refuse_layout(text_, kind + " is given twice");
  }

  bool read_size(const std::string& word, const std::string& axis, std::int64_t& size) {
    if (!word.starts_with(axis)) return false;
    const auto number = number_behind(word, axis.size());
    if (!number) return false;
    once(axis);
    size = *number;
    return true;
  }

  bool read_switch(const std::string& word) {
    Config any;
    for (std::size_t i = 0; i < layout_switches().size(); ++i) {
      const LayoutSwitch& row = layout_switches()[i];
      if (!row.apply(word, any)) continue;
      once(std::string(row.name));
      choice_.words[i] = word;
      return true;
    }
    return false;
  }

  void read(const std::string& word) {
    LayoutSizes& sizes = choice_.sizes;
    std::string size = word;
    const bool sequence = word.starts_with("tp") && word.ends_with("sp");
    if (sequence) size.resize(size.size() - 2);
    if (read_size(size, "tp", sizes.tp)) {
      sizes.sequence_parallel = sequence;
      return;
    }
    if (read_size(word, "pp", sizes.pp) || read_size(word, "dp", sizes.dp)) return;
    if (read_size(word, "cp", sizes.cp)) return;
    if (read_switch(word)) return;
    unknown(word);
  }

  [[noreturn]] void unknown(const std::string& word) {
    std::string forms = "tpN, tpNsp, ppN, dpN, cpN";
    for (const LayoutSwitch& row : layout_switches()) forms += ", " + std::string(row.form);
    std::vector<std::string> known{"tp2", "tp2sp", "pp2", "dp2", "cp2"};
    for (const std::string& form : split(forms, ','))
      known.push_back(form.substr(form.find_first_not_of(' ')));
    const std::string close = nearest(word, known);
    refuse_layout(text_, "unknown word '" + word + "'" +
                             (close.empty() ? "" : ", did you mean '" + close + "'?") +
                             "; words are " + forms +
                             ", with + between; N is a whole number of at least 1");
  }

  std::string text_;
  std::set<std::string> seen_;
  LayoutChoice choice_;
};

/// The more general word that a word implies, or "".
std::string implied_by(const std::string& word) {
  for (const char* recomputing : {"sliced", "partial"}) {
    if (word == recomputing) return "recompute";
  }
  const std::size_t digits = word.find_last_not_of("0123456789") + 1;
  if (digits == 0 || digits == word.size()) return "";
  const std::string general = word.substr(0, digits);
  for (const char* counted : {"tp", "pp", "dp", "cp", "vp", "zero", "shard", "offload", "offloadw",
                              "deferred", "ep", "wep", "etp", "echunks"}) {
    if (general == counted) return general;
  }
  return "";
}

/// The pipeline layout "Et*2|t|tL": layers divided evenly, the first stages with one more.
std::string dealt_layers(std::int64_t layers, std::int64_t stages) {
  std::string text = "E";
  for (std::int64_t stage = 0; stage < stages; ++stage) {
    const std::int64_t count = layers / stages + (stage < layers % stages ? 1 : 0);
    text += (stage > 0 ? "|t*" : "t*") + std::to_string(count);
  }
  return text + "L";
}

/// Divides the layers over the config's stages and chunks, and discards the config's own rule.
void deal_layers(Config& config) {
  PipelineConfig& pipeline = config.parallel.pipeline;
  pipeline.layout.reset();
  pipeline.offset.reset();
  pipeline.first_stage_layers.reset();
  pipeline.last_stage_layers.reset();
  pipeline.account_for_embedding = pipeline.account_for_loss = false;
  const std::int64_t layers = config.model.num_layers;
  const std::int64_t places =
      config.parallel.pipeline_stages * config.parallel.virtual_pipeline_stages;
  if (layers >= places && layers % places != 0) pipeline.layout = dealt_layers(layers, places);
}

}  // namespace

std::string name_of(const LayoutSizes& sizes) {
  std::string text;
  const auto add = [&](const char* axis, std::int64_t size, const char* more) {
    if (size > 1) text += (text.empty() ? "" : "+") + (axis + std::to_string(size)) + more;
  };
  add("tp", sizes.tp, sizes.sequence_parallel ? "sp" : "");
  add("pp", sizes.pp, "");
  add("dp", sizes.dp, "");
  add("cp", sizes.cp, "");
  return text.empty() ? "dp1" : text;
}

std::string LayoutChoice::name() const {
  std::string text = name_of(sizes);
  for (const std::string& word : words) {
    if (!word.empty()) text += "+" + word;
  }
  return text;
}

std::vector<std::string> LayoutChoice::said() const {
  std::vector<std::string> all;
  const auto add = [&all](const std::string& word) {
    const std::string general = implied_by(word);
    for (const std::string& one : {general, word}) {
      if (!one.empty() && std::find(all.begin(), all.end(), one) == all.end()) all.push_back(one);
    }
  };
  for (const auto& [axis, size] : {std::pair("tp", sizes.tp), std::pair("pp", sizes.pp),
                                   std::pair("dp", sizes.dp), std::pair("cp", sizes.cp)}) {
    if (size > 1) add(axis + std::to_string(size));
  }
  if (sizes.sequence_parallel) add("sp");
  for (const std::string& word : words) add(word);
  return all;
}

std::vector<std::string> without_implied(const std::vector<std::string>& words) {
  std::vector<std::string> kept;
  for (const std::string& word : words) {
    const std::string general = implied_by(word);
    if (std::find(words.begin(), words.end(), general) == words.end()) kept.push_back(word);
  }
  return kept;
}

std::vector<LayoutChoice> parse_layouts(const std::string& text, std::int64_t world_size) {
  std::vector<LayoutChoice> layouts;
  for (const std::string& one : split(text, ',')) {
    layouts.push_back(LayoutText(one).choice(world_size));
  }
  return layouts;
}

Config with_own_groups(Config config) {
  const MoeConfig& moe = config.moe;
  if (moe.expert_group == "sequence" || moe.expert_group_size) return config;
  const Facts own(config, {.world_size = world_size_of(config.parallel)});
  config.moe.expert_group_size = own.model.routing_group;
  return config;
}

bool is_worth_trying(const LayoutChoice& choice, const Config& config, const Config& file) {
  for (std::size_t i = 0; i < choice.words.size(); ++i) {
    const auto has = [&](const Config& one) {
      const std::vector<std::string> words = layout_switches()[i].words(one, choice.sizes);
      return std::find(words.begin(), words.end(), choice.words[i]) != words.end();
    };
    if (!choice.words[i].empty() && has(file) && !has(config)) return false;
  }
  return true;
}

Config with_layout(const Config& config, const LayoutChoice& choice) {
  Config changed = with_own_groups(config);
  const LayoutSizes& sizes = choice.sizes;
  ParallelConfig& parallel = changed.parallel;
  const bool by_operator = parallel.parallel_mode == ParallelMode::semi_auto_parallel;
  if (!by_operator || sizes.tp == 1) parallel.parallel_mode.reset();
  parallel.device_num.reset();
  parallel.tensor_parallel = sizes.tp;
  parallel.pipeline_stages = sizes.pp;
  if (sizes.pp == 1) parallel.virtual_pipeline_stages = 1;
  parallel.data_parallel = sizes.dp;
  parallel.sequence_parallel = sizes.sequence_parallel;
  // The config's hierarchical sizes are valid only for its own number of ranks.
  const bool levels = parallel.cp_comm_type.has(CpCommType::a2a_p2p);
  if (sizes.cp == 1 || (levels && sizes.cp != parallel.context_parallel)) {
    parallel.cp_comm_type = CpCommType::p2p;
    parallel.hierarchical_context_parallel_sizes.reset();
  }
  parallel.context_parallel = sizes.cp;
  parallel.expert_parallel = 1;
  parallel.expert_tensor_parallel.reset();
  parallel.threads_per_rank = 1;
  for (std::size_t i = 0; i < choice.words.size(); ++i) {
    if (!choice.words[i].empty()) layout_switches()[i].apply(choice.words[i], changed);
  }
  if (sizes.pp != config.parallel.pipeline_stages ||
      parallel.virtual_pipeline_stages != config.parallel.virtual_pipeline_stages) {
    deal_layers(changed);
  }
  if (sizes.tp == 1) {
    parallel.vocab_emb_dp.reset();
    parallel.operator_splits = {};
    parallel.enable_alltoall = false;
  }
  if (!sizes.sequence_parallel) parallel.tp_comm_overlap = {};
  return changed;
}

}  // namespace trainctl
