#include "config/mindformers/mindformers_file.h"

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "config/mindformers/file_parts.h"
#include "config/schema/known_paths.h"
#include "config/schema/values.h"
#include "config/support/standing.h"
#include "config/upstream/other_keys.h"
#include "config/upstream/upstream.h"
#include "config/yaml/numbers.h"

namespace trainctl {

using Kind = YamlNode::Kind;

std::string plain_word(const std::string& text) {
  if (text == "True" || text == "TRUE") return "true";
  if (text == "False" || text == "FALSE") return "false";
  return text;
}

bool MindformersFile::is_map(std::string_view path) const {
  const YamlEntry* entry = find(path);
  return entry != nullptr && tree.node(entry->value).kind == Kind::map;
}

std::optional<std::int64_t> MindformersFile::count(std::string_view path,
                                                   std::int64_t fallback) const {
  const YamlEntry* entry = find(path);
  if (entry == nullptr) return fallback;
  std::int64_t value = 0;
  const YamlNode& node = tree.node(entry->value);
  if (node.kind != Kind::scalar || parse_number(node.scalar, value)) return std::nullopt;
  return value > 0 && value <= 1'000'000 ? std::optional<std::int64_t>(value) : std::nullopt;
}

bool MindformersFile::flag(std::string_view path, bool fallback) const {
  return has(path) ? plain_word(text(path)) == "true" : fallback;
}

void MindformersFile::remove(std::string_view path) {
  const std::size_t dot = path.rfind('.');
  const bool at_top = dot == std::string_view::npos;
  const YamlEntry* section = at_top ? nullptr : find(path.substr(0, dot));
  if (section == nullptr && !at_top) return;
  const int map = at_top ? root : section->value;
  const std::string_view key = at_top ? path : path.substr(dot + 1);
  tree.remove(map, key);
}

void MindformersFile::put(std::string_view path, const Span& key_span, int value) {
  int map = root;
  for (std::size_t dot; (dot = path.find('.')) != std::string::npos;) {
    const std::string key(path.substr(0, dot));
    path.remove_prefix(dot + 1);
    const YamlEntry* entry = tree.find(map, key);
    if (entry != nullptr && tree.node(entry->value).kind == Kind::map) {
      map = entry->value;
      continue;
    }
    const int made = tree.add_map({}, key_span);
    tree.remove(map, key);
    tree.node(map).entries.push_back({key, {0, 0, 0, 0}, made});
    map = made;
  }
  if (YamlEntry* entry = tree.find(map, path)) {
    *entry = {std::string(path), key_span, value};
  } else {
    tree.node(map).entries.push_back({std::string(path), key_span, value});
  }
}

void MindformersFile::ignore(const std::string& path, const std::string& why, const Span& where) {
  diagnostics.add(
      {Severity::warning, "not-carried", path, "ignored: " + why, "", tree.place(where)});
}

void MindformersFile::refuse(const std::string& path, const std::string& what,
                             const std::string& help, const Span& where) {
  diagnostics.add({Severity::error, "no-counterpart", path, what, help, tree.place(where)});
}

void MindformersFile::move(const std::string& from, const std::string& to,
                           const std::string& text) {
  const YamlEntry entry = *find(from);
  const int value = tree.add_scalar(text, tree.node(entry.value).span);
  remove(from);
  put(to, entry.key_span, value);
  spellings[to] = from;
}

void MindformersFile::give(const std::string& to, const std::string& text, const Span& where) {
  if (!has(to)) put(to, where, tree.add_scalar(text, where));
}

namespace {

// Sections whose remaining keys are reported one by one.
constexpr std::string_view partial[] = {"runner_config", "runner_wrapper", "model.model_config",
                                        "train_dataset", "eval_dataset"};

/// Keys that remain only because another key decides, with the reason.
constexpr std::pair<std::string_view, std::string_view> reasons[] = {
    {"runner_config.epochs", "train.steps is given"},
    {"runner_config.gradient_accumulation_steps",
     "with pipeline stages parallel_config.micro_batch_num says it"},
};

class Carrier {
 public:
  Carrier(YamlTree& tree, int root, Diagnostics& diagnostics) : file_{tree, root, diagnostics} {}

  Spellings run() {
    const bool known = is_mindformers();
    MuonOfFile muon(file_, known);
    if (!known) {
      muon.give_groups();
      return std::move(file_.spellings);
    }
    stand_alone();
    const std::string implied = name_family(file_);
    carry_evaluation();
    count_micro_batches();
    sgd_of_mindspore_ = file_.text("optimizer.type") == "SGD";
    for (const OtherKey& row : carried_keys()) carry(row);
    carry_samples();
    if (!file_.has("train.steps")) carry({"runner_config.epochs", "train.epochs"});
    carry_optimizer();
    carry_clipping();
    derive_model(file_);
    muon.give_groups();
    if (!implied.empty()) file_.give(implied, "true", file_.find("model.model_config")->key_span);
    for (std::string_view section : partial) answer_rest(std::string(section));
    answer_sections();
    give_batch();
    return std::move(file_.spellings);
  }

 private:
  YamlTree& tree() { return file_.tree; }

  /// Whether the file has a key or section that only MindFormers has. In a file with our section
  /// train, the sections for its runner and data do not count: they are unknown keys there.
  bool is_mindformers() const {
    constexpr std::string_view marks[] = {"use_parallel", "run_mode"};
    constexpr std::string_view sections[] = {"parallel_config", "moe_config", "recompute_config",
                                             "model.model_config"};
    constexpr std::string_view of_runner[] = {"runner_config", "runner_wrapper", "train_dataset",
                                              "eval_dataset"};
    const YamlTree& all = file_.tree;
    if (all.node(file_.root).kind != Kind::map) return false;
    const auto is_map = [&](std::string_view path) { return file_.is_map(path); };
    const YamlEntry* train = file_.find("train");
    const bool is_ours =
        train != nullptr && all.place(train->key_span).origin != Place::Origin::set_option;
    return std::ranges::any_of(marks, [&](std::string_view mark) { return file_.has(mark); }) ||
           std::ranges::any_of(sections, is_map) ||
           (!is_ours && std::ranges::any_of(of_runner, is_map));
  }

  void carry(const OtherKey& row) {
    const YamlEntry* found = file_.find(row.key);
    if (found == nullptr) return;
    const YamlEntry entry = *found;
    const YamlNode value = tree().node(entry.value);
    const std::string from(row.key);
    const std::string to(row.paths);
    if (value.kind == Kind::null) return file_.remove(from);
    const bool is_scalar = value.kind == Kind::scalar;
    const auto ours = is_scalar ? convert(row, value.scalar) : std::optional(value.scalar);
    if (!ours) {
      // The reader lists the allowed words; other devices are reported with the rest of `context`.
      if (from == to || from.starts_with("context.")) return;
      file_.remove(from);
      return file_.refuse(from, shown(value.scalar) + " has no counterpart in " + to,
                          "write " + to + " instead", entry.key_span);
    }
    file_.remove(from);
    if (is_scalar && ours->empty()) return;
    const int carried = *ours == value.scalar
                            ? entry.value
                            : tree().add_scalar(*ours, tree().node(entry.value).span);
    if (const YamlEntry* other = file_.find(to)) return compare(from, to, entry, carried, *other);
    file_.put(to, entry.key_span, carried);
    if (from != to) file_.spellings.emplace(to, from);
  }

  /// Handles two keys of the file with one counterpart: reports a contradiction.
  void compare(const std::string& from, const std::string& to, const YamlEntry& entry, int carried,
               const YamlEntry& other) {
    if (same_value(tree(), to, other.value, carried)) return;
    const std::string place = tree().place(other.key_span).position();
    if (from == "optimizer.learning_rate") {
      return file_.ignore(from, to + " is given in " + place, entry.key_span);
    }
    file_.diagnostics.add({Severity::error, "two-spellings", to,
                           shown(from) + ": " + flow_text(tree(), carried) + " contradicts " +
                               flow_text(tree(), other.value) + " in " + place + "; both mean " +
                               to,
                           "remove one of the two", tree().place(entry.key_span)});
  }

  /// Applies use_parallel: false, which overrides the parallel sections.
  void stand_alone() {
    const YamlEntry* found = file_.find("use_parallel");
    if (found == nullptr) return;
    const YamlEntry entry = *found;
    const bool parallel = file_.flag("use_parallel", true);
    file_.remove("use_parallel");
    if (parallel || tree().node(entry.value).kind == Kind::null) return;
    file_.put("parallel.parallel_mode", entry.key_span,
              tree().add_scalar("stand_alone", tree().node(entry.value).span));
  }

  void carry_evaluation() {
    const auto every = file_.count("eval_step_interval", 0);
    if (!file_.flag("do_eval", false) || every.value_or(0) < 1) return;
    file_.move("eval_step_interval", "train.validate_every", std::to_string(*every));
  }

  /// Derives the steps from the given number of samples of the data set.
  void carry_samples() {
    const std::string section = "train_dataset.data_loader.";
    const YamlEntry* sizes = file_.find(section + "sizes");
    carry_blend(section + "config.data_path");
    check_split(section + "config.split");
    if (sizes == nullptr) return;
    const YamlEntry entry = *sizes;
    const YamlNode list = tree().node(entry.value);
    file_.remove(section + "sizes");
    std::int64_t samples = 0;
    const bool is_list = list.kind == Kind::sequence && !list.items.empty() &&
                         !parse_number(tree().node(list.items[0]).scalar, samples);
    if (file_.has("train.steps") || !is_list || samples < 1) return;
    const auto batch = global_batch();
    const auto epochs = file_.count("runner_config.epochs", 1);
    if (!batch || !epochs || samples > 1'000'000'000'000 || samples / *batch < 1) {
      return file_.refuse(section + "sizes", "the number of steps cannot be computed",
                          "write runner_config.stop_step", entry.key_span);
    }
    file_.remove("runner_config.epochs");
    file_.give("train.steps", std::to_string(*epochs * (samples / *batch)), entry.key_span);
  }

  /// Converts a list such as ['1', a, '2', b], in which weights and paths alternate.
  void carry_blend(const std::string& path) {
    const YamlEntry* found = file_.find(path);
    if (found == nullptr || file_.has("data.train")) return;
    const YamlEntry entry = *found;
    const YamlNode given = tree().node(entry.value);
    if (given.kind != Kind::sequence || given.items.empty() || given.items.size() % 2 != 0) return;
    file_.remove(path);
    std::vector<int> sources;
    for (std::size_t i = 0; i < given.items.size(); i += 2) {
      const YamlNode weight = tree().node(given.items[i]);
      const int number = tree().add_scalar(weight.scalar, weight.span);
      sources.push_back(tree().add_map(
          {{"path", weight.span, given.items[i + 1]}, {"weight", weight.span, number}},
          weight.span));
    }
    file_.put("data.train", entry.key_span, tree().add_list(std::move(sources), given.span));
    file_.spellings["data.train"] = path;
  }

  /// Converts a split such as "1, 0, 0", which holds out no data.
  void check_split(const std::string& path) {
    const YamlEntry* found = file_.find(path);
    if (found == nullptr) return;
    const YamlEntry entry = *found;
    const OtherKey row{"split", "data.validation.fraction", "#split"};
    const auto fraction = convert(row, file_.text(path));
    file_.remove(path);
    if (fraction == "0") return;
    if (!fraction) {
      return file_.refuse(path, "expected three numbers like \"99, 1, 0\"", "", entry.key_span);
    }
    file_.give("data.validation.fraction", *fraction, entry.key_span);
  }

  void carry_optimizer() {
    const YamlEntry* section = file_.find("optimizer");
    if (section == nullptr || tree().node(section->value).kind != Kind::map) return;
    const Span where = section->key_span;
    file_.give("optimizer.weight_decay", "0.0", where);  // MindFormers' default
    // MindSpore's SGD adds the decay to the gradient.
    if (sgd_of_mindspore_) {
      file_.give("optimizer.weight_decay_form", "coupled", where);
    }
    const YamlEntry* found = file_.find("optimizer.betas");
    if (found == nullptr) return;
    const YamlEntry entry = *found;
    const YamlNode list = tree().node(entry.value);
    file_.remove("optimizer.betas");
    if (list.kind != Kind::sequence || list.items.size() != 2) {
      return file_.refuse("optimizer.betas", "expected a list of two numbers",
                          "write betas: [0.9, 0.95], for example", entry.key_span);
    }
    file_.put("optimizer.beta1", entry.key_span, list.items[0]);
    file_.put("optimizer.beta2", entry.key_span, list.items[1]);
  }

  void carry_clipping() {
    const YamlEntry* use = file_.find("runner_wrapper.use_clip_grad");
    const YamlEntry* norm = file_.find("runner_wrapper.max_grad_norm");
    if (use == nullptr && norm == nullptr) return;
    const bool clips = file_.flag("runner_wrapper.use_clip_grad", false);
    const YamlEntry entry = clips && norm != nullptr ? *norm : use != nullptr ? *use : *norm;
    const Span span = tree().node(entry.value).span;
    const int value =
        clips && norm != nullptr ? entry.value : tree().add_scalar(clips ? "1.0" : "0.0", span);
    for (const char* key : {"runner_wrapper.use_clip_grad", "runner_wrapper.max_grad_norm"}) {
      file_.remove(key);
    }
    if (!file_.has("optimizer.clip_grad_norm")) {
      file_.put("optimizer.clip_grad_norm", entry.key_span, value);
    }
  }

  /// Reports each remaining key of a section.
  void answer_rest(const std::string& section) {
    const YamlEntry* found = file_.find(section);
    if (found == nullptr) return;
    const YamlNode given = tree().node(found->value);
    if (given.kind != Kind::map) {
      if (given.kind != Kind::null) {
        file_.refuse(section, "expected a map of keys", "", found->key_span);
      }
      return file_.remove(section);
    }
    for (const YamlEntry& entry : given.entries) answer_key(section, entry);
    file_.remove(section);
  }

  void answer_key(const std::string& section, const YamlEntry& entry) {
    const YamlNode value = tree().node(entry.value);
    const std::string path = section + "." + entry.key;
    for (const auto& [key, why] : reasons) {
      if (key == path) return file_.ignore(path, std::string(why), entry.key_span);
    }
    const ForeignKey* row = find_foreign(section, entry.key);
    if (row == nullptr) row = find_foreign(section, "*");
    if (row != nullptr) return answer(*row, path, entry);
    if (value.kind == Kind::null || (value.kind == Kind::map && value.entries.empty())) return;
    if (value.kind == Kind::map && section == "train_dataset" && entry.key == "data_loader") {
      for (const YamlEntry& inner : value.entries) answer_key(path, inner);
      return;
    }
    if (value.kind == Kind::map && path == "train_dataset.data_loader.config") {
      for (const YamlEntry& inner : value.entries) answer_key(path, inner);
      return;
    }
    unknown(section, entry);
  }

  void answer(const ForeignKey& row, const std::string& path, const YamlEntry& entry) {
    const YamlNode& value = tree().node(entry.value);
    if (asks_nothing(row, value)) return;
    const std::string instead(row.instead);
    if (row.answer == "idle") return file_.ignore(path, instead, entry.key_span);
    std::string help = help_of(row);
    const auto plain = split_words(row.plain);
    if (!plain.empty()) help += "; the value " + plain.front() + " is accepted";
    file_.refuse(path,
                 shown(entry.key) + ": " + flow_text(tree(), entry.value) +
                     " has no counterpart here, and would change what is trained",
                 help, entry.key_span);
  }

  void unknown(const std::string& section, const YamlEntry& entry) {
    const std::string prefix = section + ".";
    std::vector<std::string> known;
    for (const OtherKey& row : carried_keys()) {
      if (row.key.starts_with(prefix)) known.emplace_back(row.key.substr(prefix.size()));
    }
    for (const ForeignKey& row : foreign_keys()) {
      if (row.section == section) known.emplace_back(row.key);
    }
    const std::string near = nearest(entry.key, known);
    file_.diagnostics.add(
        {Severity::error, "unknown-key", prefix + shown(entry.key),
         "unknown key \"" + shown(entry.key) + "\" in " + section,
         near.empty() ? "remove it if nothing depends on it" : "did you mean " + near + "?",
         tree().place(entry.key_span)});
  }

  /// Reports top-level keys, and model.arch, that no other table handles. Leaves keys unknown to
  /// the schema for the reader to refuse.
  void answer_sections() {
    for (const char* section : {"", "model"}) {
      const YamlEntry* found = *section == '\0' ? nullptr : file_.find(section);
      if (*section != '\0' && found == nullptr) continue;
      const int map = found == nullptr ? file_.root : found->value;
      if (tree().node(map).kind != Kind::map) continue;
      for (const YamlEntry& entry : std::vector<YamlEntry>(tree().node(map).entries)) {
        const ForeignKey* row = find_foreign(section, entry.key);
        if (row == nullptr || row->answer == "not_built") continue;
        const std::string path = (*section == '\0' ? "" : "model.") + entry.key;
        answer(*row, path, entry);
        file_.remove(path);
      }
    }
  }

  bool has_stages() const {
    return file_.count("parallel_config.pipeline_stage", 1).value_or(1) > 1 ||
           file_.count("parallel_config.pipeline_stages", 1).value_or(1) > 1 ||
           file_.count("parallel.pipeline_stages", 1).value_or(1) > 1;
  }

  /// Counts micro-batches. With one stage, upstream sets micro_batch_num to 1 and uses
  /// gradient_accumulation_steps. Each consists of micro_batch_interleave_num parts of batch_size
  /// sequences.
  void count_micro_batches() {
    const std::string key = "parallel_config.micro_batch_num";
    const std::string accumulation = "runner_config.gradient_accumulation_steps";
    const std::string parts = "micro_batch_interleave_num";
    const auto accumulated = file_.count(accumulation, 1);
    const auto interleaved = file_.count(parts, 1);
    if (accumulated == 1) file_.remove(accumulation);
    const YamlEntry* found = file_.find(key);
    if (found != nullptr && file_.count(key, 1) && !has_stages()) {
      if (file_.count(key, 1) != 1) {
        file_.ignore(key, "with one pipeline stage it counts as 1", found->key_span);
      }
      file_.remove(key);
    }
    if (!accumulated || !interleaved) return;
    const bool splits = *interleaved > 1;
    const std::string& told = splits ? parts : accumulation;
    const auto count = has_stages() ? file_.count(key, 1) : accumulated;
    if (count && (splits || (!has_stages() && *accumulated > 1))) {
      file_.move(told, "train.micro_batch_num", std::to_string(*count * *interleaved));
      file_.remove(key);
      if (!has_stages()) file_.remove(accumulation);
    }
  }

  /// The global batch size of upstream: batch_size x data_parallel x micro_batch_interleave_num x
  /// micro_batch_num, or without stages x gradient_accumulation_steps.
  std::optional<std::int64_t> global_batch() const {
    if (!file_.has("parallel_config") || !file_.has("train.micro_batch_size")) return std::nullopt;
    const auto sequences = file_.count("train.micro_batch_size", 1);
    const auto replicas = file_.count("parallel_config.data_parallel", 1);
    const auto count = file_.has("train.micro_batch_num")
                           ? file_.count("train.micro_batch_num", 1)
                           : file_.count("parallel_config.micro_batch_num", 1);
    if (!sequences || !replicas || !count) return std::nullopt;
    return *sequences * *replicas * *count;
  }

  void give_batch() {
    const auto global = global_batch();
    if (!global || file_.has("train.global_batch_size")) return;
    const Span where = tree().node(file_.find("train.micro_batch_size")->value).span;
    file_.put("train.global_batch_size", {0, 0, 0, 0},
              tree().add_scalar(std::to_string(*global), where));
  }

  MindformersFile file_;
  bool sgd_of_mindspore_ = false;  // the file uses MindSpore's name of SGD
};

}  // namespace

Spellings carry_mindformers(YamlTree& tree, int root, Diagnostics& diagnostics) {
  return Carrier(tree, root, diagnostics).run();
}

}  // namespace trainctl
