#include "plan/tables/groups.h"

#include <algorithm>
#include <numeric>
#include <string>

#include "base/error.h"

namespace trainctl {

namespace {

constexpr GroupKind kinds[] = {group_over({Axis::tp}),
                               group_over({Axis::cp}),
                               group_over({Axis::dp}),
                               group_over({Axis::dp, Axis::cp}),
                               group_over({Axis::pp}),
                               group_over({Axis::tp, Axis::pp}),
                               group_over({Axis::tp, Axis::dp}),
                               group_over({Axis::tp, Axis::cp}),
                               group_over({Axis::tp, Axis::dp, Axis::cp}),
                               embedding_kind,
                               group_over({Axis::pp}, GroupPart::first),
                               group_over({Axis::etp}),
                               group_over({Axis::ep}),
                               group_over({Axis::etp, Axis::ep}),
                               group_over({Axis::etp, Axis::ep, Axis::pp}),
                               group_over({Axis::edp})};

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

Selection selection_of(const Mesh& mesh, GroupKind kind) {
  Selection selection;
  if (kind.part == GroupPart::ends) selection.most = 2;
  if (kind.part == GroupPart::first) selection.most = 1;
  const bool expert = kind.of_experts();
  std::int64_t stride = 1;
  for (const Axis word : mesh.order) {
    // Experts know no cp, dense layers no ep.
    const bool absent = expert ? word == Axis::cp : word == Axis::ep;
    const Axis axis = axis_of(word, expert);
    const Digit digit{absent ? 1 : mesh.size(axis), stride};
    stride *= digit.size;
    (kind.has(axis) ? selection.own : selection.other).push_back(digit);
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

std::span<const std::string> group_kinds() {
  static const std::vector<std::string> words = [] {
    std::vector<std::string> made;
    for (const GroupKind kind : kinds) made.push_back(name_of(kind));
    return made;
  }();
  return words;
}

GroupKind group_kind(std::string_view word) {
  for (const GroupKind kind : kinds) {
    if (name_of(kind) == word) return kind;
  }
  throw Error(ExitCode::usage, "unknown kind of group '" + std::string(word) + "'");
}

RankLists list_groups(const Mesh& mesh, std::string_view kind) {
  const Selection selection = selection_of(mesh, group_kind(kind));
  RankLists groups;
  for (const int base : span_of(selection.other, 0)) groups.push_back(group_at(selection, base));
  return groups;
}

std::int64_t group_size(const Mesh& mesh, GroupKind kind) {
  const Selection selection = selection_of(mesh, kind);
  std::int64_t size = 1;
  for (const Digit& digit : selection.own) size *= digit.size;
  return selection.most > 0 ? std::min(size, selection.most) : size;
}

RankLists groups_with(const Mesh& mesh, std::string_view kind, std::int64_t rank) {
  require(rank >= 0 && rank < mesh.world_size(), ExitCode::usage,
          "the world of " + std::to_string(mesh.world_size()) + " ranks has no rank " +
              std::to_string(rank));
  const Selection selection = selection_of(mesh, group_kind(kind));
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
