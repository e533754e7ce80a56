#include "plan/search/recursive.h"

#include <algorithm>
#include <utility>

#include "base/at.h"

namespace trainctl {

namespace {

// MindSpore's weights: for a cut of i, for no cut, and for elements that are exchanged.
constexpr double rows_weight = 0.1;
constexpr double uncut_factor = 1.5;
constexpr double uncut_divisor = 350;
constexpr double moved_weight = 16;

/// The side of a matrix that a cut divides. If producer and consumer divide a tensor differently,
/// its elements are exchanged.
enum class Side : std::uint8_t { none, rows, columns };

constexpr Side side_of_input(ProductCut cut) {
  if (cut == "i") return Side::rows;
  return cut == "k" ? Side::columns : Side::none;
}

constexpr Side side_of_output(ProductCut cut) {
  if (cut == "i") return Side::rows;
  return cut == "j" ? Side::columns : Side::none;
}

/// For a second factor, MindSpore compares the producer's cut with the cut of the weights (the
/// second input).
constexpr Side side_of_second(ProductCut cut) {
  if (cut == "j") return Side::columns;
  return cut == "k" ? Side::rows : Side::none;
}

std::int64_t& part(Extents& parts, ProductCut cut) {
  if (cut == "i") return parts.i;
  return cut == "j" ? parts.j : parts.k;
}

class CutRounds {
 public:
  CutRounds(SearchNet net, std::int64_t ranks, std::int64_t max_i_parts,
            const std::vector<std::optional<Extents>>& fixed)
      : max_i_parts_(max_i_parts),
        fixed_(fixed),
        answer_{.net = std::move(net), .factors = prime_factors(ranks)},
        consumers_(products().size()),
        shares_(products().size()) {
    answer_.parts.resize(products().size());
    for (int product = 0; product < count(); ++product) {
      for (const int producer : at(products(), product).producers) {
        if (producer != data_node) at(consumers_, producer).push_back(product);
      }
    }
  }

  StageSearch run() {
    for (const int factor : answer_.factors) {
      begin_round(factor);
      for (const int node : answer_.net.order) {
        if (node == data_node) {
          cut_data();
        } else if (!is_fixed(node)) {
          choose(node);
        }
      }
      finish_round();
    }
    return std::move(answer_);
  }

 private:
  const std::vector<SearchProduct>& products() const { return answer_.net.products; }
  int count() const { return static_cast<int>(products().size()); }
  bool is_fixed(int product) const { return !fixed_.empty() && at(fixed_, product).has_value(); }

  void begin_round(int factor) {
    factor_ = factor;
    data_cut_.reset();
    answer_.rounds.emplace_back(products().size());
    cuts_.assign(products().size(), std::nullopt);
    for (int product = 0; product < count(); ++product) {
      const Extents& whole = at(products(), product).extents;
      const Extents& parts = at(answer_.parts, product);
      at(shares_, product) = {whole.i / parts.i, whole.k / parts.k, whole.j / parts.j};
      if (is_fixed(product)) take(product, next_fixed(product));
    }
  }

  /// The first of i, j and k whose remaining parts are divisible by the factor.
  ProductCut next_fixed(int product) const {
    Extents wanted = *at(fixed_, product);
    Extents done = at(answer_.parts, product);
    for (const ProductCut cut : {ProductCut("i"), ProductCut("j"), ProductCut("k")}) {
      const std::int64_t left = part(wanted, cut) / part(done, cut);
      if (left % factor_ == 0) return cut;
    }
    return "none";
  }

  void take(int product, ProductCut cut) {
    at(cuts_, product) = cut;
    at(answer_.rounds.back(), product).taken = cut;
  }

  void finish_round() {
    for (int product = 0; product < count(); ++product) {
      const ProductCut cut = at(answer_.rounds.back(), product).taken;
      if (cut != "none") part(at(answer_.parts, product), cut) *= factor_;
    }
  }

  /// Cuts the first dimension of the data if its share is divisible, else the second.
  void cut_data() {
    const bool rows = (answer_.net.data[0] / data_parts_[0]) % factor_ == 0;
    data_parts_[rows ? 0 : 1] *= factor_;
    data_cut_ = rows ? Side::rows : Side::columns;
  }

  bool is_possible(int product, ProductCut cut) const {
    const Extents& share = at(shares_, product);
    const Extents& parts = at(answer_.parts, product);
    if (cut == "i") return share.i % factor_ == 0 && (max_i_parts_ == 0 || parts.i < max_i_parts_);
    if (cut == "j") return share.j % factor_ == 0 && parts.k == 1;
    return cut == "none" || (share.k % factor_ == 0 && parts.j == 1);
  }

  /// The cost of the cut itself: the elements of the tensor that it does not divide.
  double own_cost(const Extents& share, ProductCut cut) const {
    const auto i = static_cast<double>(share.i);
    const auto k = static_cast<double>(share.k);
    const auto j = static_cast<double>(share.j);
    if (cut == "i") return rows_weight * j * k / factor_;
    if (cut == "j") return i * k / factor_;
    if (cut == "k") return i * j / factor_;
    const double least =
        uncut_factor * std::min({own_cost(share, "i"), own_cost(share, "j"), own_cost(share, "k")});
    return least * least / uncut_divisor;
  }

  /// The side of the producer's output that this round divides; unset if not visited yet.
  std::optional<Side> made_by(int producer) const {
    if (producer == data_node) return data_cut_;
    const auto& cut = at(cuts_, producer);
    return cut ? std::optional(side_of_output(*cut)) : std::nullopt;
  }

  Shape output_of(int producer) const {
    if (producer == data_node) return answer_.net.data;
    const Extents& whole = at(products(), producer).extents;
    return {whole.i, whole.j};
  }

  /// The cost of elements that are exchanged between this product and its neighbours.
  double moving_cost(int product, ProductCut cut) const {
    const SearchProduct& node = at(products(), product);
    const Extents& share = at(shares_, product);
    const Shape read{node.extents.i, node.extents.k};
    const double input = moved_weight * static_cast<double>(share.i) * static_cast<double>(share.k);
    const double output =
        moved_weight * static_cast<double>(share.i) * static_cast<double>(share.j);
    double cost = 0;
    for (const int producer : node.producers) {
      const auto made = made_by(producer);
      if (made && output_of(producer) == read && *made != side_of_input(cut)) cost += input;
    }
    if (node.second) {
      const auto made = made_by(*node.second);
      if (made && *made != side_of_second(cut)) cost += input;
    }
    const Shape written{node.extents.i, node.extents.j};
    for (const int consumer : at(consumers_, product)) {
      const auto& other = at(cuts_, consumer);
      const Extents& whole = at(products(), consumer).extents;
      const bool same = Shape{whole.i, whole.k} == written;
      if (other && same && side_of_input(*other) != side_of_output(cut)) cost += output;
    }
    return cost;
  }

  void choose(int product) {
    CutChoice& choice = at(answer_.rounds.back(), product);
    std::optional<ProductCut> best;
    const auto cost_of = [&](ProductCut cut) { return at(choice.costs, cut); };
    for (const ProductCut cut : all_cuts) {
      if (!is_possible(product, cut)) continue;
      at(choice.costs, cut) = own_cost(at(shares_, product), cut) + moving_cost(product, cut);
      if (!best || *cost_of(cut) < *cost_of(*best)) best = cut;
    }
    take(product, *best);
  }

  std::int64_t max_i_parts_;
  const std::vector<std::optional<Extents>>& fixed_;
  StageSearch answer_;
  std::vector<std::vector<int>> consumers_;  // for each product, the products that read its output
  std::vector<Extents> shares_;              // extents of each product on a rank before this round
  Shape data_parts_{1, 1};
  int factor_ = 2;
  std::vector<std::optional<ProductCut>> cuts_;  // for each product, its cut in this round
  std::optional<Side> data_cut_;
};

}  // namespace

StageSearch cut_recursively(SearchNet net, std::int64_t ranks, std::int64_t max_i_parts,
                            const std::vector<std::optional<Extents>>& fixed) {
  return CutRounds(std::move(net), ranks, max_i_parts, fixed).run();
}

std::string parts_text(const Extents& parts) {
  return "(" + std::to_string(parts.i) + "," + std::to_string(parts.k) + "," +
         std::to_string(parts.j) + ")";
}

std::vector<int> prime_factors(std::int64_t count) {
  std::vector<int> factors;
  for (std::int64_t prime = 2; prime * prime <= count; ++prime) {
    for (; count % prime == 0; count /= prime) factors.push_back(static_cast<int>(prime));
  }
  if (count > 1) factors.push_back(static_cast<int>(count));
  std::ranges::reverse(factors);
  return factors;
}

}  // namespace trainctl
