// Rules for Megatron-LM's arguments: experts, layers of different kinds, Muon, and defaults.

#include <algorithm>
#include <cmath>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/at.h"
#include "base/text.h"
#include "config/migrate/migration.h"
#include "config/schema/muon_config.h"
#include "config/schema/values.h"
#include "config/support/batch_ramp.h"
#include "config/upstream/hugging_face.h"
#include "config/yaml/tree.h"

namespace trainctl {
namespace {

/// A Megatron argument that is a number, or a list with a number for each layer.
struct MegatronMarks {
  std::int64_t every = 0;            // the number for all layers; 0 if there is none
  std::vector<std::int64_t> list{};  // 0 or 1 for each layer, if a list is given
};
MegatronMarks read_megatron_marks(Migration& m, const char* argument);  // refuses other values

constexpr std::string_view expert_defaults = "moe.router_topk=2";

void refuse(Migration& m, const std::string& argument, const std::string& message,
            const std::string& help) {
  m.refuse("moe", "--" + argument + ": " + message, help, "not-built");
}

/// The first word of an argument; refuses an argument with several words.
std::string only_word(Migration& m, const char* argument, const std::string& otherwise) {
  const ForeignValue* given = m.given(argument);
  if (given == nullptr || given->words.empty()) return otherwise;
  if (given->words.size() > 1) {
    refuse(m, argument, "several balance losses at once are not built", "give one");
  }
  return given->words.front();
}

/// Sets the load-balancing loss and the group of tokens over which it counts.
void settle_balance(Migration& m, double sequence, double micro_batch) {
  const std::string type = only_word(m, "moe-router-load-balancing-type", "aux_loss");
  const std::string factor = only_word(m, "moe-aux-loss-coeff", "0");
  m.remove("moe.router_load_balancing_type");
  m.remove("moe.aux_loss_factor");
  const bool by_sequence = type == "seq_aux_loss";
  if (type != "none" && type != "aux_loss" && !by_sequence) {
    return refuse(m, "moe-router-load-balancing-type", type + " is not built",
                  "aux_loss, seq_aux_loss and none are; a loss over the global batch has no "
                  "counterpart");
  }
  double value = 0;
  if (type == "none" || (!parse_number(factor, value) && value == 0)) {
    return m.put("moe.router_load_balancing_type", "none",
                 type == "none" ? "moe-router-load-balancing-type none"
                                : "moe-aux-loss-coeff 0, also where it is not given");
  }
  m.put("moe.aux_loss_factor", factor, "moe-aux-loss-coeff");
  if (by_sequence && sequence > 0) {
    m.put("moe.expert_group_size", sequence, "seq-length: seq_aux_loss");
  } else if (!by_sequence && sequence > 0 && micro_batch > 0) {
    m.put("moe.expert_group_size", sequence * micro_batch,
          "seq-length x micro-batch-size: aux_loss");
  } else {
    m.not_carried("moe-router-load-balancing-type",
                  "nothing says over how many tokens the loss counts; see moe.expert_group_size");
  }
  const bool limited = m.at("moe.router_num_groups") || m.flag("moe-router-enable-expert-bias");
  if (limited) {
    m.put("moe.balance_counts", "free", "Megatron counts without bias and groups of experts");
  }
}

/// Sets the capacity, which the tokens of a rank in a micro-batch share.
void settle_capacity(Migration& m, double sequence, double micro_batch) {
  if (m.number("moe-expert-capacity-factor", 0) <= 0) {
    m.remove("moe.capacity_factor");
    m.remove("moe.overflow");
    return;
  }
  if (m.at("moe.overflow") == "position") {
    m.not_carried("moe-token-drop-policy",
                  "Megatron's order of the tokens that it drops is not specified; here first "
                  "choices come before second ones, then earlier tokens");
  }
  m.put_default("moe.overflow", "probability");
  const double parts = m.at("parallel.sequence_parallel") && m.flag("sequence-parallel")
                           ? m.number("tensor-model-parallel-size", 1)
                           : 1;
  if (m.number("context-parallel-size", 1) > 1) {
    return refuse(m, "moe-expert-capacity-factor",
                  "with context parallelism a rank's tokens are not neighbours, and they share a "
                  "capacity in Megatron",
                  "remove one of the two");
  }
  if (parts > 1 && micro_batch > 1) {
    return refuse(
        m, "moe-expert-capacity-factor",
        "with sequence parallelism and micro-batches of several sequences a rank's tokens "
        "are not neighbours, and they share a capacity in Megatron",
        "set --micro-batch-size to 1, or remove --sequence-parallel");
  }
  if (sequence > 0 && micro_batch > 0) {
    m.put("moe.capacity_group_size", sequence * micro_batch / parts,
          parts > 1 ? "seq-length x micro-batch-size / tensor-model-parallel-size"
                    : "seq-length x micro-batch-size");
  }
}

/// Gives every n-th layer, or all after the first dense ones, experts. Returns any other list.
std::vector<std::int64_t> settle_frequency(Migration& m) {
  const MegatronMarks marks = read_megatron_marks(m, "moe-layer-freq");
  if (marks.every > 0) {
    m.put("moe.layer_frequency", static_cast<double>(marks.every), "moe-layer-freq");
    return {};
  }
  const auto first = std::ranges::find(marks.list, 1);
  const bool rest = std::all_of(first, marks.list.end(), [](std::int64_t one) { return one == 1; });
  if (!marks.list.empty() && first == marks.list.end()) {
    refuse(m, "moe-layer-freq", "no layer has experts", "leave out --num-experts");
    return {};
  }
  if (!rest) return marks.list;
  if (first != marks.list.begin()) {
    m.put("moe.first_dense_layers", static_cast<double>(first - marks.list.begin()),
          "moe-layer-freq");
  }
  return {};
}

/// Sets the keys of experts, once sizes and layout are set. If no key of moe can say which layers
/// have experts, returns 1 (experts) or 0 for each layer, else an empty list.
std::vector<std::int64_t> settle_megatron_experts(Migration& m) {
  if (!m.at("moe.num_experts")) {
    if (m.at("moe")) m.remove("moe");  // without --num-experts Megatron ignores these
    return {};
  }
  put_defaults(m, expert_defaults);
  const double sequence = m.number("seq-length", 0);
  const double micro_batch = m.number("micro-batch-size", 0);
  std::vector<std::int64_t> routed = settle_frequency(m);
  settle_balance(m, sequence, micro_batch);
  settle_capacity(m, sequence, micro_batch);
  if (m.flag("moe-apply-probs-on-input")) {
    refuse(m, "moe-apply-probs-on-input", "weights at the input of experts are not built",
           "they are multiplied with what experts make");
  }
  if (m.number("moe-input-jitter-eps", 0) > 0) {
    refuse(m, "moe-input-jitter-eps", "noise on the router's input is not built", "leave it out");
  }
  return routed;
}

// Layers of different kinds in Megatron-LM: some have experts, windows or RoPE.

constexpr std::size_t max_numbers = 10'000;
constexpr int deepest = 16;  // nested parentheses

/// A list of numbers as Megatron evaluates it: "([0]*3+[1])*2" or "[0,1,0]".
class ListReader {
 public:
  explicit ListReader(const std::string& text) : text_(text) {}

  /// The list; none if the text is not such a list.
  std::optional<std::vector<std::int64_t>> read() {
    std::vector<std::int64_t> all = sum(0);
    if (at_ != text_.size() || all.empty()) fails_ = true;
    if (fails_) return std::nullopt;
    return all;
  }

 private:
  bool take(char c) {
    const bool is = at_ < text_.size() && text_[at_] == c;
    at_ += is ? 1 : 0;
    return is;
  }
  std::int64_t number() {
    const std::size_t end = std::min(text_.find_first_not_of("0123456789", at_), text_.size());
    std::int64_t value = 0;
    fails_ = fails_ || end - at_ > 5 || parse_number(text_.substr(at_, end - at_), value);
    at_ = end;
    return value;
  }
  std::vector<std::int64_t> part(int depth) {
    std::vector<std::int64_t> values;
    if (take('(')) {
      values = sum(depth + 1);
      fails_ = !take(')') || fails_;
    } else if (take('[')) {
      do values.push_back(number());
      while (take(',') && !fails_);
      fails_ = !take(']') || fails_;
    } else {
      fails_ = true;
    }
    while (!fails_ && take('*')) values = repeated(values, number());
    return values;
  }
  std::vector<std::int64_t> repeated(const std::vector<std::int64_t>& once, std::int64_t times) {
    std::vector<std::int64_t> all;
    fails_ = fails_ || once.size() * static_cast<std::size_t>(times) > max_numbers;
    for (std::int64_t i = 0; i < times && !fails_; ++i) {
      all.insert(all.end(), once.begin(), once.end());
    }
    return all;
  }
  std::vector<std::int64_t> sum(int depth) {
    std::vector<std::int64_t> all;
    fails_ = fails_ || depth > deepest;
    do {
      if (fails_) break;
      const std::vector<std::int64_t> more = part(depth);
      all.insert(all.end(), more.begin(), more.end());
      fails_ = fails_ || all.size() > max_numbers;
    } while (take('+'));
    return all;
  }

  const std::string& text_;
  std::size_t at_ = 0;
  bool fails_ = false;
};

MegatronMarks read_megatron_marks(Migration& m, const char* argument) {
  MegatronMarks marks;
  const ForeignValue* given = m.given(argument);
  if (given == nullptr || given->words.empty()) return marks;
  std::string text;
  for (const std::string& word : given->words) text += word;
  std::erase(text, ' ');
  if (!parse_number(text, marks.every) && marks.every >= 1) return marks;
  marks.every = 0;
  const auto list = ListReader(text).read();
  const auto is_mark = [](std::int64_t one) { return one == 0 || one == 1; };
  const double layers = m.number_at("model.num_layers", 0);
  if (list && static_cast<double>(list->size()) == layers && std::ranges::all_of(*list, is_mark)) {
    marks.list = *list;
    return marks;
  }
  m.refuse("model.layers", formatted("--{}: {} is not built", argument, shown(text)),
           "a number, or a list of 0 and 1 for each of the " + plain_number(layers) +
               " layers, as [0]*3+[1]*1",
           "not-built");
  return marks;
}

/// Sets the kinds of layers, after the sliding window is set. `routed`: the result of
/// settle_megatron_experts.
void settle_megatron_layers(Migration& m, const std::vector<std::int64_t>& routed) {
  const MegatronMarks still = read_megatron_marks(m, "no-rope-freq");
  const MegatronMarks slides = read_megatron_marks(m, "window-attn-skip-freq");
  const double wide = m.number_at("model.sliding_window", 0);
  const double deep = m.number_at("model.num_layers", 0);
  // Another rule refuses sizes outside of these bounds.
  if (!(deep >= 1 && deep <= max_numbers) || !(wide >= 0 && wide <= 1 << 30)) return;
  const auto window = static_cast<std::int64_t>(wide);
  const auto layers = static_cast<std::size_t>(deep);
  std::vector<LayerKeys> keys(layers);
  for (std::size_t i = 0; i < layers; ++i) {
    const auto nth = static_cast<std::int64_t>(i) + 1;
    const auto is = [&](const MegatronMarks& marks, bool of_each_nth, bool otherwise) {
      if (!marks.list.empty()) return marks.list[i] == 1;
      return marks.every > 0 ? (nth % marks.every == 0) == of_each_nth : otherwise;
    };
    keys[i] = {.turns = !is(still, true, false),
               .window = is(slides, false, true) ? window : 0,
               .routed = !routed.empty() && routed[i] == 1};
  }
  if (!have_kinds(keys)) {
    if (!keys.front().turns) m.put("model.use_rope", "false", "no-rope-freq");
    if (keys.front().window == 0) m.remove("model.sliding_window");
    return;
  }
  m.remove("model.sliding_window");
  Diagnostics none;
  const int text = m.tree().add_text(Place::Origin::model_files, "layers");
  m.put_list("model.layers", parse_yaml(m.tree(), write_kinds(keys, ""), text, none),
             "layers that differ");
  m.put("model.layer_pattern", write_pattern(keys), "in their order");
}

// Megatron-LM's Muon and its arguments about single parameters, as entries of optimizer.groups.

constexpr std::string_view muon_defaults =
    "optimizer.muon.momentum=0.9 optimizer.muon.nesterov=false optimizer.muon.steps=5 "
    "optimizer.muon.scale=spectral optimizer.muon.eps=1e-15 optimizer.muon.ns_dtype=bf16";

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

/// A set of --muon-coefficient-type: the name of our set, or its triples.
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

/// An entry of optimizer.groups: settings that arguments give to some parameters.
struct Group {
  std::vector<std::string> match;
  std::string type{};
  double lr_mult = 1;
  bool decays = false;  // weight decay also applies to vectors
};

int group_node(Migration& m, const Group& group) {
  std::vector<int> patterns;
  for (const std::string& pattern : group.match) {
    patterns.push_back(m.tree().add_scalar(pattern));
    m.tree().node(patterns.back()).quoted = true;
  }
  std::vector<YamlEntry> entries{{"match", {}, m.tree().add_list(std::move(patterns))}};
  const auto add = [&](const char* key, const std::string& value) {
    entries.push_back({key, {}, m.tree().add_scalar(value)});
  };
  if (!group.type.empty()) add("type", group.type);
  if (group.lr_mult != 1) add("lr_mult", plain_number(group.lr_mult));
  if (group.decays) add("wd_mult", "1");
  return m.tree().add_map(std::move(entries));
}

/// The learning rate of the embedding and the output layer as a multiple of the rate of the other
/// parameters. Both schedules must have the same shape.
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
  if (m.flag("qk-layernorm") && !m.flag("qk-l2-norm")) {  // l2 norms have no weights
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
  m.put_list("optimizer.groups", m.tree().add_list(nodes), "what Megatron does with these");
}

/// Writes the triples of all steps, since our lists do not restart after the last triple.
void put_triples(Migration& m, const ForeignValue& given, const CoefficientSet& set, int steps) {
  const int length = static_cast<int>(set.list.size());
  if (steps % length != 0) {
    return m.refuse(
        given, formatted("--muon-num-ns-steps {} is no multiple of its {} steps", steps, length),
        "give a multiple");
  }
  std::vector<int> nodes;
  for (int i = 0; i < std::min(steps, 100); ++i) {
    std::vector<int> numbers;
    for (const double number : at(set.list, i % length)) {
      numbers.push_back(m.tree().add_scalar(plain_number(number)));
    }
    nodes.push_back(m.tree().add_list(numbers));
  }
  m.put_list("optimizer.muon.coefficients", m.tree().add_list(nodes),
             formatted("muon-coefficient-type {}", set.name));
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
  // Other numbers are refused when optimizer.muon.steps is checked.
  const double steps = std::clamp(m.number("muon-num-ns-steps", 5), 1.0, 1000.0);
  if (!set->list.empty()) return put_triples(m, *given, *set, static_cast<int>(steps));
  m.put("optimizer.muon.coefficients", std::string(set->ours), "muon-coefficient-type " + name);
}

/// Gate and up form one matrix, linear_fc1; linear_qkv is split unless that is switched off.
void settle_items(Migration& m) {
  if (m.flag("muon-no-split-qkv") && m.flag("attention-output-gate")) {
    return m.refuse(*m.given("muon-no-split-qkv"),
                    "Megatron's one matrix also has the rows of the output gate, no item here has",
                    "leave out one of both");
  }
  std::vector<int> items;
  if (m.flag("swiglu") || m.flag("quick-geglu")) items.push_back(m.tree().add_scalar("gate_up"));
  if (m.flag("muon-no-split-qkv")) items.push_back(m.tree().add_scalar("qkv"));
  if (items.empty()) return;
  m.put_list("optimizer.muon.items", m.tree().add_list(items), "matrices as Megatron has them");
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

/// qk-clip applies to every optimizer; the two other arguments have no effect without it.
void settle_clipping(Migration& m) {
  if (m.flag("qk-clip")) return m.put_default("optimizer.qk_clip_threshold", "100");
  for (const auto& [key, path] : {std::pair("qk-clip-threshold", "optimizer.qk_clip_threshold"),
                                  std::pair("qk-clip-alpha", "optimizer.qk_clip_alpha")}) {
    if (m.given(key) == nullptr) continue;
    m.remove(path);
    m.not_carried(key, "it counts only with --qk-clip");
  }
}

/// Sets the optimizer and the groups of parameters, after the model is set.
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

// Rules of Megatron-LM's pretrain_gpt.py that combine several arguments, and its defaults.

constexpr std::string_view megatron_defaults =
    "model.hidden_dropout=0.1 model.embedding_dropout=0.1 model.attention_dropout=0.1 "
    "lr_schedule.style=linear train.validate_every=1000 log.every=100";

/// Arguments of models outside the two families, whatever the other arguments are, with the value
/// that asks for nothing.
constexpr std::string_view of_other_models =
    "multi-latent-attention q-lora-rank mtp-num-layers=0 apply-residual-connection-post-layernorm "
    "openai-gelu moe-latent-size experimental-attention-variant heterogeneous-layers-config-path "
    "is-hybrid-model hybrid-override-pattern";

void refuse_other_models(Migration& m) {
  for (const std::string& row : split_at(of_other_models, ' ')) {
    std::string_view plain = row;
    const std::string_view argument = take_until(plain, "=");
    if (m.given(argument) == nullptr || !m.flag(argument)) continue;
    if (!plain.empty() && m.text(argument) == plain) continue;
    m.refuse("model.family", formatted("--{}: such a model is not built", argument),
             "built are the models of the GPT-2 and Llama families", "not-built");
  }
}

/// --use-rope-scaling has the factor 8 unless another is given; a factor alone has no effect.
void settle_rope_scaling(Migration& m) {
  if (m.flag("use-rope-scaling")) {
    m.put("model.rope_scaling.factor", m.text("rope-scaling-factor", "8"), "use-rope-scaling");
  } else if (m.given("rope-scaling-factor") != nullptr) {
    m.not_carried("rope-scaling-factor", "it needs --use-rope-scaling");
  }
}

/// Refuses arguments that mix both families.
void settle_megatron_family(Migration& m) {
  m.put_default("model.family", "gpt2");
  if (m.at("model.family") != "llama") return;
  const bool rope =
      m.text("position-embedding-type") == "rope" || m.flag("use-rotary-position-embeddings");
  const std::string help = "llama has RoPE and RMSNorm";
  const auto need = [&](bool has, const std::string& argument, const std::string& otherwise) {
    if (has) return;
    m.refuse("model.family", argument + " is not given, so the model has " + otherwise, help);
  };
  need(rope, "--position-embedding-type rope", "learned positions");
  need(m.text("normalization") == "RMSNorm", "--normalization RMSNorm", "LayerNorm");
  if (!m.flag("disable-bias-linear")) m.put_default("model.add_bias_linear", "true");
  m.put_default("model.tie_word_embeddings", "true");
  const double hidden = m.number("hidden-size", 0);
  if (!m.at("model.ffn_hidden_size") && hidden > 0) {
    const bool narrow = m.flag("swiglu");
    m.put("model.ffn_hidden_size",
          narrow ? std::floor(std::floor(4 * hidden * 2 / 3) / 64) * 64 : 4 * hidden,
          narrow ? "default of Megatron with swiglu" : "default of Megatron");
  }
}

/// Unless an argument says otherwise, Megatron's MLP has GELU and no gate.
void settle_megatron_mlp(Migration& m) {
  if (m.at("model.family") != "llama" || m.flag("swiglu")) return;
  if (m.flag("quick-geglu")) return;  // gated like the MLP of llama
  m.put("model.gated_linear_unit", "false", "without --swiglu");
  m.put_default("model.activation", "gelu");
}

/// Megatron's window counts keys before the query and keys after it; the latter must be 0 here.
void settle_megatron_window(Migration& m) {
  const ForeignValue* given = m.given("window-size");
  if (given == nullptr) return;
  std::vector<double> sides;
  for (const std::string& word : given->words) {
    for (std::string part : split_at(word, ',')) {
      std::erase_if(part, [](char c) { return c == '(' || c == ')' || c == ' '; });
      double value = 0;
      if (!part.empty() && !parse_number(part, value)) sides.push_back(value);
    }
  }
  if (sides.size() != 2 || sides[1] != 0 || sides[0] < 0) {
    return m.refuse("model.sliding_window",
                    "--window-size must be the keys before a query and 0, as in 127,0",
                    "a query sees no key after it", "not-built");
  }
  m.put("model.sliding_window", sides[0] + 1, "window-size and the query itself");
}

void refuse_fixed_sinks(Migration& m) {
  if (m.text("softmax-type") != "off-by-one") return;
  m.refuse("model.softmax_type", "--softmax-type off-by-one is not built",
           "vanilla and learnable are", "not-built");
}

void settle_l2_norms(Migration& m) {
  if (m.given("qk-l2-norm") == nullptr || !m.flag("qk-l2-norm")) return;
  m.put("model.qk_layernorm", "true", "qk-l2-norm");
  m.put("model.qk_layernorm_form", "l2", "qk-l2-norm");
}

void settle_linear_rope(Migration& m) {
  const double factor = m.number("rotary-seq-len-interpolation-factor", 1);
  if (factor == 1) return;
  m.put("model.rope_scaling.type", "linear", "rotary-seq-len-interpolation-factor");
  m.put("model.rope_scaling.factor", factor, "rotary-seq-len-interpolation-factor");
}

/// The batch sizes of the steps; one size without --rampup-batch-size.
std::vector<RampPart> carry_ramp(Migration& m, double batch) {
  TrainConfig train;
  train.global_batch_size = static_cast<std::int64_t>(batch);
  const ForeignValue* given = m.given("rampup-batch-size");
  if (given == nullptr) return batch_ramp(train, 1);
  std::vector<int> list;
  train.rampup_batch_size.emplace();
  for (const std::string& word : given->words) {
    double value = 0;
    if (parse_number(word, value)) continue;  // not a number
    train.rampup_batch_size->push_back(static_cast<std::int64_t>(value));
    list.push_back(m.tree().add_scalar(plain_number(value)));
  }
  m.put_list("train.rampup_batch_size", m.tree().add_list(std::move(list)),
             formatted("rampup-batch-size, line {}", given->span.line));
  return batch_ramp(train, 1);
}

void settle_megatron_lengths(Migration& m) {
  const double batch = m.number("global-batch-size", 0);
  const std::vector<RampPart> ramp = carry_ramp(m, batch);
  if (batch <= 0) {
    m.put("train.micro_batch_num", 1, "no global batch: one micro-batch per replica");
  }
  const auto samples = [&](const char* key, const char* path) {
    if (m.given(key) == nullptr) return;
    if (batch <= 0) return m.not_carried(key, "it needs --global-batch-size");
    if (ramp.size() == 1) {
      return m.put(path, std::floor(m.number(key, 0) / batch),
                   formatted("{} / global-batch-size", key));
    }
    const auto steps = steps_with(ramp, static_cast<std::int64_t>(m.number(key, 0)));
    m.put(path, static_cast<double>(steps), formatted("{} in the batches of the ramp", key));
  };
  samples("train-samples", "train.steps");
  samples("lr-decay-samples", "lr_schedule.decay_steps");
  samples("lr-warmup-samples", "lr_schedule.warmup_steps");
  if (m.given("lr-warmup-fraction") != nullptr) {
    const double decay = m.number_at("lr_schedule.decay_steps", m.number_at("train.steps", 0));
    m.remove("lr_schedule.warmup_steps");
    m.put("lr_schedule.warmup_steps", std::ceil(m.number("lr-warmup-fraction", 0) * decay),
          "lr-warmup-fraction x steps of the decay");
  }
  const bool validates =
      m.at("data.validation.path") || m.number_at("data.validation.fraction", 0) > 0;
  if (!validates) {
    m.remove("train.validate_every");
    m.remove("data.validation");
  } else if (batch > 0) {
    m.put("data.validation.max_sequences", m.number("eval-iters", 100) * batch,
          "eval-iters x global-batch-size");
  }
}

/// Sets a path, or a blend given as "weight path weight path".
void carry_paths(Migration& m, const char* key, const std::string& path) {
  const ForeignValue* given = m.given(key);
  if (given == nullptr || given->words.empty()) return;
  const std::vector<std::string>& words = given->words;
  const std::string why = formatted("{}, line {}", key, given->span.line);
  if (words.size() == 1) return m.put(path, words[0], why);
  if (path != "data.train") return m.not_carried(key, path + " takes one path");
  std::vector<int> list;
  double weight = 1;
  bool weighted = false;
  for (const std::string& word : words) {
    if (!parse_number(word, weight)) {
      weighted = true;
      continue;
    }
    list.push_back(m.tree().add_scalar(word));
    m.tree().node(list.back()).quoted = true;
    m.tree().node(list.back()).expands = word.find("${") != std::string::npos;
    if (!weighted) continue;
    const int share = m.tree().add_scalar(plain_number(weight));
    list.back() = m.tree().add_map({{"path", {}, list.back()}, {"weight", {}, share}});
  }
  m.put_list(path, m.tree().add_list(std::move(list)), why);
}

void settle_megatron_data(Migration& m) {
  carry_paths(m, "data-path", "data.train");
  carry_paths(m, "train-data-path", "data.train");
  carry_paths(m, "valid-data-path", "data.validation.path");
  if (m.given("data-path") != nullptr && !m.at("data.validation.path")) {
    m.put_default("data.validation.fraction", "0.03");
  }
  const std::string type = m.text("tokenizer-type");
  const std::string model = m.text("tokenizer-model");
  const bool gpt2_files = type.empty() && m.given("merge-file") != nullptr;
  if ((type == "GPT2BPETokenizer" || gpt2_files) && !m.at("model.vocab_size")) {
    m.put("model.vocab_size", "50257",
          gpt2_files ? "GPT2BPETokenizer, the default of pretrain_gpt.py" : "GPT2BPETokenizer");
  } else if (type == "NullTokenizer" && m.given("vocab-size") != nullptr) {
    m.put("model.vocab_size", m.number("vocab-size", 0) + 1,
          "vocab-size and the end of a document");
  } else if (type == "HuggingFaceTokenizer" && !model.empty()) {
    m.put("data.tokenizer", "hf:" + model, "tokenizer-model");
  } else if (!model.empty()) {
    m.put("data.tokenizer", "sentencepiece:" + model, "tokenizer-model");
  }
}

}  // namespace

void settle_megatron(Migration& m) {
  settle_megatron_family(m);
  settle_megatron_data(m);
  settle_megatron_lengths(m);
  if (!m.flag("group-query-attention") && m.at("model.num_query_groups")) {
    m.remove("model.num_query_groups");
    m.not_carried("num-query-groups", "it counts only with --group-query-attention");
  }
  const double stages = m.number("pipeline-model-parallel-size", 1);
  const double per_chunk = m.number("num-layers-per-virtual-pipeline-stage", 0);
  if (per_chunk > 0) {
    m.put("parallel.virtual_pipeline_stages",
          std::floor(m.number("num-layers", 0) / stages / per_chunk),
          "num-layers / pipeline stages / num-layers-per-virtual-pipeline-stage");
  }
  if (m.at("parallel.sequence_parallel") && m.number("tensor-model-parallel-size", 1) <= 1) {
    m.remove("parallel.sequence_parallel");
    m.not_carried("sequence-parallel", "it counts only with tensor parallelism");
  }
  if (m.number("cpu-offloading-num-layers", 0) > 0) {
    m.put("offload.enable", "true", "cpu-offloading-num-layers");
  }
  if (m.flag("use-distributed-optimizer")) shard_optimizer(m, "use-distributed-optimizer");
  if (!m.flag("use-distributed-optimizer")) m.remove("hooks.param_sync");
  if (m.given("timing-log-level") != nullptr) {
    m.put("hooks.timers", "true", "timing-log-level");
  } else {
    m.remove("log.barrier_with_timers");
  }
  refuse_other_models(m);
  settle_rope_scaling(m);
  refuse_fixed_sinks(m);
  settle_l2_norms(m);
  settle_linear_rope(m);
  settle_megatron_window(m);
  settle_megatron_mlp(m);
  settle_megatron_layers(m, settle_megatron_experts(m));
  settle_megatron_optimizer(m);
  put_defaults(m, megatron_defaults);
  const bool validates = m.at("data.validation.path") || m.at("data.validation.fraction");
  if (!validates) m.remove("train.validate_every");
}

}  // namespace trainctl
