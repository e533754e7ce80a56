#include "config/upstream/mindformers_file.h"

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "config/schema/known_paths.h"
#include "config/schema/values.h"
#include "config/support/foreign.h"
#include "config/upstream/upstream.h"
#include "config/yaml/numbers.h"

namespace trainctl {
namespace {

using Pair = std::pair<std::string_view, std::string_view>;

constexpr Pair family_words[] = {{"LlamaConfig", "llama"}, {"GPT2Config", "gpt2"}};
constexpr Pair optimizers[] = {
    {"AdamW", "adamw"}, {"FP32StateAdamWeightDecay", "adamw"}, {"SGD", "sgd"}};
constexpr Pair schedules[] = {{"CosineWithWarmUpLR", "cosine"},
                              {"LinearWithWarmUpLR", "linear"},
                              {"ConstantWarmUpLR", "constant"}};
constexpr Pair type_words[] = {{"bfloat16", "bf16"}, {"float16", "fp16"}, {"float32", "fp32"}};
constexpr Pair devices[] = {{"CPU", "cpu"}, {"GPU", "cuda"}};

struct Carried {
  std::string_view from;
  std::string_view to;
  std::span<const Pair> words = {};  // empty: the value as it is
};

constexpr Carried carried_keys[] = {
    {"seed", "train.seed"},
    {"output_dir", "output.dir"},
    {"context.device_target", "parallel.device", devices},
    {"model.model_config.type", "model.family", family_words},
    {"model.model_config.num_layers", "model.num_layers"},
    {"model.model_config.num_hidden_layers", "model.num_layers"},
    {"model.model_config.hidden_size", "model.hidden_size"},
    {"model.model_config.num_heads", "model.num_attention_heads"},
    {"model.model_config.num_attention_heads", "model.num_attention_heads"},
    {"model.model_config.n_kv_heads", "model.num_query_groups"},
    {"model.model_config.num_key_value_heads", "model.num_query_groups"},
    {"model.model_config.multi_query_group_num", "model.num_query_groups"},
    {"model.model_config.head_dim", "model.kv_channels"},
    {"model.model_config.vocab_size", "model.vocab_size"},
    {"model.model_config.seq_length", "model.seq_length"},
    {"model.model_config.intermediate_size", "model.ffn_hidden_size"},
    {"model.model_config.ffn_hidden_size", "model.ffn_hidden_size"},
    {"model.model_config.max_position_embedding", "model.max_position_embeddings"},
    {"model.model_config.max_position_embeddings", "model.max_position_embeddings"},
    {"model.model_config.rms_norm_eps", "model.norm_epsilon"},
    {"model.model_config.layernorm_epsilon", "model.norm_epsilon"},
    {"model.model_config.theta", "model.rotary_base"},
    {"model.model_config.rope_theta", "model.rotary_base"},
    {"model.model_config.tie_word_embeddings", "model.tie_word_embeddings"},
    {"model.model_config.qkv_has_bias", "model.add_qkv_bias"},
    {"model.model_config.hidden_dropout_rate", "model.hidden_dropout"},
    {"model.model_config.hidden_dropout_prob", "model.hidden_dropout"},
    {"model.model_config.attention_dropout_rate", "model.attention_dropout"},
    {"model.model_config.embedding_dropout_prob", "model.embedding_dropout"},
    {"model.model_config.initializer_range", "model.init_method_std"},
    {"model.model_config.compute_dtype", "precision.compute", type_words},
    {"model.model_config.offset", "parallel.pipeline.offset"},
    {"model.model_config.pp_interleave_num", "parallel.virtual_pipeline_stages"},
    {"runner_config.batch_size", "train.micro_batch_size"},
    {"runner_config.stop_step", "train.steps"},
    {"train_dataset.data_loader.dataset_dir", "data.train"},
    {"train_dataset.data_loader.shuffle", "data.shuffle"},
    {"train_dataset.prefetch_size", "data.prefetch"},
    {"eval_dataset.data_loader.dataset_dir", "data.validation.path"},
    {"optimizer.type", "optimizer.type", optimizers},
    {"lr_schedule.type", "lr_schedule.style", schedules},
    {"lr_schedule.learning_rate", "lr_schedule.max_lr"},
    {"optimizer.learning_rate", "lr_schedule.max_lr"},
    {"lr_schedule.lr_end", "lr_schedule.min_lr"},
    {"lr_schedule.warmup_lr_init", "lr_schedule.init_lr"},
    {"lr_schedule.total_steps", "lr_schedule.decay_steps"},
};

// Why a key stays behind, where there is more to say than that it does.
constexpr Pair reasons[] = {
    {"runner_config.epochs", "train.steps is given"},
    {"runner_config.sink_mode", "every step returns to the host"},
    {"runner_config.sink_size", "every step returns to the host"},
    {"runner_config.gradient_accumulation_steps", "see train.micro_batch_num"},
    {"runner_wrapper.type", "there is one kind of training step"},
    {"runner_wrapper.scale_sense", "master weights and sums are fp32: see hooks.grad_scale"},
    {"train_dataset.batch_size", "see train.micro_batch_size"},
    {"train_dataset.seed", "train.seed orders the data"},
};

// What came over in part; of these sections each key left is reported.
constexpr std::string_view partial[] = {"runner_config", "runner_wrapper", "model.model_config",
                                        "context",       "train_dataset",  "eval_dataset"};

class Carrier {
 public:
  Carrier(YamlTree& tree, int root, Diagnostics& diagnostics)
      : tree_(tree), root_(root), diagnostics_(diagnostics) {}

  Spellings run() {
    if (!is_mindformers()) return {};
    stand_alone();
    drop_lone_microbatches();
    accumulated_ = number("runner_config.gradient_accumulation_steps", 1);
    carry_decay_form();
    for (const Carried& row : carried_keys) carry(row);
    if (find("train.steps") == nullptr) carry({"runner_config.epochs", "train.epochs"});
    carry_betas();
    carry_clipping();
    for (std::string_view section : partial) report_rest(std::string(section));
    report_unknown_sections();
    give_batch();
    return std::move(spellings_);
  }

 private:
  using Kind = YamlNode::Kind;

  /// Whether the file has a section that only MindFormers' runner has.
  bool is_mindformers() const {
    constexpr std::string_view marks[] = {"runner_config",    "runner_wrapper",    "train_dataset",
                                          "eval_dataset",     "parallel_config",   "trainer",
                                          "use_parallel",     "run_mode",          "moe_config",
                                          "recompute_config", "model.model_config"};
    return tree_.node(root_).kind == Kind::map &&
           std::any_of(std::begin(marks), std::end(marks),
                       [this](std::string_view mark) { return find(mark) != nullptr; });
  }

  const YamlEntry* find(std::string_view path) const {
    int map = root_;
    while (true) {
      const std::size_t dot = path.find('.');
      if (tree_.node(map).kind != Kind::map) return nullptr;
      const YamlEntry* entry = tree_.find(map, path.substr(0, dot));
      if (entry == nullptr || dot == std::string_view::npos) return entry;
      map = entry->value;
      path.remove_prefix(dot + 1);
    }
  }

  void remove(const std::string& path) {
    const std::size_t dot = path.rfind('.');
    const YamlEntry* section = dot == std::string::npos ? nullptr : find(path.substr(0, dot));
    const int map = section == nullptr ? root_ : section->value;
    const std::string key = path.substr(dot + 1);
    std::erase_if(tree_.node(map).entries, [&](const YamlEntry& e) { return e.key == key; });
  }

  /// Puts a value at a path of our schema; missing sections are created.
  void put(std::string_view path, const Span& key_span, int value) {
    int map = root_;
    for (std::size_t dot; (dot = path.find('.')) != std::string_view::npos;) {
      const std::string key(path.substr(0, dot));
      path.remove_prefix(dot + 1);
      const YamlEntry* entry = tree_.find(map, key);
      if (entry != nullptr && tree_.node(entry->value).kind == Kind::map) {
        map = entry->value;
        continue;
      }
      YamlNode section;
      section.kind = Kind::map;
      section.span = key_span;
      const int made = tree_.add_node(std::move(section));
      std::erase_if(tree_.node(map).entries, [&](const YamlEntry& e) { return e.key == key; });
      tree_.node(map).entries.push_back({key, {0, 0, 0, 0}, made});
      map = made;
    }
    tree_.node(map).entries.push_back({std::string(path), key_span, value});
  }

  int scalar(const std::string& text, const Span& span) {
    YamlNode node;
    node.kind = Kind::scalar;
    node.scalar = text;
    node.span = span;
    return tree_.add_node(std::move(node));
  }

  void not_carried(const std::string& path, const std::string& why, const Span& where) {
    diagnostics_.add(
        {Severity::warning, "not-carried", path, "ignored: " + why, "", tree_.place(where)});
  }

  void carry(const Carried& row) {
    const YamlEntry* found = find(row.from);
    if (found == nullptr) return;
    const YamlEntry entry = *found;
    const YamlNode& value = tree_.node(entry.value);
    const std::string from(row.from);
    int carried = entry.value;
    if (!row.words.empty()) {
      const auto word = counterpart(row.words, value.scalar);
      if (!word && row.from == row.to) return;  // already in our spelling
      if (!word) {
        not_carried(from, shown(value.scalar) + " has no counterpart", entry.key_span);
        return remove(from);
      }
      carried = scalar(std::string(*word), value.span);
    }
    remove(from);
    if (value_is_computed(from, tree_.node(carried))) return;
    if (const YamlEntry* other = find(row.to)) {
      if (tree_.node(other->value).scalar == tree_.node(carried).scalar) return;
      const std::string place = tree_.place(other->key_span).position();
      return not_carried(from, std::string(row.to) + " is given in " + place, entry.key_span);
    }
    put(row.to, entry.key_span, carried);
    if (row.from != row.to) spellings_.emplace(row.to, row.from);
  }

  static std::optional<std::string_view> counterpart(std::span<const Pair> words,
                                                     const std::string& text) {
    for (const auto& [theirs, ours] : words) {
      if (theirs == text) return ours;
    }
    return std::nullopt;
  }

  /// Whether the value means that upstream derives it.
  static bool value_is_computed(const std::string& from, const YamlNode& value) {
    const bool may_be =
        from == "lr_schedule.total_steps" || from == "runner_config.stop_step" || from == "seed";
    return value.kind == Kind::null ||
           (may_be && (value.scalar == "-1" || (value.scalar == "0" && from != "seed")));
  }

  /// use_parallel: false overrides the parallel sections.
  void stand_alone() {
    const YamlEntry* found = find("use_parallel");
    if (found == nullptr) return;
    const YamlEntry entry = *found;
    const std::string word = tree_.node(entry.value).scalar;
    remove("use_parallel");
    if (word != "false" && word != "False") return;
    if (find("parallel.parallel_mode") != nullptr) remove("parallel.parallel_mode");
    put("parallel.parallel_mode", entry.key_span,
        scalar("stand_alone", tree_.node(entry.value).span));
  }

  /// MindSpore's SGD adds weight decay to the gradient.
  void carry_decay_form() {
    const YamlEntry* type = find("optimizer.type");
    if (type == nullptr || tree_.node(type->value).scalar != "SGD") return;
    if (find("optimizer.weight_decay_form") != nullptr) return;
    const Span key_span = type->key_span;
    put("optimizer.weight_decay_form", key_span, scalar("coupled", tree_.node(type->value).span));
  }

  void carry_betas() {
    const YamlEntry* found = find("optimizer.betas");
    if (found == nullptr) return;
    const YamlEntry entry = *found;
    const YamlNode list = tree_.node(entry.value);
    remove("optimizer.betas");
    if (list.kind != Kind::sequence || list.items.size() != 2) {
      return not_carried("optimizer.betas", "expected a list of two numbers", entry.key_span);
    }
    put("optimizer.beta1", entry.key_span, list.items[0]);
    put("optimizer.beta2", entry.key_span, list.items[1]);
  }

  void carry_clipping() {
    const YamlEntry* use = find("runner_wrapper.use_clip_grad");
    const YamlEntry* norm = find("runner_wrapper.max_grad_norm");
    if (use == nullptr && norm == nullptr) return;
    const std::string asked = use == nullptr ? "" : tree_.node(use->value).scalar;
    const bool clips = asked == "true" || asked == "True";
    const YamlEntry entry = clips && norm != nullptr ? *norm : use != nullptr ? *use : *norm;
    const Span span = tree_.node(entry.value).span;
    const int value = clips && norm != nullptr ? entry.value : scalar(clips ? "1.0" : "0.0", span);
    for (const char* key : {"runner_wrapper.use_clip_grad", "runner_wrapper.max_grad_norm"}) {
      if (find(key) != nullptr) remove(key);
    }
    if (find("optimizer.clip_grad_norm") == nullptr) {
      put("optimizer.clip_grad_norm", entry.key_span, value);
    }
  }

  void report_rest(const std::string& section) {
    const YamlEntry* found = find(section);
    if (found == nullptr || tree_.node(found->value).kind != Kind::map) return;
    for (const YamlEntry& entry : std::vector<YamlEntry>(tree_.node(found->value).entries)) {
      const YamlNode& value = tree_.node(entry.value);
      if (value.kind == Kind::map && value.entries.empty()) continue;  // all of it was carried over
      const std::string path = section + "." + entry.key;
      const auto reason = counterpart(reasons, path);
      not_carried(path, reason ? std::string(*reason) : "it has no counterpart", entry.key_span);
    }
    remove(section);
  }

  /// Reports the top-level keys that no other table handles.
  void report_unknown_sections() {
    for (const YamlEntry& entry : std::vector<YamlEntry>(tree_.node(root_).entries)) {
      const bool upstream =
          std::any_of(upstream_sections().begin(), upstream_sections().end(),
                      [&](const auto& section) { return section.first == entry.key; });
      if (upstream || find_known_path(entry.key) != nullptr || entry.key == "include" ||
          find_foreign("", entry.key) != nullptr) {
        continue;
      }
      not_carried(shown(entry.key), "it has no counterpart", entry.key_span);
      remove(entry.key);
    }
  }

  std::optional<std::int64_t> number(std::string_view path, std::int64_t fallback) const {
    const YamlEntry* entry = find(path);
    if (entry == nullptr) return fallback;
    std::int64_t value = 0;
    const YamlNode& node = tree_.node(entry->value);
    if (node.kind != Kind::scalar || parse_number(node.scalar, value)) return std::nullopt;
    return value > 0 && value < 1'000'000 ? std::optional<std::int64_t>(value) : std::nullopt;
  }

  bool has_stages() const {
    return number("parallel_config.pipeline_stage", 1).value_or(1) > 1 ||
           number("parallel_config.pipeline_stages", 1).value_or(1) > 1 ||
           number("parallel.pipeline_stages", 1).value_or(1) > 1;
  }

  /// With one stage upstream sets micro_batch_num to 1.
  void drop_lone_microbatches() {
    const YamlEntry* found = find("parallel_config.micro_batch_num");
    if (found == nullptr || has_stages()) return;
    const Span span = found->key_span;
    if (number("parallel_config.micro_batch_num", 1) != 1) {
      not_carried("parallel_config.micro_batch_num", "with one pipeline stage it counts as 1",
                  span);
    }
    remove("parallel_config.micro_batch_num");
  }

  /// Upstream's global batch is batch_size x data_parallel x micro_batch_num, without stages
  /// batch_size x data_parallel x gradient_accumulation_steps.
  void give_batch() {
    const YamlEntry* batch = find("train.micro_batch_size");
    if (find("parallel_config") == nullptr || batch == nullptr) return;
    if (find("train.global_batch_size") != nullptr) return;
    const auto sequences = number("train.micro_batch_size", 1);
    const auto replicas = number("parallel_config.data_parallel", 1);
    const auto parts = has_stages() ? number("parallel_config.micro_batch_num", 1) : accumulated_;
    if (!sequences || !replicas || !parts) return;
    const std::int64_t global = *sequences * *replicas * *parts;
    put("train.global_batch_size", {0, 0, 0, 0},
        scalar(std::to_string(global), tree_.node(batch->value).span));
  }

  YamlTree& tree_;
  int root_;
  Diagnostics& diagnostics_;
  Spellings spellings_;
  std::optional<std::int64_t> accumulated_ = 1;  // gradient_accumulation_steps
};

}  // namespace

Spellings carry_mindformers(YamlTree& tree, int root, Diagnostics& diagnostics) {
  return Carrier(tree, root, diagnostics).run();
}

}  // namespace trainctl
