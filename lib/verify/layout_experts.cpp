#include "verify/layout_experts.h"

namespace trainctl {

using Words = std::vector<std::string>;

bool apply_experts(std::string_view word, Config& config) {
  const bool whole = word.starts_with("wep");
  if (!whole && !word.starts_with("ep")) return false;
  const auto ranks = number_behind(word, whole ? 3 : 2);
  if (!ranks) return false;
  config.parallel.expert_parallel = *ranks;
  if (whole) config.parallel.expert_tensor_parallel = 1;
  return true;
}

Words expert_words(const Config& config, const LayoutSizes& sizes) {
  Words words{""};
  const auto add = [&](const std::string& word, std::int64_t least, std::int64_t replicas) {
    for (std::int64_t ranks = least; ranks <= replicas; ++ranks) {
      if (replicas % ranks != 0 || config.moe.num_experts % ranks != 0) continue;
      words.push_back(word + std::to_string(ranks));
    }
  };
  if (config.moe.num_experts == 1) return words;
  add("ep", 2, sizes.replicas());
  if (sizes.sequence_parallel) add("wep", 1, sizes.replicas() * sizes.tp);
  return words;
}

bool apply_expert_chunks(std::string_view word, Config& config) {
  const std::string_view chunks = "echunks";
  const auto count = word.starts_with(chunks) ? number_behind(word, chunks.size()) : std::nullopt;
  if (!count) return false;
  config.moe.comp_comm_parallel = true;
  config.moe.comp_comm_parallel_degree = *count;
  return true;
}

Words expert_chunk_words(const Config& config, const LayoutSizes& sizes) {
  const bool exchanges = config.moe.num_experts > 1 && sizes.replicas() * sizes.tp > 1;
  return exchanges ? Words{"", "echunks2", "echunks3"} : Words{""};
}

}  // namespace trainctl
