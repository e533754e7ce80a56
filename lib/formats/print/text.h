// Words and numbers of a plan, for all forms of output.
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

/// Padded with spaces after, or before, up to `width`.
std::string padded(const std::string& text, std::size_t width);
std::string padded_left(const std::string& text, std::size_t width);
/// "  label         text\n"
std::string labelled(const std::string& label, const std::string& text);
/// As a word of a POSIX shell, in quotes where it needs them.
std::string shell_word(const std::string& word);
/// "3 ranks", "1 batch", "2 batches"; thousands are grouped.
std::string grouped_count(std::int64_t count, const std::string& noun);
/// Where it runs: "on the CPU, 2 threads per rank", "on CUDA devices, one for each rank".
std::string device_text(const Plan& plan);
/// "12.5%"
std::string percent(double share);
/// "3.04 TFLOP"
std::string operations_text(double count);
/// "3" or "3..7"
std::string span_text(std::int64_t first, std::int64_t last);
/// 16 hexadecimal digits.
std::string hex_text(std::uint64_t value);

/// Ascending ranks, folded: "0-7", "0,8,16,..,56", "0-1,4-5,..,12-13".
std::string fold_ranks(const std::vector<int>& ranks);
/// "tp-cp-ep-dp-pp"
std::string order_text(const RankOrder& order);
/// The seven axes under their public names: tp cp ep dp pp expert_tp expert_dp.
const std::vector<std::pair<std::string_view, Axis>>& public_axes();
/// "embedding, layers 0..3, head"
std::string held_text(const ChunkLayers& chunk);
/// All ranks of a pipeline stage, ascending.
std::vector<int> ranks_of_stage(const Mesh& mesh, int stage);

/// The kinds of groups over which a parameter's gradient is summed: "tp", "dp-cp", "embedding".
std::vector<std::string> owner_groups(const Plan& plan, int stage, const ParamSpec& row);
/// The axes that divide a parameter, and the dimension that each divides: {"tp", 0}.
std::vector<std::pair<std::string_view, int>> splits_of(const ParamSpec& row);
/// "normal 0.02", "zeros" or "ones"
std::string init_text(const ParamSpec& row);
/// The categories of the estimate in the order in which they are printed, without the total.
std::vector<std::pair<std::string_view, std::int64_t>> memory_rows(const MemoryEstimate& memory);
/// The purposes of CollectiveUse in the order in which they are shown, and what each is for people:
/// "gradient sums".
std::string_view purpose_text(TrafficPurpose purpose);
/// Index of the gradient bucket that holds a parameter, -1 if none does.
std::vector<int> bucket_of_each(const StagePlan& stage);

/// The stage of the rank asked for, else the one that takes the most memory.
int shown_stage(const PrintInput& input);
/// Throws Error{usage} if the world has no such rank.
void check_rank(const PrintInput& input);
/// The available kinds of groups, with "hierarchical_cp" last if its sizes are given.
std::vector<std::string> printable_kinds(const PrintInput& input);
/// Throws Error{usage} if `kind` is not one of them.
void check_kind(const PrintInput& input, const std::string& kind);
/// The groups of each level of hierarchical_cp; only those of `input.rank` if that is given.
std::vector<RankLists> hierarchical_lists(const PrintInput& input);
/// Learning rate and weight decay at the steps of `input.lr_at`.
std::vector<RatePoint> rates_asked(const PrintInput& input);

}  // namespace trainctl
