#include <algorithm>
#include <cmath>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>

#include "base/integers.h"
#include "base/text.h"
#include "base/token_layout.h"
#include "config/mindformers/mindformers_file.h"
#include "config/schema/values.h"
#include "config/yaml/numbers.h"

namespace trainctl {
namespace {

constexpr std::string_view policy_key = "moe_config.routing_policy";

/// Options of TopkRouterV2 that are not built, each with the value that switches it off.
constexpr std::pair<const char*, const char*> only_plain[] = {{"topk_method", "greedy"},
                                                              {"balance_via_topk_bias", "false"},
                                                              {"use_gating_sigmoid", "false"},
                                                              {"enable_cold_hot_expert", "false"}};

bool is_true(const std::string& word) { return word == "true" || word == "True"; }
bool is_false(const std::string& word) { return word == "false" || word == "False"; }

/// Reads the options in section moe_config that only TopkRouterV2 has.
class PolicyReader {
 public:
  PolicyReader(YamlTree& tree, int root, int section, Diagnostics& diagnostics)
      : tree_(tree), root_(root), section_(section), diagnostics_(diagnostics) {}

  Spellings read() {
    const YamlEntry policy = *tree_.find(section_, "routing_policy");
    const std::string word = tree_.node(policy.value).scalar;
    remove("routing_policy");
    if (word == "TopkRouterV2") {
      read_second(policy);
    } else if (!word.empty() && word != "TopkRouterV1") {
      refuse(policy, "routing_policy", "TopkRouterV1 and TopkRouterV2 are accepted");
    }
    return std::move(spellings_);
  }

 private:
  void read_second(const YamlEntry& policy) {
    put("router_choice", policy, "topk");
    for (const auto& [key, plain] : only_plain) only(key, plain);
    carry_flag("enable_sdrop", "overflow", "token", "position");
    carry_flag("norm_topk_prob", "router_weights", "", "all");
    carry_losses();
    if (const auto scaling = take("routed_scaling_factor")) {
      put("router_topk_scaling_factor", *scaling, tree_.node(scaling->value).scalar);
    }
    if (const auto factor = take("aux_loss_factor")) {
      not_carried(*factor, "TopkRouterV2 does not read it; see aux_loss_types");
    }
    if (const auto rate = take("topk_bias_update_rate")) {
      not_carried(*rate, "it counts only with balance_via_topk_bias");
    }
  }

  void only(const char* key, const std::string& plain) {
    const auto given = take(key);
    if (!given) return;
    const YamlNode& node = tree_.node(given->value);
    const std::string word = is_false(node.scalar) ? "false" : node.scalar;
    if (node.kind == YamlNode::Kind::null || word == plain) return;
    refuse(*given, key, "the value " + plain + " is accepted");
  }

  /// Converts a bool to one of two words; an empty word keeps our default.
  void carry_flag(const char* key, const char* ours, const std::string& when_true,
                  const std::string& when_false) {
    const auto given = take(key);
    if (!given) return;
    const std::string word = tree_.node(given->value).scalar;
    const std::string& value = is_true(word) ? when_true : when_false;
    if (!is_true(word) && !is_false(word)) return refuse(*given, key, "write true or false");
    if (!value.empty()) put(ours, *given, value);
  }

  /// Converts the losses: only the loss of experts over a group is built.
  void carry_losses() {
    const auto types = take("aux_loss_types");
    const auto factors = take("aux_loss_factors");
    if (!types || tree_.node(types->value).kind == YamlNode::Kind::null) return;
    const std::vector<int> names = tree_.node(types->value).items;
    const std::vector<int> sizes = factors ? tree_.node(factors->value).items : std::vector<int>{};
    if (names.empty()) return;
    for (const int name : names) {
      if (tree_.node(name).scalar == "expert") continue;
      return refuse(*types, "aux_loss_types", "only [expert] is accepted");
    }
    if (names.size() != 1 || sizes.size() != 1) {
      return refuse(*types, "aux_loss_types",
                    "[expert] needs one number in aux_loss_factors, such as [0.01]");
    }
    put("router_load_balancing_type", *types, "aux_loss");
    put("aux_loss_factor", *factors, tree_.node(sizes.front()).scalar);
  }

  std::optional<YamlEntry> take(const std::string& key) {
    const YamlEntry* found = tree_.find(section_, key);
    if (found == nullptr) return std::nullopt;
    YamlEntry entry = *found;
    remove(key);
    return entry;
  }
  void remove(const std::string& key) { tree_.remove(section_, key); }

  /// Sets a key of ours, with the position of their entry.
  void put(const std::string& key, const YamlEntry& from, const std::string& text) {
    YamlNode node;
    node.kind = YamlNode::Kind::scalar;
    node.scalar = text;
    node.span = tree_.node(from.value).span;
    node.overrides = tree_.node(from.value).overrides;
    const int value = tree_.add_node(std::move(node));
    tree_.node(moe_section(from)).entries.push_back({key, from.key_span, value});
    spellings_["moe." + key] = "moe_config." + from.key;
  }
  int moe_section(const YamlEntry& from) {
    const YamlEntry* found = tree_.find(root_, "moe");
    if (found != nullptr && tree_.node(found->value).kind == YamlNode::Kind::map) {
      return found->value;
    }
    const int made = tree_.add_map({}, from.key_span);
    tree_.node(root_).entries.push_back({"moe", {0, 0, 0, 0}, made});
    return made;
  }

  void refuse(const YamlEntry& entry, const std::string& key, const std::string& help) {
    const YamlNode& node = tree_.node(entry.value);
    const std::string value = node.scalar.empty() ? "" : ": " + shown(node.scalar);
    diagnostics_.add({Severity::error, "not-built", "moe." + key, "not built yet: " + key + value,
                      help, tree_.place(entry.key_span)});
  }
  void not_carried(const YamlEntry& entry, const std::string& why) {
    diagnostics_.add({Severity::warning, "not-carried", "moe." + entry.key, "ignored: " + why, "",
                      tree_.place(entry.key_span)});
  }

  YamlTree& tree_;
  int root_, section_;
  Diagnostics& diagnostics_;
  Spellings spellings_;
};

/// Sets the router's own defaults where moe_config omits keys.
class RouterDefaults {
 public:
  RouterDefaults(YamlTree& tree, int root, const Spellings& spellings, Diagnostics& diagnostics)
      : tree_(tree), root_(root), spellings_(spellings), diagnostics_(diagnostics) {
    second_ = came_from("moe.router_choice", policy_key);
  }

  void fill() {
    const auto group = group_tokens();
    if (!group) return;
    const int moe = tree_.find_path(root_, "moe")->value;
    const bool unlimited = second_ && capacity() <= 0;
    if (unlimited) tree_.remove(moe, "capacity_factor");
    std::string values = formatted(
        "router_choice: {}, router_weights: {}, router_load_balancing_type: {}, overflow: "
        "position, {}",
        second_ ? "topk" : "rounds", whole_weights() ? "all" : "kept",
        second_ ? "none" : "round_aux_loss",
        *group > 0 ? formatted("expert_group_size: {}", *group)
                   : std::string("expert_group: micro_batch"));
    if (!unlimited) values += ", capacity_factor: " + plain_number(capacity());
    const int text = tree_.add_text(Place::Origin::defaulted, "moe_config");
    const int defaults = parse_yaml(tree_, "{" + values + "}", text, diagnostics_);
    tree_.fill_in(moe, defaults, "moe");
    if (tree_.text_at(moe, "router_weights") != "all") drop_scaling(moe);
    if (second_ && !unlimited) round_capacity(moe, defaults, *group);
  }

 private:
  /// The integer at a path; `otherwise` if it is missing or unreadable.
  std::int64_t number(std::string_view path, std::int64_t otherwise) const {
    std::int64_t value = 0;
    const std::string word = tree_.text_at(root_, path);
    const bool readable = !word.empty() && !parse_number(word, value);
    return readable && value > 0 && value < std::int64_t{1} << 31 ? value : otherwise;
  }
  double capacity() const {
    double value = 0;
    const std::string word = tree_.text_at(root_, "moe.capacity_factor");
    return parse_number(word, value) ? 1.1 : value;
  }
  bool whole_weights() const { return second_ && number("moe.router_topk", 1) == 1; }
  bool splits_tokens() const { return is_true(tree_.text_at(root_, "parallel.sequence_parallel")); }

  bool came_from(const std::string& path, std::string_view key) const {
    const auto spelling = spellings_.find(path);
    return spelling != spellings_.end() && spelling->second == key;
  }
  /// V2 applies the scaling factor only to weights that are not normalised.
  void drop_scaling(int moe) {
    const std::string key = "router_topk_scaling_factor";
    const YamlEntry* found = tree_.find(moe, key);
    if (found == nullptr || !came_from("moe." + key, "moe_config.routed_scaling_factor")) return;
    const Place place = tree_.place(found->key_span);
    double value = 1;
    const bool plain = !parse_number(tree_.node(found->value).scalar, value) && value == 1;
    tree_.remove(moe, key);
    if (plain) return;
    diagnostics_.add({Severity::warning, "not-carried", "moe.routed_scaling_factor",
                      "ignored: TopkRouterV2 scales only weights that it does not divide by their "
                      "sum (norm_topk_prob)",
                      "", place});
  }

  /// The number of tokens over which the router counts; none, with an error, if the file does not
  /// give it.
  std::optional<std::int64_t> group_tokens() {
    const std::int64_t tokens = number("train.micro_batch_size", 0) * number("model.seq_length", 0);
    if (!second_) return tokens;
    const std::int64_t parts = number("parallel.context_parallel", 1) *
                               (splits_tokens() ? number("parallel.tensor_parallel", 1) : 1);
    const bool given = tree_.find_path(root_, "moe.expert_group_size") != nullptr;
    if (parts == 1 || tokens > 0 || given) return tokens / parts;
    diagnostics_.add(
        {Severity::error, "expert-group-size", "moe.expert_group_size",
         formatted(
             "TopkRouterV2 counts over a {}th of a micro-batch, and nothing says how large that is",
             parts),
         "add train.micro_batch_size and model.seq_length, or moe.expert_group_size",
         tree_.place(tree_.find_path(root_, "moe.router_choice")->key_span)});
    return std::nullopt;
  }

  /// Rounds the capacity as V2 does: up to a multiple of ranks and chunks.
  void round_capacity(int moe, int defaults, std::int64_t group) {
    const std::int64_t chunks = is_true(tree_.text_at(root_, "moe.comp_comm_parallel"))
                                    ? number("moe.comp_comm_parallel_degree", 2)
                                    : 1;
    const std::int64_t unit =
        chunks * (splits_tokens() ? 1 : number("parallel.tensor_parallel", 1));
    group = number("moe.expert_group_size", group);
    if (unit == 1 || group == 0) {
      if (unit > 1) refuse_unknown(unit);
      return;
    }
    const std::int64_t experts = number("moe.num_experts", 1);
    const std::int64_t topk = number("moe.router_topk", 1);
    const std::int64_t places = std::min(group, expert_places(capacity(), topk, experts, group));
    const std::int64_t rounded = round_up(places, unit);
    if (rounded == places) return;
    const double factor = (static_cast<double>(rounded) - 0.5) * static_cast<double>(experts) /
                          static_cast<double>(topk * group);
    const int value = tree_.add_scalar(plain_number(factor), tree_.node(defaults).span);
    tree_.find(moe, "capacity_factor")->value = value;
  }
  void refuse_unknown(std::int64_t unit) {
    diagnostics_.add({Severity::error, "expert-group-size", "moe.expert_group_size",
                      formatted("TopkRouterV2 rounds the places of an expert up to a multiple of "
                                "{}, and nothing says how many there are",
                                unit),
                      "add train.micro_batch_size and model.seq_length, or moe.expert_group_size",
                      tree_.place(tree_.find_path(root_, "moe.router_choice")->key_span)});
  }

  YamlTree& tree_;
  int root_;
  const Spellings& spellings_;
  bool second_ = false;  // the router is TopkRouterV2
  Diagnostics& diagnostics_;
};

}  // namespace

Spellings carry_router(YamlTree& tree, int root, Diagnostics& diagnostics) {
  const YamlEntry* policy = tree.find_path(root, policy_key);
  if (policy == nullptr) return {};
  YamlEntry& section = *tree.find(root, "moe_config");
  const int own = tree.add_node(YamlNode(tree.node(section.value)));  // an alias may share it
  tree.find(root, "moe_config")->value = own;
  return PolicyReader(tree, root, own, diagnostics).read();
}

void fill_router(YamlTree& tree, int root, const Spellings& spellings, Diagnostics& diagnostics) {
  const bool used = std::any_of(spellings.begin(), spellings.end(), [](const auto& spelling) {
    return spelling.second.starts_with("moe_config.");
  });
  std::int64_t experts = 0;
  const std::string word = tree.text_at(root, "moe.num_experts");
  if (!used || parse_number(word, experts) || experts < 2) return;
  RouterDefaults(tree, root, spellings, diagnostics).fill();
}

}  // namespace trainctl
