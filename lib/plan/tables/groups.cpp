#include "plan/tables/groups.h"

#include <algorithm>
#include <array>
#include <numeric>
#include <string>

#include "base/error.h"

namespace trainctl {

namespace {

constexpr std::array<std::string_view, 16> kinds{"tp",
                                                 "cp",
                                                 "dp",
                                                 "dp-cp",
                                                 "pp",
                                                 "tp-pp",
                                                 "tp-dp",
                                                 "tp-cp",
                                                 "tp-dp-cp",
                                                 "embedding",
                                                 "position_embedding",
                                                 "expert:tp",
                                                 "expert:ep",
                                                 "expert:tp-ep",
                                                 "expert:tp-ep-pp",
                                                 "expert:dp"};

/// One axis of one factorisation.
struct Digit {
  std::int64_t size = 1;
  std::int64_t stride = 1;
};

/// What a kind selects: the digits of its own axes and of the others, both in rank order.
struct Selection {
  std::vector<Digit> own;
  std::vector<Digit> other;
  std::int64_t most = -1;  // members to keep of each group (the embeddings'); -1: all
};

/// The axis that an order's word means in the dense or in the expert factorisation.
Axis axis_of(Axis word, bool expert) {
  if (!expert) return word;
  if (word == Axis::tp) return Axis::etp;
  return word == Axis::dp ? Axis::edp : word;
}

bool has_word(std::string_view words, std::string_view word) {
  while (!words.empty()) {
    const std::size_t dash = std::min(words.find('-'), words.size());
    if (words.substr(0, dash) == word) return true;
    words.remove_prefix(std::min(dash + 1, words.size()));
  }
  return false;
}

Selection selection_of(const Mesh& mesh, std::string_view kind) {
  require(std::find(kinds.begin(), kinds.end(), kind) != kinds.end(), ExitCode::usage,
          "unknown kind of group '" + std::string(kind) + "'");
  Selection selection;
  std::string_view words = kind;
  const bool expert = words.starts_with("expert:");
  if (expert) words.remove_prefix(std::string_view("expert:").size());
  if (kind == "embedding" || kind == "position_embedding") {
    words = "pp";
    selection.most = kind == "embedding" ? 2 : 1;
  }
  std::int64_t stride = 1;
  for (const Axis word : mesh.order) {
    // Experts know no cp, dense layers no ep.
    const bool absent = expert ? word == Axis::cp : word == Axis::ep;
    const Digit digit{absent ? 1 : mesh.size(axis_of(word, expert)), stride};
    stride *= digit.size;
    (has_word(words, name_of(word)) ? selection.own : selection.other).push_back(digit);
  }
  return selection;
}

/// base + the offsets that the digits span, the first digit running fastest.
std::vector<int> span_of(const std::vector<Digit>& digits, std::int64_t base) {
  std::vector<int> ranks{static_cast<int>(base)};
  for (const Digit& digit : digits) {
    const std::size_t before = ranks.size();
    ranks.reserve(before * static_cast<std::size_t>(digit.size));
    for (std::int64_t step = 1; step < digit.size; ++step) {
      const int shift = static_cast<int>(step * digit.stride);
      for (std::size_t i = 0; i < before; ++i) ranks.push_back(ranks[i] + shift);
    }
  }
  return ranks;
}

std::vector<int> group_at(const Selection& selection, std::int64_t base) {
  std::vector<int> ranks = span_of(selection.own, base);
  if (selection.most == 1) ranks.resize(1);
  if (selection.most == 2 && ranks.size() > 1) ranks = {ranks.front(), ranks.back()};
  return ranks;
}

}  // namespace

std::span<const std::string_view> group_kinds() { return kinds; }

RankLists list_groups(const Mesh& mesh, std::string_view kind) {
  const Selection selection = selection_of(mesh, kind);
  RankLists groups;
  for (const int base : span_of(selection.other, 0)) groups.push_back(group_at(selection, base));
  return groups;
}

std::int64_t group_size(const Mesh& mesh, std::string_view kind) {
  const Selection selection = selection_of(mesh, kind);
  std::int64_t size = 1;
  for (const Digit& digit : selection.own) size *= digit.size;
  return selection.most > 0 ? std::min(size, selection.most) : size;
}

RankLists groups_with(const Mesh& mesh, std::string_view kind, std::int64_t rank) {
  require(rank >= 0 && rank < mesh.world_size(), ExitCode::usage,
          "the world of " + std::to_string(mesh.world_size()) + " ranks has no rank " +
              std::to_string(rank));
  const Selection selection = selection_of(mesh, kind);
  std::int64_t base = rank;
  for (const Digit& digit : selection.own) base -= rank / digit.stride % digit.size * digit.stride;
  std::vector<int> group = group_at(selection, base);
  const bool holds = std::find(group.begin(), group.end(), static_cast<int>(rank)) != group.end();
  return holds ? RankLists{std::move(group)} : RankLists{};
}

std::vector<RankLists> hierarchical_groups(const Mesh& mesh,
                                           const std::vector<std::int64_t>& sizes) {
  const std::int64_t product =
      std::accumulate(sizes.begin(), sizes.end(), std::int64_t{1}, std::multiplies<>());
  require(product == mesh.cp, ExitCode::usage,
          "the level sizes multiply to " + std::to_string(product) + ", but context_parallel is " +
              std::to_string(mesh.cp));
  const RankLists whole = list_groups(mesh, "cp");
  std::vector<RankLists> levels;
  std::int64_t below = 1;  // members that differ only on lower levels
  for (const std::int64_t size : sizes) {
    RankLists& level = levels.emplace_back();
    for (const std::vector<int>& group : whole) {
      for (std::int64_t above = 0; above < product / (size * below); ++above) {
        for (std::int64_t low = 0; low < below; ++low) {
          std::vector<int>& part = level.emplace_back();
          for (std::int64_t step = 0; step < size; ++step) {
            const std::int64_t at = (above * size + step) * below + low;
            part.push_back(group[static_cast<std::size_t>(at)]);
          }
        }
      }
    }
    below *= size;
  }
  return levels;
}

}  // namespace trainctl
