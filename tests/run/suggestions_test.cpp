// Suggestions hold: each one that is printed, applied, removes its error and adds none.
#include <algorithm>
#include <optional>
#include <random>
#include <regex>
#include <set>

#include "catch.h"
#include "config/read/read.h"
#include "config/schema/known_paths.h"
#include "run/prepare.h"
#include "thorough.h"

using namespace trainctl;

namespace {

using Options = std::vector<std::string>;

const char* const base =
    "model: {family: llama, num_layers: 4, hidden_size: 64, num_attention_heads: 4, "
    "seq_length: 64, vocab_size: 256}\n"
    "data: {train: book.txt, tokenizer: byte}\n"
    "train: {steps: 10, global_batch_size: 8}\n"
    "lr_schedule: {style: cosine, max_lr: 1.0e-3, warmup_steps: 2}\n"
    "parallel: {threads_per_rank: 1}\n";

struct Findings {
  std::vector<Diagnostic> errors;
  std::set<std::pair<std::string, std::string>> keys;  // code, path
};

Findings findings(const Options& options, std::int64_t ranks) {
  ReadResult read = read_config_text(base, "t.yaml", options);
  Site site;
  site.world_size = ranks;
  site.ranks_per_host = std::min<std::int64_t>(ranks, 8);
  site.cores_per_host = 64;
  prepare(read, site, Purpose::train);
  Findings found;
  for (const Diagnostic& one : read.diagnostics.list()) {
    if (one.severity != Severity::error) continue;
    found.errors.push_back(one);
    found.keys.emplace(one.code, one.path);
  }
  return found;
}

std::string path_of(const std::string& key, const std::string& near) {
  std::vector<std::string> found;
  for (const std::string& path : all_known_paths()) {
    if (path != key && !path.ends_with("." + key)) continue;
    if (path.substr(0, path.rfind('.')) == near.substr(0, near.rfind('.'))) return path;
    found.push_back(path);
  }
  return found.size() == 1 ? found.front() : "";
}

Options with(Options options, const std::string& path, const std::string& value) {
  std::erase_if(options, [&](const std::string& one) { return one.starts_with(path + "="); });
  options.push_back(path + "=" + value);
  return options;
}

struct Fix {
  Options options;
  std::int64_t ranks = 1;
};

/// The option at a path without its value, and the value; none: no option has it.
std::optional<std::pair<Options, std::string>> taken(const Options& options,
                                                     const std::string& path) {
  for (std::size_t i = 0; i < options.size(); ++i) {
    if (!options[i].starts_with(path + "=")) continue;
    Options others = options;
    others.erase(others.begin() + static_cast<std::ptrdiff_t>(i));
    return std::pair(others, options[i].substr(path.size() + 1));
  }
  return std::nullopt;
}

/// Every match of a pattern.
std::vector<std::smatch> matches(const std::string& text, const std::regex& pattern) {
  return {std::sregex_iterator(text.begin(), text.end(), pattern), std::sregex_iterator()};
}

/// Replacements of a key or a word.
std::vector<Fix> rewritings(const Diagnostic& error, const Options& options, std::int64_t ranks) {
  const auto given = taken(options, error.path);
  if (!given) return {};
  const std::string& help = error.help;
  Options other = given->first;
  std::smatch found;
  static const std::regex meant("did you mean ([^ ?]+)\\?");
  static const std::regex lines("([a-z_]+\\.[a-z_.]+): ([^ ;,]+)");
  static const std::regex value("^write ([^ :;]+)(?:;.*)?$");
  if (std::regex_search(help, found, meant)) {
    const std::string word = found[1];
    const bool whole = find_known_path(word) != nullptr;
    const std::string section = error.path.substr(0, error.path.rfind('.'));
    if (error.code != "unknown-key") {
      other.push_back(error.path + "=" + word);
    } else {
      other.push_back((whole ? word : section + "." + word) + "=" + given->second);
    }
    return {{other, ranks}};
  }
  if (error.code == "unknown-key" && help.starts_with("write ")) {
    for (const std::smatch& line : matches(help, lines)) {
      other = with(other, line[1], line[2]);
    }
    if (other.size() > given->first.size()) return {{other, ranks}};
  } else if (std::regex_search(help, found, value)) {
    return {{with(options, error.path, found[1]), ranks}};
  }
  return {};
}

/// The changes that a help text suggests, one after another.
std::vector<Fix> fixes(const Diagnostic& error, const Options& options, std::int64_t ranks) {
  std::vector<Fix> list = rewritings(error, options, ranks);
  const std::string& help = error.help;
  std::smatch found;
  static const std::regex joint("all rules hold with ([^;]*)");
  static const std::regex pair("([a-z_]+): (\\d+)");
  static const std::regex one_of(
      "([a-z_.]+) to ([-+.\\w]+(?:, [-+.\\w]+)*(?: or [-+.\\w]+)?)(?=,|;|$)");
  static const std::regex between(", | or ");
  if (std::regex_search(help, found, joint)) {
    std::string text = found[1];
    text = text.substr(0, text.find(", or with "));
    Options all = options;
    for (const std::smatch& one : matches(text, pair)) {
      all = with(all, path_of(one[1], "parallel.x"), one[2]);
    }
    list.push_back({all, ranks});
  }
  for (const std::smatch& one : matches(help, one_of)) {
    const std::string path = path_of(one[1], error.path);
    const std::string words = one[2];
    for (auto word = std::sregex_token_iterator(words.begin(), words.end(), between, -1);
         word != std::sregex_token_iterator(); ++word) {
      if (!path.empty() && *word != "more") list.push_back({with(options, path, *word), ranks});
    }
  }
  return list;
}

/// A value that cannot be read: rules look at it only afterwards, so that what they then say of it
/// was not added by the suggestion.
bool is_unread(const std::string& code) {
  return code == "unknown-key" || code == "wrong-type" || code == "bad-word" ||
         code == "out-of-range";
}

/// Each way that a message names removes it and adds nothing.
void check_fixes(const Options& options, std::int64_t ranks) {
  const Findings before = findings(options, ranks);
  for (const Diagnostic& error : before.errors) {
    for (const Fix& fix : fixes(error, options, ranks)) {
      std::string text;
      for (const std::string& one : fix.options) text += " --set " + one;
      INFO(ranks << " ranks, " << options.back() << ": " << error.path << ": " << error.message
                 << "; help: " << error.help << "; tried:" << text);
      const Findings after = findings(fix.options, fix.ranks);
      CHECK_FALSE(after.keys.contains({error.code, error.path}));
      for (const auto& key : after.keys) {
        INFO("added: " << key.first << " " << key.second);
        CHECK((before.keys.contains(key) || (is_unread(error.code) && !is_unread(key.first))));
      }
    }
  }
}

}  // namespace

TEST_CASE("suggested values satisfy all rules") {
  check_fixes({"parallel.tensor_parallel=8", "parallel.context_parallel=16"}, 100);
  check_fixes({"model.num_attention_heads=6"}, 1);
  check_fixes({"parallel.expert_parallel=4", "moe.num_experts=6"}, 4);
  check_fixes({"parallel.pipeline_stages=3"}, 3);
  check_fixes({"lr_schedule.warmup_steps=2000"}, 1);
  check_fixes({"parallel.tensor_parallel=3"}, 8);
}

TEST_CASE("suggestions after random changes hold") {
  const std::vector<std::string> keys = {"model.num_layers",
                                         "model.hidden_size",
                                         "model.num_attention_heads",
                                         "model.num_query_groups",
                                         "model.seq_length",
                                         "model.kv_channels",
                                         "train.global_batch_size",
                                         "train.micro_batch_size",
                                         "train.micro_batch_num",
                                         "lr_schedule.warmup_steps",
                                         "lr_schedule.decay_steps",
                                         "lr_schedule.min_lr",
                                         "parallel.tensor_parallel",
                                         "parallel.pipeline_stages",
                                         "parallel.context_parallel",
                                         "parallel.data_parallel",
                                         "parallel.virtual_pipeline_stages",
                                         "moe.num_experts",
                                         "moe.router_topk",
                                         "parallel.expert_parallel",
                                         "offload.num_layers",
                                         "parallel.pipeline.scheduler",
                                         "parallel.parallel_mode",
                                         "parallel.device",
                                         "precision.compute",
                                         "optimizer.type",
                                         "data.validation.fraction",
                                         "train.stpes",
                                         "model.hiden_size",
                                         "parallel.tp",
                                         "lr_schedule.warmup",
                                         "checkpoint.save_every",
                                         "parallel.pipeline_parallel",
                                         "moe.top_k",
                                         "output.path",
                                         "parallel.zero_stage",
                                         "recompute.enable",
                                         "parallel.sequence_parallel",
                                         "moe.expert_group_size"};
  const std::vector<std::string> values = {
      "1",           "2",    "3",    "4",    "5",     "6",     "7",
      "8",           "12",   "16",   "24",   "48",    "63",    "66",
      "100",         "0",    "1000", "0.3",  "1e3",   "1_000", "gpu",
      "adam",        "bf16", "yes",  "true", "gpipe", "zb-v",  "semi_auto_parallel",
      "stand_alone", "1,000"};
  std::mt19937 random(thorough() ? std::random_device{}() : 11);
  const int count = thorough() ? 2000 : 60;
  for (int i = 0; i < count; ++i) {
    Options options;
    const int changes = 1 + static_cast<int>(random() % 3);
    for (int k = 0; k < changes; ++k) {
      options = with(options, keys[random() % keys.size()], values[random() % values.size()]);
    }
    check_fixes(options, std::int64_t{1} << (random() % 4));
  }
}
