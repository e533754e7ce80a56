#include "checkpoint/config_changes.h"

#include <algorithm>
#include <map>
#include <span>
#include <string_view>

#include "formats/print/print.h"
#include "plan/tables/model.h"

namespace trainctl {

namespace {

// Everything under these must stay, except the rows of `free_keys`.
constexpr std::string_view fixed_keys[] = {"model.", "moe.", "data.tokenizer"};
// Rates of dropout, and values that only count before the first step or for the padding.
constexpr std::string_view free_keys[] = {"model.hidden_dropout",
                                          "model.attention_dropout",
                                          "model.embedding_dropout",
                                          "model.init_method_std",
                                          "model.make_vocab_size_divisible_by",
                                          "model.preset",
                                          "model.from",
                                          "model.seq_length"};
constexpr std::string_view ignored_keys[] = {"output.", "log.", "checkpoint.", "cluster."};

bool covers(std::span<const std::string_view> keys, const std::string& path) {
  return std::any_of(keys.begin(), keys.end(),
                     [&](std::string_view key) { return path.starts_with(key); });
}

/// Whether both describe the same model, apart from the free keys: a value that is its default may
/// be given or not.
bool have_same_shape(const Config& saved, const Config& now) {
  ModelConfig before = saved.model;
  const ModelConfig& after = now.model;
  before.seq_length = after.seq_length;
  before.hidden_dropout = after.hidden_dropout;
  before.attention_dropout = after.attention_dropout;
  before.embedding_dropout = after.embedding_dropout;
  before.init_method_std = after.init_method_std;
  before.make_vocab_size_divisible_by = after.make_vocab_size_divisible_by;
  return model_shape(before, saved.moe) == model_shape(after, now.moe);
}

}  // namespace

std::vector<ConfigChange> config_changes(const Config& saved, const Config& now) {
  std::map<std::string, std::string> before;
  for (const auto& [path, value] : config_values(saved)) before[path] = value;
  std::map<std::string, std::string> after;
  for (const auto& [path, value] : config_values(now)) after[path] = value;
  std::map<std::string, std::string> all = before;
  all.insert(after.begin(), after.end());
  const bool same_shape = have_same_shape(saved, now);
  std::vector<ConfigChange> changes;
  for (const auto& entry : all) {
    const std::string& path = entry.first;
    if (before[path] == after[path] || covers(ignored_keys, path)) continue;
    const bool one_given = before[path] == not_given || after[path] == not_given;
    if (same_shape && one_given && path.starts_with("model.") && !covers(free_keys, path)) continue;
    const bool allowed = !covers(fixed_keys, path) || covers(free_keys, path);
    changes.push_back({path, before[path], after[path], allowed});
  }
  return changes;
}

std::string list_changes(const std::vector<ConfigChange>& changes, bool allowed) {
  const auto shown = [](const std::string& value) { return value.empty() ? "not given" : value; };
  std::string text;
  for (const ConfigChange& change : changes) {
    if (change.allowed != allowed) continue;
    text += "\n  " + change.path + ": " + shown(change.saved) + " in the checkpoint, " +
            shown(change.now) + " now";
  }
  return text;
}

}  // namespace trainctl
