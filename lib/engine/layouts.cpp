#include "engine/layouts.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <set>
#include <string_view>

#include "base/error.h"
#include "config/standing.h"
#include "engine/runnable.h"
#include "plan/plan.h"

namespace trainctl {

namespace {

constexpr std::int64_t most_ranks = 4096;

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

/// The whole number behind the first `skip` letters, or nullopt.
std::optional<std::int64_t> number_behind(std::string_view word, std::size_t skip) {
  std::int64_t value = 0;
  const char* end = word.data() + word.size();
  const auto [stop, status] = std::from_chars(word.data() + skip, end, value);
  if (status != std::errc() || stop != end || value < 1 || value > most_ranks) return std::nullopt;
  return value;
}

/// One layout while its words are read.
class LayoutText {
 public:
  explicit LayoutText(const std::string& text) : text_(text) {
    for (const std::string& word : split(text, '+')) read(word);
  }

  LayoutChoice choice(std::int64_t world_size) {
    if (choice_.ranks() > most_ranks) {
      refuse_layout(text_, "more than " + std::to_string(most_ranks) + " ranks");
    }
    if (world_size == 0) return choice_;
    const std::int64_t model = choice_.tp * choice_.pp;
    if (!seen_.contains("dp") && world_size % model == 0) choice_.dp = world_size / model;
    if (choice_.ranks() != world_size) {
      refuse_layout(text_, std::to_string(choice_.ranks()) + " ranks (" + choice_.name() +
                               "), but --world-size is " + std::to_string(world_size));
    }
    return choice_;
  }

 private:
  void once(const std::string& kind) {
    if (!seen_.insert(kind).second) refuse_layout(text_, kind + " is said twice");
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
    if (word == "vocab_dp" || word == "vocab_tp") {
      once("vocab");
      choice_.vocab_emb_dp = word == "vocab_dp";
    } else if (word == "gpipe" || word == "1f1b") {
      once("scheduler");
      choice_.scheduler =
          word == "gpipe" ? PipelineScheduler::gpipe : PipelineScheduler::one_f_one_b;
    } else if (word == "zero1") {
      once("zero1");
      choice_.zero1 = true;
    } else {
      return false;
    }
    return true;
  }

  void read(const std::string& word) {
    std::string size = word;
    const bool sequence = word.starts_with("tp") && word.ends_with("sp");
    if (sequence) size.resize(size.size() - 2);
    if (read_size(size, "tp", choice_.tp)) {
      choice_.sequence_parallel = sequence;
      return;
    }
    std::int64_t microbatches = 0;
    if (read_size(word, "m", microbatches)) {
      choice_.microbatches = microbatches;
      return;
    }
    if (read_size(word, "pp", choice_.pp) || read_size(word, "dp", choice_.dp)) return;
    if (read_switch(word)) return;
    for (const char* axis : {"cp", "ep", "vp"}) {
      if (!word.starts_with(axis) || !number_behind(word, 2)) continue;
      throw Error(ExitCode::unavailable,
                  "layout '" + text_ + "': not built yet: " + word + "; today: tp, pp and dp");
    }
    unknown(word);
  }

  [[noreturn]] void unknown(const std::string& word) {
    const std::string close = nearest(
        word, {"vocab_dp", "vocab_tp", "gpipe", "1f1b", "zero1", "tp2", "tp2sp", "pp2", "dp2"});
    refuse_layout(text_, "unknown word '" + word + "'" +
                             (close.empty() ? "" : ", did you mean '" + close + "'?") +
                             "; words are tpN, tpNsp, ppN, dpN, mN (N a whole number of at least "
                             "1), vocab_dp, vocab_tp, 1f1b, gpipe, zero1, with + between");
  }

  std::string text_;
  std::set<std::string> seen_;
  LayoutChoice choice_;
};

/// "Et*2|t|tL": as even as it goes, the first stages one layer more.
std::string dealt_layers(std::int64_t layers, std::int64_t stages) {
  std::string text = "E";
  for (std::int64_t stage = 0; stage < stages; ++stage) {
    const std::int64_t count = layers / stages + (stage < layers % stages ? 1 : 0);
    text += (stage > 0 ? "|t*" : "t*") + std::to_string(count);
  }
  return text + "L";
}

/// The words of a layout's factors: sizes, vocabulary, scheduler, micro-batches, optimizer.
std::array<std::string, 5> factors_of(const LayoutChoice& choice) {
  std::array<std::string, 5> words;
  if (choice.tp > 1 || choice.sequence_parallel) {
    words[0] = "tp" + std::to_string(choice.tp) + (choice.sequence_parallel ? "sp" : "");
  }
  const auto add = [&](const char* axis, std::int64_t size) {
    if (size > 1) words[0] += (words[0].empty() ? "" : "+") + (axis + std::to_string(size));
  };
  add("pp", choice.pp);
  add("dp", choice.dp);
  if (words[0].empty()) words[0] = "dp1";
  if (choice.vocab_emb_dp) words[1] = *choice.vocab_emb_dp ? "vocab_dp" : "vocab_tp";
  if (choice.scheduler) {
    words[2] = *choice.scheduler == PipelineScheduler::gpipe ? "gpipe" : "1f1b";
  }
  if (choice.microbatches) words[3] = "m" + std::to_string(*choice.microbatches);
  if (choice.zero1) words[4] = "zero1";
  return words;
}

std::vector<LayoutChoice> sizes_of(std::int64_t world_size) {
  std::vector<LayoutChoice> all;
  for (std::int64_t tp = 1; tp <= world_size; ++tp) {
    for (std::int64_t pp = 1; pp <= world_size / tp; ++pp) {
      if (world_size % (tp * pp) != 0) continue;
      for (const bool sequence : {false, true}) {
        if (sequence && tp == 1) continue;
        LayoutChoice choice;
        choice.tp = tp;
        choice.pp = pp;
        choice.dp = world_size / (tp * pp);
        choice.sequence_parallel = sequence;
        all.push_back(choice);
      }
    }
  }
  return all;
}

/// Every setting of the switches that mean something for these sizes.
std::vector<LayoutChoice> switched(const Config& config, const LayoutChoice& sizes) {
  using Scheduler = std::optional<PipelineScheduler>;
  std::vector<std::optional<bool>> vocabularies{std::nullopt};
  if (sizes.tp > 1) vocabularies = {false, true};
  std::vector<Scheduler> schedulers{std::nullopt};
  if (sizes.pp > 1) schedulers = {PipelineScheduler::one_f_one_b, PipelineScheduler::gpipe};
  const std::int64_t local = std::max<std::int64_t>(1, config.train.global_batch_size / sizes.dp);
  std::set<std::int64_t> counts;
  // A pipeline wants as many micro-batches as it has stages, at least.
  const std::int64_t least = sizes.pp;
  for (const std::int64_t count : {least, 2 * least, local}) {
    if (local % count == 0 && (count >= least || count == local)) counts.insert(count);
  }
  std::vector<LayoutChoice> all;
  for (const auto& vocabulary : vocabularies) {
    for (const Scheduler& scheduler : schedulers) {
      for (const std::int64_t count : counts) {
        LayoutChoice choice = sizes;
        choice.vocab_emb_dp = vocabulary;
        choice.scheduler = scheduler;
        choice.microbatches = count;
        all.push_back(choice);
        choice.zero1 = true;
        if (sizes.dp > 1) all.push_back(choice);
      }
    }
  }
  return all;
}

std::set<std::string> pairs_of(const LayoutChoice& choice) {
  const auto words = factors_of(choice);
  std::set<std::string> pairs;
  for (std::size_t a = 0; a < words.size(); ++a) {
    for (std::size_t b = a + 1; b < words.size(); ++b) {
      pairs.insert(std::to_string(a) + words[a] + " " + std::to_string(b) + words[b]);
    }
  }
  return pairs;
}

/// Greedy: always the layout that has most pairs not seen so far; the order stays.
std::vector<LayoutChoice> cover_pairs(const std::vector<LayoutChoice>& all) {
  std::vector<std::set<std::string>> open;
  for (const LayoutChoice& choice : all) open.push_back(pairs_of(choice));
  std::set<std::size_t> taken;
  while (true) {
    const auto most = std::max_element(
        open.begin(), open.end(), [](const auto& a, const auto& b) { return a.size() < b.size(); });
    if (most == open.end() || most->empty()) break;
    taken.insert(static_cast<std::size_t>(most - open.begin()));
    const std::set<std::string> covered = *most;
    for (auto& pairs : open) {
      for (const std::string& pair : covered) pairs.erase(pair);
    }
  }
  std::vector<LayoutChoice> chosen;
  for (const std::size_t index : taken) chosen.push_back(all[index]);
  return chosen;
}

/// The first rule that refuses the layout.
std::optional<Diagnostic> refusal(const Config& config, const SourceMap& sources,
                                  const LayoutChoice& choice) {
  const Config changed = with_layout(config, choice);
  Diagnostics diagnostics;
  const Plan plan = make_plan(changed,
                              {.world_size = choice.ranks(),
                               .ranks_per_host = choice.ranks(),
                               .cores_per_host = choice.ranks()},
                              sources, diagnostics);
  check_built(changed, sources, Severity::error, diagnostics);
  if (!diagnostics.has_errors()) check_runnable(plan, sources, diagnostics);
  for (const Diagnostic& diagnostic : diagnostics.list()) {
    if (diagnostic.severity == Severity::error) return diagnostic;
  }
  return std::nullopt;
}

}  // namespace

std::string LayoutChoice::name() const {
  std::string text;
  for (const std::string& word : factors_of(*this)) {
    if (!word.empty()) text += (text.empty() ? "" : "+") + word;
  }
  return text;
}

std::vector<LayoutChoice> parse_layouts(const std::string& text, std::int64_t world_size) {
  std::vector<LayoutChoice> layouts;
  for (const std::string& one : split(text, ',')) {
    layouts.push_back(LayoutText(one).choice(world_size));
  }
  return layouts;
}

Config with_layout(const Config& config, const LayoutChoice& choice) {
  Config changed = config;
  ParallelConfig& parallel = changed.parallel;
  if (choice.pp != config.parallel.pipeline_stages) {
    PipelineConfig& pipeline = parallel.pipeline;
    pipeline.layout.reset();
    pipeline.offset.reset();
    pipeline.first_stage_layers.reset();
    pipeline.last_stage_layers.reset();
    pipeline.account_for_embedding = pipeline.account_for_loss = false;
    const std::int64_t layers = config.model.num_layers;
    if (layers >= choice.pp && layers % choice.pp != 0) {
      pipeline.layout = dealt_layers(layers, choice.pp);
    }
  }
  parallel.parallel_mode.reset();
  parallel.device_num.reset();
  parallel.tensor_parallel = choice.tp;
  parallel.pipeline_stages = choice.pp;
  parallel.data_parallel = choice.dp;
  parallel.sequence_parallel = choice.sequence_parallel;
  parallel.threads_per_rank = 1;
  if (choice.vocab_emb_dp) parallel.vocab_emb_dp = choice.vocab_emb_dp;
  if (choice.tp == 1) parallel.vocab_emb_dp.reset();
  if (choice.scheduler) parallel.pipeline.scheduler = *choice.scheduler;
  if (choice.zero1) {
    ParallelOptimizerConfig& optimizer = parallel.parallel_optimizer;
    optimizer.enable = true;
    optimizer.threshold = 0;
    optimizer.gradient_accumulation_shard = false;
  }
  if (choice.microbatches) {
    changed.train.micro_batch_size.reset();
    changed.train.micro_batch_num = choice.microbatches;
  }
  return changed;
}

LayoutSelection select_layouts(const Config& config, const SourceMap& sources,
                               std::int64_t world_size, bool exhaustive) {
  LayoutSelection selection;
  std::vector<LayoutChoice> legal;
  const auto is_legal = [&](const LayoutChoice& choice, const LayoutChoice& named) {
    const auto refused = refusal(config, sources, choice);
    if (!refused) return true;
    selection.skipped[refused->code].push_back(named.name());
    selection.rules.emplace(refused->code, refused->message);
    return false;
  };
  for (const LayoutChoice& sizes : sizes_of(world_size)) {
    const auto all = switched(config, sizes);
    // Sizes that cannot be are one finding, not one for each setting of the switches; a micro-batch
    // count of its own frees the layout from that of the config.
    LayoutChoice plain = all.back();
    plain.zero1 = false;
    if (!is_legal(plain, sizes)) continue;
    for (const LayoutChoice& choice : all) {
      if (is_legal(choice, choice)) legal.push_back(choice);
    }
  }
  selection.layouts = exhaustive ? legal : cover_pairs(legal);
  return selection;
}

}  // namespace trainctl
