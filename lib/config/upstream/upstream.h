// What users bring from elsewhere: every key of MindSpore's set_auto_parallel_context, MindFormers'
// TransformerOpParallelConfig (with its recompute config) and MoEConfig, and Megatron-Core's
// ModelParallelConfig, with the place of its concept in our schema. One table, one owner: its rows
// are in list_mindspore.cpp, list_mindformers.cpp, list_megatron.cpp and list_more.cpp.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "config/report/diagnostics.h"
#include "config/upstream/claims.h"
#include "config/yaml/tree.h"

namespace trainctl {

enum class Upstream { mindspore, mindformers, megatron };

/// How an upstream value becomes ours.
enum class Conversion {
  same,          // the value as it is; null says nothing where upstream's default is null
  true_is_fp16,  // true -> fp16; false says nothing
  true_is_bf16,  // true -> bf16; false says nothing
  full_batch,    // true -> full_batch, false -> data_parallel unless the splits are given too
  index_fusion,  // a list -> {mode: index, config: the list}
  recompute,     // a bool -> enable, a list -> enable and layers_per_stage, a map: its own keys
  callable,      // a Python callable: null says nothing, anything else is refused with the hook
  internal,      // null says nothing, anything else is refused
  dict,          // a map of further rows
};

struct UpstreamKey {
  std::string_view key;       // nested keys dotted: "pipeline_config.pipeline_scheduler"
  std::string_view path;      // ours: "parallel.pipeline.scheduler"
  std::string_view fallback;  // upstream's default, as YAML
  Conversion conversion = Conversion::same;
  std::string_view replacement = {};      // of a deprecated key: what to write
  std::string_view note = {};             // what differs from upstream, one sentence
  std::string_view section = "parallel";  // of ours, in which the key is written

  bool deprecated() const { return !replacement.empty(); }
};

std::span<const UpstreamKey> upstream_keys(Upstream list);
/// Names of the same project that the list does not have: of Megatron's other configs
/// (TransformerConfig, DistributedDataParallelConfig) and of later MindFormers.
std::span<const UpstreamKey> further_keys(Upstream list);
/// Every row of every list.
const std::vector<UpstreamKey>& all_upstream_keys();
/// The sections of a MindFormers file, and the section of ours that takes the same keys.
std::span<const std::pair<std::string_view, std::string_view>> upstream_sections();

/// Rewrites the upstream spellings in the tree's sections into ours, so that only canonical keys
/// are left (keys of no list stay for the reader to refuse): each key of a row in the row's
/// section, in `parallel`, or in the section it leads to, and MindFormers' sections
/// parallel_config, recompute_config and moe_config. Values keep their positions; a --set option
/// wins over the file in whatever spelling. Adds: "two-spellings" where two spellings of one
/// concept differ (naming both lines), "deprecated" warnings, and what foreign.h knows.
Spellings apply_upstream(YamlTree& tree, int root, Diagnostics& diagnostics);

}  // namespace trainctl
