// The keys of MindSpore's set_auto_parallel_context, MindFormers' TransformerOpParallelConfig (with
// its recompute config) and MoEConfig, and Megatron-Core's ModelParallelConfig, with their paths in
// our schema. upstream_keys.txt has the rows of the table.
#pragma once

#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "config/report/diagnostics.h"
#include "config/schema/choices.h"
#include "config/yaml/tree.h"

namespace trainctl {

/// Canonical path -> dotted key as written, for values given by another spelling.
using Spellings = std::map<std::string, std::string>;

/// Whether two nodes mean the same for the key `path`: 0x10 and 16, bf16 and bfloat16.
bool same_value(const YamlTree& tree, const std::string& path, int first, int second);
/// A node as flow YAML, shortened for messages.
std::string flow_text(const YamlTree& tree, int node);

/// How an upstream value is converted to ours.
///   same          unchanged; null is ignored if upstream's default is null
///   true_is_fp16  true -> fp16; false is ignored
///   true_is_bf16  true -> bf16; false is ignored
///   full_batch    true -> full_batch; false -> data_parallel unless splits are given
///   index_fusion  a list -> {mode: index, config: the list}
///   recompute     bool -> enable; list -> enable and layers_per_stage; map: its own keys
///   callable      Python callable: null is ignored; others are refused, naming the hook
///   internal      null is ignored; other values are refused
///   dict          a map whose keys have rows of their own
using Conversion = OneOf<
    "same|true_is_fp16|true_is_bf16|full_batch|index_fusion|recompute|callable|internal|"
    "dict">;

struct UpstreamKey {
  std::string_view key;       // nested keys with dots: "pipeline_config.pipeline_scheduler"
  std::string_view path;      // our path: "parallel.pipeline.scheduler"
  std::string_view fallback;  // upstream's default as YAML
  Conversion conversion = "same";
  std::string_view replacement = {};      // for a deprecated key: the key to use
  std::string_view note = {};             // difference to upstream, one sentence
  std::string_view section = "parallel";  // the section of our schema that accepts the key
  std::string_view list = {};             // its list in upstream_keys.txt

  bool deprecated() const { return !replacement.empty(); }
};

/// The rows of a list: mindspore, mindformers or megatron.
std::span<const UpstreamKey> upstream_keys(std::string_view list);
/// Keys of the same project that the upstream list lacks: of Megatron's other configs
/// (TransformerConfig, DistributedDataParallelConfig) and of later MindFormers.
std::span<const UpstreamKey> further_keys(std::string_view list);
/// Every row of every list.
const std::vector<UpstreamKey>& all_upstream_keys();
/// The sections of a MindFormers file, each with our section that accepts its keys.
std::span<const std::pair<std::string_view, std::string_view>> upstream_sections();

/// Replaces upstream keys in the tree's sections by canonical ones; leaves unknown keys for the
/// reader to refuse. A key is accepted in its row's section, in `parallel`, in the section of its
/// path, and in MindFormers' sections parallel_config, recompute_config and moe_config. Values keep
/// their positions; a --set option overrides the file in any spelling. Reports "two-spellings"
/// (naming both lines) if two spellings of one concept differ, "deprecated" warnings, and the keys
/// of foreign.h. Returns the spellings.
Spellings apply_upstream(YamlTree& tree, int root, Diagnostics& diagnostics);

// Replaces upstream words for values by ours: parallel_mode: 1 becomes semi_auto_parallel,
// torch.bfloat16 becomes bf16.

/// Needs a tree with canonical keys only. Leaves a value that is not a word of its key unchanged.
void write_own_words(YamlTree& tree, int root);

// Sections written as a single word: precision: bf16, recompute: full, output: runs/a.

/// The key of such a section that its word sets; "" for other sections.
std::string_view short_key(std::string_view section);
/// Rewrites these sections of the map `root` as maps. For recompute, true and false switch it; any
/// other word also selects the parts to recompute.
void expand_short_sections(YamlTree& tree, int root);

}  // namespace trainctl
