#include "config/mindformers/muon_of_file.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "config/yaml/numbers.h"

namespace trainctl {
namespace {

using Kind = YamlNode::Kind;

constexpr const char* llama_factory = "optim_config";

bool is_map(const TreeEditor& edit, const char* path) {
  const YamlEntry* found = edit.find(path);
  return found != nullptr && edit.tree().node(found->value).kind == Kind::map;
}

int add_list(YamlTree& tree, std::vector<int> items, const Span& where) {
  YamlNode list;
  list.kind = Kind::sequence;
  list.span = where;
  list.items = std::move(items);
  return tree.add_node(std::move(list));
}

bool is_triple(const YamlTree& tree, int node) {
  const YamlNode& list = tree.node(node);
  return list.kind == Kind::sequence && list.items.size() == 3 &&
         std::ranges::all_of(list.items,
                             [&](int one) { return tree.node(one).kind == Kind::scalar; });
}

/// Of [[[a, b, c], count], ...] each triple as often as it is made; empty where it is none.
std::vector<int> repeated_triples(const YamlTree& tree, const YamlNode& list) {
  std::vector<int> triples;
  for (const int item : list.items) {
    const YamlNode& pair = tree.node(item);
    std::int64_t count = 0;
    const bool is_pair = pair.kind == Kind::sequence && pair.items.size() == 2 &&
                         is_triple(tree, pair.items[0]) &&
                         !parse_number(tree.node(pair.items[1]).scalar, count);
    if (!is_pair || count < 1 || count > 100) return {};
    triples.insert(triples.end(), static_cast<std::size_t>(count), pair.items[0]);
  }
  return triples;
}

}  // namespace

MuonOfFile::MuonOfFile(MindformersFile& file, bool is_mindformers) : file_(file) {
  const TreeEditor& edit = file_.edit;
  if (edit.tree().node(edit.root()).kind != Kind::map) return;
  if (is_mindformers && is_map(edit, "optimizer") && edit.text("optimizer.type") == "Muon") {
    take_mindformers();
  } else if (is_map(edit, llama_factory) && !edit.has("optimizer") &&
             edit.text("optim_config.name") == "muon") {
    take_llama_factory();
  }
}

void MuonOfFile::move(const std::string& from, const char* to) {
  const YamlEntry* found = file_.edit.find(from);
  if (found == nullptr) return;
  const YamlEntry entry = *found;
  file_.edit.remove(from);
  file_.edit.put(to, entry.key_span, entry.value);
  file_.spellings[to] = from;
}

void MuonOfFile::give(const char* to, const char* value) { file_.give(to, value, where_); }

void MuonOfFile::move_betas(const std::string& from, const char* first, const char* second) {
  const YamlEntry* found = file_.edit.find(from);
  if (found == nullptr) {
    give("optimizer.beta1", first);
    return give("optimizer.beta2", second);
  }
  const YamlEntry entry = *found;
  const YamlNode list = file_.edit.tree().node(entry.value);
  file_.edit.remove(from);
  if (list.kind != Kind::sequence || list.items.size() != 2) {
    return file_.refuse(from, "expected a list of two numbers", "write [0.9, 0.95], for example",
                        entry.key_span);
  }
  file_.edit.put("optimizer.beta1", entry.key_span, list.items[0]);
  file_.edit.put("optimizer.beta2", entry.key_span, list.items[1]);
}

/// One triple, which all ns_steps repeat, or a list that says how often it makes each.
void MuonOfFile::put_coefficients(const std::string& from) {
  YamlTree& tree = file_.edit.tree();
  const YamlEntry* found = file_.edit.find(from);
  if (found == nullptr) return give("optimizer.muon.coefficients", "simple");
  const YamlEntry entry = *found;
  const YamlNode list = tree.node(entry.value);
  file_.edit.remove(from);
  std::vector<int> triples;
  if (is_triple(tree, entry.value)) {
    triples = {entry.value};
  } else if (list.kind == Kind::sequence) {
    triples = repeated_triples(tree, list);
  }
  if (triples.empty()) {
    return file_.refuse(from, "expected [a, b, c] or [[[a, b, c], count], ...]",
                        "write the triples as optimizer.muon.coefficients", entry.key_span);
  }
  const YamlEntry* steps = file_.edit.find("optimizer.muon.steps");
  if (!is_triple(tree, entry.value) && steps != nullptr) {
    if (file_.spellings.contains("optimizer.muon.steps")) {
      file_.ignore("optimizer.ns_steps", "ns_coefficients says how many steps there are",
                   steps->key_span);
    }
    file_.edit.remove("optimizer.muon.steps");
  }
  file_.edit.put("optimizer.muon.coefficients", entry.key_span,
                 add_list(tree, std::move(triples), list.span));
  file_.spellings["optimizer.muon.coefficients"] = from;
}

/// The threshold has our name; it counts only where clipping is on.
void MuonOfFile::settle_clipping() {
  TreeEditor& edit = file_.edit;
  if (edit.flag("optimizer.qk_clip_enabled", false)) {
    give("optimizer.qk_clip_threshold", "100");
  } else if (const YamlEntry* threshold = edit.find("optimizer.qk_clip_threshold")) {
    file_.ignore("optimizer.qk_clip_threshold", "it counts only with qk_clip_enabled: True",
                 threshold->key_span);
    edit.remove("optimizer.qk_clip_threshold");
  }
  edit.remove("optimizer.qk_clip_enabled");
}

void MuonOfFile::take_mindformers() {
  TreeEditor& edit = file_.edit;
  found_ = true;
  where_ = edit.find("optimizer.type")->key_span;
  edit.put("optimizer.type", where_, edit.scalar("muon", where_));
  move("optimizer.momentum", "optimizer.muon.momentum");
  move("optimizer.nesterov", "optimizer.muon.nesterov");
  move("optimizer.ns_steps", "optimizer.muon.steps");
  move("optimizer.matched_adamw_rms", "optimizer.muon.scale_factor");
  move("optimizer.adamw_eps", "optimizer.eps");
  move_betas("optimizer.adamw_betas", "0.95", "0.95");
  give("optimizer.muon.scale", "spectral");
  give("optimizer.muon.scale_factor", "0.2");
  give("optimizer.muon.ns_dtype", "bf16");
  give("optimizer.muon.steps", "5");
  put_coefficients("optimizer.ns_coefficients");
  settle_clipping();
  if (const YamlEntry* fused = edit.find("optimizer.use_fused_adamw")) {
    file_.ignore("optimizer.use_fused_adamw", "it changes the speed alone", fused->key_span);
    edit.remove("optimizer.use_fused_adamw");
  }
  if (const YamlEntry* swap = edit.find("optimizer.swap")) {
    if (edit.flag("optimizer.swap", false)) {
      file_.refuse("optimizer.swap", "moments on the host are not built", "write false",
                   swap->key_span);
    }
    edit.remove("optimizer.swap");
  }
  if (const YamlEntry* included = edit.find("optimizer.adamw_include")) {
    const YamlEntry entry = *included;
    std::vector<std::string> names;
    for (const int item : edit.tree().node(entry.value).items) {
      names.push_back(edit.tree().node(item).scalar);
    }
    edit.remove("optimizer.adamw_include");
    if (names != std::vector<std::string>{"*word_embeddings*", "*output_layer*"}) {
      file_.refuse("optimizer.adamw_include", "its patterns are of other names of parameters",
                   "write entries of optimizer.groups with type: adamw; `trainctl plan` lists the "
                   "names",
                   entry.key_span);
    }
  }
  file_.ignore(
      "optimizer.type",
      "MindFormers takes the parts of latent attention apart (mla_parts); models here have "
      "none",
      where_);
}

void MuonOfFile::take_llama_factory() {
  TreeEditor& edit = file_.edit;
  found_ = true;
  decays_all_ = true;
  where_ = edit.find("optim_config.name")->key_span;
  file_.move("optim_config.name", "optimizer.type", "muon");
  move("optim_config.wd", "optimizer.weight_decay");
  move("optim_config.momentum", "optimizer.muon.momentum");
  move("optim_config.nesterov", "optimizer.muon.nesterov");
  move("optim_config.ns_steps", "optimizer.muon.steps");
  move("optim_config.adamw_eps", "optimizer.eps");
  give("optimizer.weight_decay", "0.1");
  move_betas("optim_config.adamw_betas", "0.9", "0.95");
  give("optimizer.muon.coefficients", "simple");
  give("optimizer.muon.ns_dtype", "bf16");
  if (edit.tree().node(edit.find(llama_factory)->value).entries.empty()) edit.remove(llama_factory);
}

void MuonOfFile::give_groups() {
  TreeEditor& edit = file_.edit;
  if (!found_ || edit.has("optimizer.groups")) return;
  YamlTree& tree = edit.tree();
  const auto entry_of = [&](const std::vector<const char*>& patterns, const char* key,
                            const char* value) {
    std::vector<int> list;
    for (const char* pattern : patterns) {
      list.push_back(edit.scalar(pattern, where_));
      tree.node(list.back()).quoted = true;
    }
    YamlNode map;
    map.kind = Kind::map;
    map.span = where_;
    map.entries = {{"match", where_, add_list(tree, list, where_)},
                   {key, where_, edit.scalar(value, where_)}};
    return tree.add_node(std::move(map));
  };
  std::vector<const char*> matrices;
  if (!decays_all_ && edit.text("model.family") == "gpt2") {
    matrices.push_back("embedding.position.weight");
  }
  if (edit.has("moe.num_experts")) matrices.push_back("*.router.weight");
  if (edit.flag("moe.shared_expert_gate", false)) matrices.push_back("*.shared_gate.weight");
  std::vector<int> groups;
  if (!matrices.empty()) groups.push_back(entry_of(matrices, "type", "muon"));
  if (decays_all_) groups.push_back(entry_of({"*"}, "wd_mult", "1"));
  if (!groups.empty()) edit.put("optimizer.groups", where_, add_list(tree, groups, where_));
}

}  // namespace trainctl
