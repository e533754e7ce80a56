// Formats words and numbers of a plan, for all forms of output.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/units.h"
#include "formats/print/print.h"
#include "plan/tables/mesh.h"

namespace trainctl {

/// Pads a text with spaces at its end (padded) or start (padded_left) up to `width`.
std::string padded(const std::string& text, std::size_t width);
std::string padded_left(const std::string& text, std::size_t width);
/// A line "  label         text\n".
std::string labelled(const std::string& label, const std::string& text);
/// The text as a word of a POSIX shell, quoted if necessary.
std::string shell_word(const std::string& word);
/// A count with its noun: "3 ranks", "1 batch", "2 batches"; digits are grouped by thousands.
std::string grouped_count(std::int64_t count, const std::string& noun);
/// The devices of a plan: "on the CPU, 2 threads per rank", "on CUDA devices, one for each rank".
std::string device_text(const Plan& plan);
/// A share as text: "12.5%".
std::string percent(double share);
/// A number of floating-point operations: "3.04 TFLOP".
std::string operations_text(double count);
/// A range of numbers: "3" or "3..7".
std::string span_text(std::int64_t first, std::int64_t last);
/// The value as 16 hexadecimal digits.
std::string hex_text(std::uint64_t value);

/// Ascending ranks, folded: "0-7", "0,8,16,..,56", "0-1,4-5,..,12-13".
std::string fold_ranks(const std::vector<int>& ranks);
/// The order of the mesh axes: "tp-cp-ep-dp-pp".
std::string order_text(const RankOrder& order);
/// The seven axes under their public names: tp cp ep dp pp expert_tp expert_dp.
const std::vector<std::pair<std::string_view, Axis>>& public_axes();
/// The units of a chunk, of a model with `layers` layers: "embedding, layers 0..3, head".
std::string held_text(const UnitRange& chunk, std::int64_t layers);
/// All ranks of a pipeline stage, ascending.
std::vector<int> ranks_of_stage(const Mesh& mesh, int stage);

/// The kinds of groups over which a parameter's gradient is summed: "tp", "dp-cp", "embedding".
std::vector<std::string> owner_groups(const Plan& plan, int stage, const ParamSpec& row);
/// The axes that divide a parameter, each with the dimension that it divides: {"tp", 0}.
std::vector<std::pair<std::string_view, int>> splits_of(const ParamSpec& row);
/// The initial values of a parameter: "normal 0.02", "zeros" or "ones".
std::string init_text(const ParamSpec& row);
/// The categories of the estimate, in the order in which they are printed, without the total.
std::vector<std::pair<std::string_view, std::int64_t>> memory_rows(const MemoryEstimate& memory);
/// A purpose of CollectiveUse in words, such as "gradient sums".
std::string_view purpose_text(TrafficPurpose purpose);
/// For each parameter, the index of its gradient bucket; -1 if it has none.
std::vector<int> bucket_of_each(const StagePlan& stage);

/// The stage of the requested rank, else the stage with the most memory.
int shown_stage(const PrintInput& input);
/// Throws Error{usage} if the world has no rank `input.rank`.
void check_rank(const PrintInput& input);
/// The available kinds of groups, with "hierarchical_cp" last if its sizes are given.
std::vector<std::string> printable_kinds(const PrintInput& input);
/// Throws Error{usage} if `kind` is not one of printable_kinds().
void check_kind(const PrintInput& input, const std::string& kind);
/// The groups of each level of hierarchical_cp; only those of `input.rank` if it is set.
std::vector<RankLists> hierarchical_lists(const PrintInput& input);
/// Learning rate and weight decay at the steps of `input.lr_at`.
std::vector<RatePoint> rates_asked(const PrintInput& input);

}  // namespace trainctl
