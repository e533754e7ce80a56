// Every key of MindSpore's set_auto_parallel_context, MindFormers' TransformerOpParallelConfig
// (with its recompute config) and MoEConfig, and Megatron-Core's ModelParallelConfig, with its path
// in our schema. The rows of this one table are in upstream_keys.cpp.
#pragma once

#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "config/report/diagnostics.h"
#include "config/yaml/tree.h"

namespace trainctl {

/// Canonical path -> dotted key as it was written, for values given under another spelling.
using Spellings = std::map<std::string, std::string>;

/// Whether two nodes mean the same value for the field at `path`: 0x10 and 16, bf16 and bfloat16.
bool same_value(const YamlTree& tree, const std::string& path, int first, int second);
/// A node as flow YAML, shortened.
std::string flow_text(const YamlTree& tree, int node);

enum class Upstream { mindspore, mindformers, megatron };

/// How an upstream value becomes ours.
enum class Conversion {
  same,          // the value as it is; null is ignored if upstream's default is null
  true_is_fp16,  // true -> fp16; false is ignored
  true_is_bf16,  // true -> bf16; false is ignored
  full_batch,    // true -> full_batch, false -> data_parallel unless splits are given too
  index_fusion,  // a list -> {mode: index, config: the list}
  recompute,     // a bool -> enable, a list -> enable and layers_per_stage, a map: its own keys
  callable,      // a Python callable: null is ignored, anything else is refused, naming the hook
  internal,      // null is ignored, anything else is refused
  dict,          // a map of further rows
};

struct UpstreamKey {
  std::string_view key;       // nested keys dotted: "pipeline_config.pipeline_scheduler"
  std::string_view path;      // ours: "parallel.pipeline.scheduler"
  std::string_view fallback;  // upstream's default, as YAML
  Conversion conversion = Conversion::same;
  std::string_view replacement = {};      // of a deprecated key: what to write
  std::string_view note = {};             // what differs from upstream, one sentence
  std::string_view section = "parallel";  // the section of our schema that accepts the key

  bool deprecated() const { return !replacement.empty(); }
};

std::span<const UpstreamKey> upstream_keys(Upstream list);
/// Names of the same project that the list does not have: of Megatron's other configs
/// (TransformerConfig, DistributedDataParallelConfig) and of later MindFormers.
std::span<const UpstreamKey> further_keys(Upstream list);
/// Every row of every list.
const std::vector<UpstreamKey>& all_upstream_keys();
/// The sections of a MindFormers file, each with the section of our schema that takes its keys.
std::span<const std::pair<std::string_view, std::string_view>> upstream_sections();

/// Rewrites the upstream spellings in the tree's sections into canonical keys (unknown keys stay
/// for the reader to refuse). A key is accepted in its row's section, in `parallel`, in the section
/// of its path, and in MindFormers' sections parallel_config, recompute_config and moe_config.
/// Values keep their positions; a --set option wins over the file in whatever spelling. Reports
/// "two-spellings" (naming both lines) if two spellings of one concept differ, "deprecated"
/// warnings, and the keys of foreign.h. Returns the spellings.
Spellings apply_upstream(YamlTree& tree, int root, Diagnostics& diagnostics);

// Our spelling for values that upstream spells differently: parallel_mode: 1 becomes
// semi_auto_parallel, torch.bfloat16 bf16.

/// For a tree with canonical keys only. A value that is not a word of its key is left unchanged.
void write_own_words(YamlTree& tree, int root);

// Sections written as one word: precision: bf16, recompute: full, output: runs/a.

/// The key that the word of such a section gives; "" for other sections.
std::string_view short_key(std::string_view section);
/// Writes these sections of the map `root` as maps. recompute: true and false switch it; any other
/// word also chooses what is recomputed.
void expand_short_sections(YamlTree& tree, int root);

}  // namespace trainctl
