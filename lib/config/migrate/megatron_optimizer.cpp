// Megatron-LM's Muon, and what its arguments say of single parameters: entries of optimizer.groups.
#include <algorithm>
#include <cmath>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "config/migrate/project_rules.h"
#include "config/schema/muon_config.h"
#include "config/schema/values.h"

namespace trainctl {
namespace {

constexpr Default muon_defaults[] = {
    {"optimizer.muon.momentum", "0.9"}, {"optimizer.muon.nesterov", "false"},
    {"optimizer.muon.steps", "5"},      {"optimizer.muon.scale", "spectral"},
    {"optimizer.muon.eps", "1e-15"},    {"optimizer.muon.ns_dtype", "bf16"},
};

constexpr MuonTriple aol[] = {{4.0098, -7.0585, 2.4635},
                              {3.4585, -5.5479, 2.5959},
                              {2.7573, -3.2939, 1.4254},
                              {2.7215, -3.0494, 1.3169}};
constexpr MuonTriple cans[] = {{8.4703, -25.1081, 18.6293},
                               {4.1828, -3.1087, 0.5806},
                               {3.9619, -2.9541, 0.5630},
                               {3.2866, -2.4647, 0.5074},
                               {2.2737, -1.6447, 0.4162}};
constexpr MuonTriple cubic5[] = {{3.3656576, -3.3420992, 0},
                                 {2.5744352, -1.4957376, 0},
                                 {2.5368962, -1.4312570, 0},
                                 {2.4418906, -1.2764040, 0},
                                 {2.2230472, -0.9630650, 0}};

/// A set of --muon-coefficient-type: one of ours, or its triples.
struct CoefficientSet {
  std::string_view name, ours;
  std::span<const MuonTriple> list;
};
constexpr CoefficientSet coefficient_sets[] = {{"simple", "simple", {}},
                                               {"quintic", "quintic", {}},
                                               {"polar_express", "polar_express", {}},
                                               {"aol", "", aol},
                                               {"cans", "", cans},
                                               {"cubic5", "", cubic5},
                                               {"deepseekv4", "deepseek_v4", {}}};

int word_node(Migration& m, const std::string& word, bool quoted) {
  YamlNode node;
  node.kind = YamlNode::Kind::scalar;
  node.scalar = word;
  node.quoted = quoted;
  return m.tree().add_node(std::move(node));
}

int list_node(Migration& m, const std::vector<int>& items) {
  YamlNode list;
  list.kind = YamlNode::Kind::sequence;
  list.items = items;
  return m.tree().add_node(std::move(list));
}

/// What arguments say of some parameters; an entry where they say something.
struct Group {
  std::vector<std::string> match;
  std::string type{};
  double lr_mult = 1;
  bool decays = false;  // though it is a vector
};

int group_node(Migration& m, const Group& group) {
  std::vector<int> patterns;
  for (const std::string& pattern : group.match) patterns.push_back(word_node(m, pattern, true));
  YamlNode map;
  map.kind = YamlNode::Kind::map;
  map.entries.push_back({"match", {}, list_node(m, patterns)});
  const auto add = [&](const char* key, const std::string& value) {
    map.entries.push_back({key, {}, word_node(m, value, false)});
  };
  if (!group.type.empty()) add("type", group.type);
  if (group.lr_mult != 1) add("lr_mult", plain_number(group.lr_mult));
  if (group.decays) add("wd_mult", "1");
  return m.tree().add_node(std::move(map));
}

/// That of the embedding and the output layer over the rate of all others. Both schedules must have
/// one shape.
double decoupled_rate(Migration& m) {
  const ForeignValue* given = m.given("decoupled-lr");
  if (given == nullptr) return 1;
  const double rate = m.number("lr", 0);
  const double least = m.number("min-lr", 0);
  const double own = m.number("decoupled-lr", 0);
  const double own_least = m.number("decoupled-min-lr", 0);
  if (rate <= 0 || own < 0 || std::abs(own_least * rate - least * own) > 1e-9 * rate * rate) {
    m.refuse(*given, "its rate does not go with --lr as a multiple",
             "give --decoupled-min-lr " + plain_number(least * own / std::max(rate, 1e-30)) +
                 ", which is to --decoupled-lr as --min-lr is to --lr");
    return 1;
  }
  return own / rate;
}

bool has_biases(const Migration& m) {
  return !m.flag("disable-bias-linear") || m.flag("add-qkv-bias");
}

std::vector<Group> groups_of(Migration& m, bool muon) {
  const bool lion = muon && m.text("muon-scalar-optimizer") == "lion";
  const std::string rest = lion ? "lion" : "";
  std::vector<Group> groups;
  const auto add = [&](const Group& group) {
    const bool says = !group.type.empty() || group.lr_mult != 1 || group.decays;
    if (says && !group.match.empty()) groups.push_back(group);
  };
  std::vector<std::string> vocabulary{"embedding.token.weight"};
  if (m.flag("untie-embeddings-and-output-weights")) vocabulary.emplace_back("head.weight");
  add({.match = vocabulary, .type = rest, .lr_mult = decoupled_rate(m)});
  const bool decays = m.flag("apply-wd-to-qk-layernorm");
  if (m.flag("qk-layernorm") && !m.flag("qk-l2-norm")) {  // l2 has no weights
    add({.match = {"*.q_norm.weight", "*.k_norm.weight"}, .type = rest, .decays = decays});
  }
  add({.match = {"*norm*"}, .type = rest});
  if (has_biases(m)) add({.match = {"*.bias"}, .type = rest});
  if (m.text("softmax-type") == "learnable") add({.match = {"*.sinks.weight"}, .type = rest});
  if (!muon) return groups;
  std::vector<std::string> matrices;
  if (m.at("model.family") == "gpt2") matrices.emplace_back("embedding.position.weight");
  if (m.at("moe.num_experts")) matrices.emplace_back("*.router.weight");
  if (m.at("moe.num_experts") && m.flag("moe-shared-expert-gate")) {
    matrices.emplace_back("*.shared_gate.weight");
  }
  add({.match = matrices, .type = "muon"});
  return groups;
}

void put_groups(Migration& m, bool muon) {
  const std::vector<Group> groups = groups_of(m, muon);
  if (groups.empty()) return;
  std::vector<int> nodes;
  for (const Group& group : groups) nodes.push_back(group_node(m, group));
  m.put_list("optimizer.groups", list_node(m, nodes), "what Megatron does with these");
}

/// The triples of all steps, since a list of ours does not begin again.
void put_triples(Migration& m, const ForeignValue& given, const CoefficientSet& set, int steps) {
  const int length = static_cast<int>(set.list.size());
  if (steps % length != 0) {
    return m.refuse(given,
                    "--muon-num-ns-steps " + std::to_string(steps) + " is no multiple of its " +
                        std::to_string(length) + " steps",
                    "give a multiple");
  }
  std::vector<int> nodes;
  for (int i = 0; i < std::min(steps, 100); ++i) {
    std::vector<int> numbers;
    for (const double number : set.list[static_cast<std::size_t>(i % length)]) {
      numbers.push_back(word_node(m, plain_number(number), false));
    }
    nodes.push_back(list_node(m, numbers));
  }
  m.put_list("optimizer.muon.coefficients", list_node(m, nodes),
             "muon-coefficient-type " + std::string(set.name));
}

void settle_coefficients(Migration& m) {
  const ForeignValue* given = m.given("muon-coefficient-type");
  if (given == nullptr) return;
  const std::string name = m.text("muon-coefficient-type");
  const auto* set = std::ranges::find(coefficient_sets, name, &CoefficientSet::name);
  if (set == std::end(coefficient_sets)) {
    return m.refuse(*given, "its coefficients are not known",
                    "give a set by name, and write the list as optimizer.muon.coefficients");
  }
  // What lies outside is refused where the steps are.
  const double steps = std::clamp(m.number("muon-num-ns-steps", 5), 1.0, 1000.0);
  if (!set->list.empty()) return put_triples(m, *given, *set, static_cast<int>(steps));
  m.put("optimizer.muon.coefficients", std::string(set->ours), "muon-coefficient-type " + name);
}

/// linear_fc1 is gate over up as one matrix; linear_qkv is split unless that is switched off.
void settle_items(Migration& m) {
  if (m.flag("muon-no-split-qkv") && m.flag("attention-output-gate")) {
    return m.refuse(*m.given("muon-no-split-qkv"),
                    "Megatron's one matrix also has the rows of the output gate, no item here has",
                    "leave out one of both");
  }
  std::vector<int> items;
  if (m.flag("swiglu") || m.flag("quick-geglu")) items.push_back(word_node(m, "gate_up", false));
  if (m.flag("muon-no-split-qkv")) items.push_back(word_node(m, "qkv", false));
  if (items.empty()) return;
  m.put_list("optimizer.muon.items", list_node(m, items), "matrices as Megatron has them");
}

void settle_muon(Migration& m) {
  put_defaults(m, muon_defaults);
  settle_coefficients(m);
  settle_items(m);
  const std::string mode = m.text("muon-tp-mode");
  if (mode == "blockwise" && m.number("tensor-model-parallel-size", 1) > 1) {
    m.refuse(*m.given("muon-tp-mode"),
             "blockwise makes a matrix of each rank's part, so the layout would change the numbers",
             "give duplicated or distributed: whole matrices, as here");
  }
  if (m.text("muon-fp32-matmul-prec") == "high") {
    m.not_carried("muon-fp32-matmul-prec", "high is TF32 in Megatron, and fp32 here");
  }
  const std::string scalar = m.text("muon-scalar-optimizer", "adam");
  if (scalar == "lion") {
    m.not_carried("muon-scalar-optimizer", "lion reads beta1 and beta2, AdamW's keys: check them");
  } else if (scalar != "adam" && scalar != "adamw") {
    m.refuse(*m.given("muon-scalar-optimizer"), scalar + " is not built", "adam and lion are");
  }
}

/// Of every optimizer; the other two count only with the flag.
void settle_clipping(Migration& m) {
  if (m.flag("qk-clip")) return m.put_default("optimizer.qk_clip_threshold", "100");
  for (const auto& [key, path] : {std::pair("qk-clip-threshold", "optimizer.qk_clip_threshold"),
                                  std::pair("qk-clip-alpha", "optimizer.qk_clip_alpha")}) {
    if (m.given(key) == nullptr) continue;
    m.remove(path);
    m.not_carried(key, "it counts only with --qk-clip");
  }
}

}  // namespace

void settle_megatron_optimizer(Migration& m) {
  const ForeignValue* given = m.given("optimizer");
  if (given != nullptr && !m.at("optimizer.type")) {
    m.refuse(*given, "this optimizer is not built", "adam, sgd and muon are");
  }
  const bool muon = m.at("optimizer.type") == "muon";
  if (muon) {
    settle_muon(m);
  } else if (m.at("optimizer.muon")) {
    m.remove("optimizer.muon");
    m.not_carried("optimizer", "arguments of Muon count only with --optimizer muon");
  }
  settle_clipping(m);
  put_groups(m, muon);
}

}  // namespace trainctl
