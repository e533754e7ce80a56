#include "checkpoint/config_changes.h"

#include <algorithm>
#include <map>
#include <span>
#include <string_view>

#include "formats/print/config_values.h"

namespace trainctl {

namespace {

// Everything under these must stay, except the rows of `free_keys`.
constexpr std::string_view fixed_keys[] = {"model.", "moe.", "data.tokenizer", "optimizer.type"};
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

}  // namespace

std::vector<ConfigChange> config_changes(const Config& saved, const Config& now) {
  std::map<std::string, std::string> before;
  for (const auto& [path, value] : config_values(saved)) before[path] = value;
  std::map<std::string, std::string> after;
  for (const auto& [path, value] : config_values(now)) after[path] = value;
  std::map<std::string, std::string> all = before;
  all.insert(after.begin(), after.end());
  std::vector<ConfigChange> changes;
  for (const auto& entry : all) {
    const std::string& path = entry.first;
    if (before[path] == after[path] || covers(ignored_keys, path)) continue;
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
