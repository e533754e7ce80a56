// The contents of a strategy file (MindSpore strategy_ckpt_config): how each parameter and operator
// of a model is split among the ranks of its pipeline stage. Reads and writes the file's bytes;
// docs/strategy-files.md describes the format.
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
  std::string name;  // starts with "<stage>-" if there are several stages
  // The stage's ranks, ascending, as a row-major grid: neighbours lie along the last axis.
  std::vector<std::int64_t> dev_matrix;
  // For each dimension of the tensor, the axis of dev_matrix that splits it, counted from the
  // right; -1 if it is not split.
  std::vector<std::int64_t> tensor_map;
  std::vector<std::int64_t> tensor_shape;  // shape of a part; empty if unknown (as in protobuf)
  std::int64_t field = 0;
  std::int64_t shard_step = 0;  // opt_weight_shard_step: ranks of the stage between members
  std::int64_t shard_size = 0;  // opt_weight_shard_size: members; all replicas if -1, none if 0
  std::vector<std::int64_t> param_split_shape;  // uneven rows; read and kept, but not created here
  std::vector<std::int64_t> indices_offset;
  bool operator==(const ParamPlacement&) const = default;
};

struct OperatorSplit {
  std::string name;  // such as "layers.3.attention.q"
  std::int64_t stage = 0;
  std::vector<std::vector<std::int64_t>> inputs;  // for each input, the parts per dimension
  bool operator==(const OperatorSplit&) const = default;
};

struct PlacementFile {
  std::int64_t current_stage = 1;
  std::vector<OperatorSplit> operators;
  std::vector<ParamPlacement> parameters;
  bool operator==(const PlacementFile&) const = default;
};

/// The layouts of all stages, in model order. With `optimizer`, each parameter is followed by its
/// optimizer states, named with their prefixes (OptimizerState): adam_m.NAME and adam_v.NAME.
PlacementFile make_layout_file(const Plan& plan, const ParallelConfig& parallel,
                               const OptimizerConfig* optimizer);
/// The parameters of a stage in the order of its table, without prefix. The format can only express
/// the parallel optimizer's rows: whole parameters assigned to ranks, and slices of buckets, count
/// as not sharded.
std::vector<ParamPlacement> make_param_layouts(const Plan& plan, int stage,
                                               const ParallelConfig& parallel);

/// Text of a list: "[2,4]" or "[[2,4],[1]]".
std::string list_text(const std::vector<std::int64_t>& numbers);
std::string list_text(const std::vector<std::vector<std::int64_t>>& lists);

/// Whether a file name selects JSON; all other files are protobuf.
bool is_json_name(std::string_view file_name);
std::string write_layouts(const PlacementFile& file, bool json);
/// Parses a file. Throws Error{bad_data} with the reason: not a strategy file, a missing required
/// field, no layouts, a repeated name, or a contradictory layout.
PlacementFile read_layouts(std::string_view bytes, bool json);

/// The layout without axes of size 1 and with neighbouring unsplit axes merged: equal for layouts
/// that put the same parts on the same ranks.
ParamPlacement simplest(ParamPlacement layout);

/// The key that names the file for comparison.
inline constexpr const char* strategy_file_key = "parallel.strategy_ckpt_config.load_file";

/// Reports an error "strategy-differs" at strategy_file_key if both files split a parameter or
/// operator differently (naming the first, with both layouts), and one warning "strategy-unknown"
/// for all parameters and operators that only `loaded` has.
void compare_layouts(const PlacementFile& loaded, const PlacementFile& own,
                     const std::string& file_name, Check& check);

// The contents of a group file (MindSpore group_ckpt_save_file): the communication groups of a
// rank, and the ranks from which its lost parameters could be copied.

struct NamedGroup {
  std::string name;        // group_name() of its ranks
  std::vector<int> ranks;  // ascending
  bool operator==(const NamedGroup&) const = default;
};

struct GroupFile {
  std::vector<NamedGroup>
      groups;  // groups of several ranks, without repeats, in the order of group_kinds()
  // Ascending ranks, with this one, that hold the same slice of every parameter.
  std::vector<int> restore_ranks;
  bool operator==(const GroupFile&) const = default;
};

/// A name that is equal on all machines: "4-" and the decimal FNV-1a hash of "0-1-2-3".
std::string group_name(const std::vector<int>& ranks);

/// The group file of `rank`. Throws Error{usage} if the world has no such rank.
GroupFile make_group_file(const Plan& plan, const ParallelConfig& parallel, std::int64_t rank);

/// The file's bytes, a mindspore.straspb.ParallelGroupMap.
std::string write_groups(const GroupFile& file);
/// Parses such bytes. Throws Error{bad_data}.
GroupFile read_groups(std::string_view bytes);

}  // namespace trainctl
