#include "plan/tables/mesh.h"

#include <algorithm>
#include <cassert>
#include <cctype>

namespace trainctl {

namespace {

bool is_expert(Axis axis) { return axis == Axis::etp || axis == Axis::ep || axis == Axis::edp; }

/// What an order's word means in one factorisation: its size there.
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
  static constexpr std::array<std::string_view, axis_count> names{"tp",  "cp", "dp", "pp",
                                                                  "etp", "ep", "edp"};
  return names[static_cast<std::size_t>(axis)];
}

std::int64_t Mesh::size(Axis axis) const {
  switch (axis) {
    case Axis::tp: return tp;
    case Axis::cp: return cp;
    case Axis::dp: return dp;
    case Axis::pp: return pp;
    case Axis::etp: return etp;
    case Axis::ep: return ep;
    case Axis::edp: return edp;
  }
  return 1;
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

}  // namespace trainctl
