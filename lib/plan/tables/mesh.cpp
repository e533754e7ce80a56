#include "plan/tables/mesh.h"

#include <algorithm>
#include <cassert>
#include <cctype>
#include <numeric>
#include <string>
#include <utility>

#include "base/at.h"
#include "base/error.h"
#include "base/text.h"

namespace trainctl {

namespace {

bool is_expert(Axis axis) { return axis == Axis::etp || axis == Axis::ep || axis == Axis::edp; }

/// The size of an axis named in the rank order, in the dense or the expert factorisation.
std::int64_t size_in(const Mesh& mesh, Axis word, bool expert) {
  switch (word) {
    case Axis::tp: return expert ? mesh.etp : mesh.tp;
    case Axis::dp: return expert ? mesh.edp : mesh.dp;
    case Axis::cp: return expert ? 1 : mesh.cp;
    case Axis::ep: return expert ? mesh.ep : 1;
    default: return mesh.pp;
  }
}

Axis word_of_axis(Axis axis) {
  if (axis == Axis::etp) return Axis::tp;
  return axis == Axis::edp ? Axis::dp : axis;
}

}  // namespace

std::string_view name_of(Axis axis) {
  static constexpr auto names = take_words<axis_count>("tp|cp|dp|pp|etp|ep|edp");
  static_assert(names.back() == "edp");
  return at(names, axis);
}

std::int64_t Mesh::size(Axis axis) const {
  const std::array<std::int64_t, axis_count> sizes{tp, cp, dp, pp, etp, ep, edp};
  return at(sizes, axis);
}

std::int64_t Mesh::stride(Axis axis) const {
  std::int64_t stride = 1;
  for (const Axis word : order) {
    if (word == word_of_axis(axis)) return stride;
    stride *= size_in(*this, word, is_expert(axis));
  }
  return stride;
}

std::int64_t Mesh::coordinate(std::int64_t rank, Axis axis) const {
  return rank / stride(axis) % size(axis);
}

std::vector<int> Mesh::group(std::int64_t rank, Axis axis) const {
  return group(rank, std::vector<Axis>{axis});
}

std::vector<int> Mesh::group(std::int64_t rank, const std::vector<Axis>& axes) const {
  assert(rank >= 0 && rank < world_size());
  std::int64_t base = rank;
  for (Axis axis : axes) base -= coordinate(rank, axis) * stride(axis);
  std::vector<int> ranks{static_cast<int>(base)};
  for (Axis axis : axes) {
    const std::size_t before = ranks.size();
    for (std::int64_t step = 1; step < size(axis); ++step) {
      const int shift = static_cast<int>(step * stride(axis));
      for (std::size_t i = 0; i < before; ++i) ranks.push_back(ranks[i] + shift);
    }
  }
  std::sort(ranks.begin(), ranks.end());
  return ranks;
}

std::optional<RankOrder> parse_order(std::string_view text, std::vector<Axis>& appended) {
  constexpr std::array words{Axis::tp, Axis::pp, Axis::dp, Axis::ep, Axis::cp};
  std::vector<Axis> found;
  while (!text.empty()) {
    const std::size_t dash = std::min(text.find('-'), text.size());
    std::string word;
    for (char c : text.substr(0, dash)) {
      word += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
    }
    const auto axis =
        std::find_if(words.begin(), words.end(), [&](Axis one) { return name_of(one) == word; });
    if (axis == words.end()) return std::nullopt;
    if (std::find(found.begin(), found.end(), *axis) != found.end()) return std::nullopt;
    found.push_back(*axis);
    if (dash + 1 == text.size()) return std::nullopt;  // a dash at the end
    text.remove_prefix(std::min(dash + 1, text.size()));
  }
  for (const Axis axis : words) {
    if (std::find(found.begin(), found.end(), axis) != found.end()) continue;
    found.push_back(axis);
    appended.push_back(axis);
  }
  RankOrder order{};
  std::copy(found.begin(), found.end(), order.begin());
  return order;
}

namespace {

/// In the order in which the name of a group lists its axes.
constexpr std::pair<Axis, std::string_view> axis_words[] = {
    {Axis::tp, "tp"},  {Axis::etp, "tp"}, {Axis::ep, "ep"}, {Axis::dp, "dp"},
    {Axis::edp, "dp"}, {Axis::cp, "cp"},  {Axis::pp, "pp"}};

/// The ends of names, in the order of GroupPart; `ends` and `first` have names of their own.
constexpr std::string_view endings[] = {"",      " shard",   " mirror", "-heads",
                                        "-ring", " workers", " counts"};
static_assert(std::size(endings) == static_cast<std::size_t>(GroupPart::ends));

}  // namespace

std::string_view name_of(TrafficPurpose purpose) {
  static constexpr auto names =
      take_words<all_purposes.size()>("layers|gradients|parameters|messages|scalars");
  static_assert(names.back() == "scalars");
  return at(names, purpose);
}

std::string_view name_of(Cargo cargo) {
  constexpr auto count = static_cast<std::size_t>(Cargo::timer_barriers) + 1;
  static constexpr auto names = take_words<count>(
      "embedding|attention|mlp|experts|head|head statistics|sliced inputs|heads|"
      "keys and values|sums of norms|router|gate|scores|rows of experts|experts (at most)|"
      "parts of experts (at most)|activations|gradients|gradient slices|replicated gradients|"
      "shared keys and values|tied embedding|parameters|matrices of updates|loss|"
      "loss weights|gradient norm|router statistics|attention logit|attention scores|"
      "barriers of timers");
  static_assert(names.back() == "barriers of timers");
  return at(names, cargo);
}

std::string name_of(GroupKind kind) {
  if (kind == world_group) return "world";
  if (kind.part == GroupPart::ends) return "embedding";
  if (kind.part == GroupPart::first) return "position_embedding";
  std::string text;
  for (const auto& [axis, word] : axis_words) {
    if (!kind.has(axis)) continue;
    text += text.empty() ? "" : "-";
    text += axis == Axis::tp && kind.shares_keys ? "kv" : word;
  }
  return (kind.of_experts() ? "expert:" : "") + text + std::string(at(endings, kind.part));
}

std::string group_name(TrafficPurpose purpose, GroupKind kind) {
  return formatted("{} {}", name_of(purpose), name_of(kind));
}

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

/// One axis of one factorisation, like a digit of the rank number.
struct Digit {
  std::int64_t size = 1, stride = 1;
};

/// The digits of a kind's own axes and of the other axes, both in rank order.
struct Selection {
  std::vector<Digit> own;
  std::vector<Digit> other;
  std::int64_t most = -1;  // members to keep of each group; -1 = all
};

/// The axis that a word of the rank order stands for in the dense or the expert factorisation.
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
    // The expert factorisation has no cp, the dense one no ep.
    const bool absent = expert ? word == Axis::cp : word == Axis::ep;
    const Axis axis = axis_of(word, expert);
    const Digit digit{absent ? 1 : mesh.size(axis), stride};
    stride *= digit.size;
    (kind.has(axis) ? selection.own : selection.other).push_back(digit);
  }
  return selection;
}

/// `base` plus all offsets that the digits span; the first digit varies fastest.
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
  throw Error(ExitCode::usage, formatted("unknown kind of group '{}'", word));
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
          formatted("the world of {} ranks has no rank {}", mesh.world_size(), rank));
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
  require(
      product == mesh.cp, ExitCode::usage,
      formatted("the level sizes multiply to {}, but context_parallel is {}", product, mesh.cp));
  const RankLists whole = list_groups(mesh, "cp");
  std::vector<RankLists> levels;
  std::int64_t below = 1;  // number of members that differ only on lower levels
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

GroupKind heads_kind(const ContextSplit& split) {
  return group_over({Axis::cp}, split.ring > 1 ? GroupPart::heads : GroupPart::whole);
}

GroupKind ring_kind(const ContextSplit& split) {
  return group_over({Axis::cp}, split.heads > 1 ? GroupPart::ring : GroupPart::whole);
}

}  // namespace trainctl
