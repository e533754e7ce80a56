#include "plan/tables/traffic.h"

#include <utility>

namespace trainctl {

namespace {

/// In the order in which a kind names its axes.
constexpr std::pair<Axis, std::string_view> axis_words[] = {
    {Axis::tp, "tp"},  {Axis::etp, "tp"}, {Axis::ep, "ep"}, {Axis::dp, "dp"},
    {Axis::edp, "dp"}, {Axis::cp, "cp"},  {Axis::pp, "pp"}};

std::string_view ending_of(GroupPart part) {
  switch (part) {
    case GroupPart::shard: return " shard";
    case GroupPart::mirror: return " mirror";
    case GroupPart::counts: return " counts";
    case GroupPart::workers: return " workers";
    case GroupPart::heads: return "-heads";
    case GroupPart::ring: return "-ring";
    default: return "";
  }
}

}  // namespace

std::string_view name_of(TrafficPurpose purpose) {
  switch (purpose) {
    case TrafficPurpose::layers: return "layers";
    case TrafficPurpose::gradients: return "gradients";
    case TrafficPurpose::parameters: return "parameters";
    case TrafficPurpose::messages: return "messages";
    case TrafficPurpose::scalars: return "scalars";
  }
  return "";
}

std::string_view name_of(Cargo cargo) {
  switch (cargo) {
    case Cargo::embedding: return "embedding";
    case Cargo::attention: return "attention";
    case Cargo::mlp: return "mlp";
    case Cargo::experts: return "experts";
    case Cargo::head: return "head";
    case Cargo::head_statistics: return "head statistics";
    case Cargo::sliced_inputs: return "sliced inputs";
    case Cargo::heads: return "heads";
    case Cargo::keys_and_values: return "keys and values";
    case Cargo::norm_sums: return "sums of norms";
    case Cargo::router: return "router";
    case Cargo::shared_gate: return "gate";
    case Cargo::scores: return "scores";
    case Cargo::expert_counts: return "rows of experts";
    case Cargo::expert_rows: return "experts (at most)";
    case Cargo::part_rows: return "parts of experts (at most)";
    case Cargo::activations: return "activations";
    case Cargo::gradients: return "gradients";
    case Cargo::gradient_slices: return "gradient slices";
    case Cargo::replicated_gradients: return "replicated gradients";
    case Cargo::shared_keys: return "shared keys and values";
    case Cargo::tied_embedding: return "tied embedding";
    case Cargo::parameters: return "parameters";
    case Cargo::matrices: return "matrices of updates";
    case Cargo::loss: return "loss";
    case Cargo::loss_weights: return "loss weights";
    case Cargo::gradient_norm: return "gradient norm";
    case Cargo::router_statistics: return "router statistics";
    case Cargo::attention_logit: return "attention logit";
    case Cargo::attention_scores: return "attention scores";
    case Cargo::timer_barriers: return "barriers of timers";
  }
  return "";
}

std::string name_of(GroupKind kind) {
  if (kind == world_group) return "world";
  if (kind.part == GroupPart::ends) return "embedding";
  if (kind.part == GroupPart::first) return "position_embedding";
  std::string text;
  for (const auto& [axis, word] : axis_words) {
    if (!kind.has(axis)) continue;
    text += text.empty() ? "" : "-";
    text += axis == Axis::tp && kind.shares_keys ? "kv" : word;
  }
  return (kind.of_experts() ? "expert:" : "") + text + std::string(ending_of(kind.part));
}

std::string group_name(TrafficPurpose purpose, GroupKind kind) {
  return std::string(name_of(purpose)) + " " + name_of(kind);
}

}  // namespace trainctl
