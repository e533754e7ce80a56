// The contents of a strategy file (MindSpore strategy_ckpt_config): how each parameter and each
// operator of a model is split among the ranks of its pipeline stage. From bytes and to bytes; the
// format is described in docs/strategy-files.md.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "config/schema/config.h"
#include "plan/plan.h"
#include "plan/rules/check.h"

namespace trainctl {

struct ParamPlacement {
  std::string name;  // with more than one stage it starts with "<stage>-"
  // The stage's ranks, ascending, as a grid: row-major, neighbours along the last axis.
  std::vector<std::int64_t> dev_matrix;
  // For each dimension of the tensor, the axis that splits it, counted from the right of
  // dev_matrix; -1: not split.
  std::vector<std::int64_t> tensor_map;
  std::vector<std::int64_t> tensor_shape;  // of one part; empty: unknown (protobuf has none)
  std::int64_t field = 0;
  std::int64_t shard_step = 0;  // opt_weight_shard_step: ranks of the stage between two members
  std::int64_t shard_size = 0;  // opt_weight_shard_size: members, -1: all replicas, 0: not sharded
  std::vector<std::int64_t> param_split_shape;  // uneven rows; kept, but never created here
  std::vector<std::int64_t> indices_offset;
  bool operator==(const ParamPlacement&) const = default;
};

struct OperatorSplit {
  std::string name;  // "layers.3.attention.q"
  std::int64_t stage = 0;
  std::vector<std::vector<std::int64_t>> inputs;  // number of parts of each dimension of each input
  bool operator==(const OperatorSplit&) const = default;
};

struct PlacementFile {
  std::int64_t current_stage = 1;
  std::vector<OperatorSplit> operators;
  std::vector<ParamPlacement> parameters;
  bool operator==(const PlacementFile&) const = default;
};

/// All stages, in model order. With `optimizer`, the optimizer's states follow each parameter, each
/// with its prefix (OptimizerState): adam_m.NAME and adam_v.NAME.
PlacementFile make_layout_file(const Plan& plan, const ParallelConfig& parallel,
                               const OptimizerConfig* optimizer);
/// The parameters of one stage in the order of its table, without prefix. The format can express
/// only the parallel optimizer's rows; whole parameters that are dealt out and slices of buckets
/// count as not sharded.
std::vector<ParamPlacement> make_param_layouts(const Plan& plan, int stage,
                                               const ParallelConfig& parallel);

/// "[2,4]"; "[[2,4],[1]]".
std::string list_text(const std::vector<std::int64_t>& numbers);
std::string list_text(const std::vector<std::vector<std::int64_t>>& lists);

/// Whether a file name selects JSON; all other files are protobuf.
bool is_json_name(std::string_view file_name);
std::string write_layouts(const PlacementFile& file, bool json);
/// Throws Error{bad_data} with the reason: not a strategy file, a missing required field, no
/// layouts, a repeated name, or a contradictory layout.
PlacementFile read_layouts(std::string_view bytes, bool json);

/// The layout with axes of size 1 dropped and neighbouring unsplit axes merged: equal for layouts
/// that put the same parts on the same ranks.
ParamPlacement simplest(ParamPlacement layout);

/// The key that names the file to compare with.
inline constexpr const char* strategy_file_key = "parallel.strategy_ckpt_config.load_file";

/// Error "strategy-differs" at strategy_file_key if a parameter or operator
/// of both files is split differently (naming the first, with both layouts); one warning
/// "strategy-unknown" for everything that only `loaded` has.
void compare_layouts(const PlacementFile& loaded, const PlacementFile& own,
                     const std::string& file_name, Check& check);

// The contents of a group file (MindSpore group_ckpt_save_file): the communication groups of one
// rank, and the ranks from which its lost parameters could be copied.

struct NamedGroup {
  std::string name;        // "<size>-<hash of its ranks>"
  std::vector<int> ranks;  // ascending
  bool operator==(const NamedGroup&) const = default;
};

struct GroupFile {
  std::vector<NamedGroup>
      groups;  // of more than one rank, each once, in the order of group_kinds()
  // Ranks that hold the same slice of every parameter, this one included; ascending.
  std::vector<int> restore_ranks;
  bool operator==(const GroupFile&) const = default;
};

/// "4-" and the decimal FNV-1a hash of "0-1-2-3": the same on every machine.
std::string group_name(const std::vector<int>& ranks);

/// Throws Error{usage} if the world has no such rank.
GroupFile make_group_file(const Plan& plan, const ParallelConfig& parallel, std::int64_t rank);

/// mindspore.straspb.ParallelGroupMap.
std::string write_groups(const GroupFile& file);
/// Throws Error{bad_data}.
GroupFile read_groups(std::string_view bytes);

}  // namespace trainctl
