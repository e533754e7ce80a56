// Megatron-LM's experts: what its arguments count and over which tokens, and their defaults.
#include <algorithm>
#include <string>
#include <vector>

#include "config/migrate/project_rules.h"
#include "config/schema/values.h"

namespace trainctl {
namespace {

constexpr Default expert_defaults[] = {{"moe.router_topk", "2"}};

void refuse(Migration& m, const std::string& argument, const std::string& message,
            const std::string& help) {
  m.refuse("moe", "--" + argument + ": " + message, help, "not-built");
}

/// The first word of an argument that may be a list of several.
std::string only_word(Migration& m, const char* argument, const std::string& otherwise) {
  const ForeignValue* given = m.given(argument);
  if (given == nullptr || given->words.empty()) return otherwise;
  if (given->words.size() > 1) {
    refuse(m, argument, "several balance losses at once are not built", "give one");
  }
  return given->words.front();
}

/// One of Megatron's losses, and the tokens that it counts over.
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

/// The tokens of a rank in a micro-batch share a capacity.
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

/// Each so many-th layer, or all behind the first dense ones. Another list is returned.
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

}  // namespace

std::vector<std::int64_t> settle_megatron_experts(Migration& m) {
  if (!m.at("moe.num_experts")) {
    if (m.at("moe")) m.remove("moe");  // Megatron looks at none of it without --num-experts
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

}  // namespace trainctl
