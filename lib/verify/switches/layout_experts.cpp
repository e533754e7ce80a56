#include "verify/switches/layout_experts.h"

namespace trainctl {

using Words = std::vector<std::string>;

bool apply_experts(std::string_view word, Config& config) {
  const bool whole = word.starts_with("wep");
  const auto ranks = number_in(word, whole ? "wep" : "ep");
  if (!ranks) return false;
  config.parallel.expert_parallel = *ranks;
  if (whole) config.parallel.expert_tensor_parallel = 1;
  return true;
}

Words expert_words(const Config& config, const LayoutSizes& sizes) {
  Words words{""};
  const std::int64_t replicas = sizes.replicas() * sizes.tp;
  for (std::int64_t ranks = 1; config.moe.num_experts > 1 && ranks <= replicas; ++ranks) {
    if (replicas % ranks != 0 || config.moe.num_experts % ranks != 0) continue;
    if (ranks > 1) words.push_back("ep" + std::to_string(ranks));
    if (sizes.tp > 1) words.push_back("wep" + std::to_string(ranks));
  }
  return words;
}

bool apply_expert_chunks(std::string_view word, Config& config) {
  const auto count = number_in(word, "echunks");
  if (!count) return false;
  config.moe.comp_comm_parallel = true;
  config.moe.comp_comm_parallel_degree = *count;
  return true;
}

Words expert_chunk_words(const Config& config, const LayoutSizes& sizes) {
  const bool exchanges = config.moe.num_experts > 1 && sizes.replicas() * sizes.tp > 1;
  return exchanges ? Words{"", "echunks2", "echunks3"} : Words{""};
}

bool apply_expert_overlap(std::string_view word, Config& config) {
  if (word != "ep_overlap") return false;
  config.moe.overlap_expert_parallel_comm = true;
  return true;
}

Words expert_overlap_words(const Config& config, const LayoutSizes& sizes) {
  const bool exchanges = config.moe.num_experts > 1 && sizes.replicas() * sizes.tp > 1;
  return exchanges ? Words{"", "ep_overlap"} : Words{""};
}

bool apply_expert_parts(std::string_view word, Config& config) {
  const auto count = number_in(word, "etp");
  if (!count && word != "group_a2a") return false;
  config.parallel.expert_tensor_parallel = count;
  config.moe.group_wise_a2a = !count;
  return true;
}

Words expert_part_words(const Config& config, const LayoutSizes& sizes) {
  if (config.moe.num_experts == 1 || sizes.replicas() * sizes.tp == 1) return {""};
  return sizes.tp > 1 ? Words{"", "etp1", "etp2", "group_a2a"} : Words{"", "etp2"};
}

}  // namespace trainctl
