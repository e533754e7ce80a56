#include "plan/gradients/matrix_work.h"

#include <algorithm>
#include <functional>
#include <map>
#include <numeric>
#include <set>
#include <string>
#include <utility>

#include "base/at.h"
#include "config/schema/optimizers.h"

namespace trainctl {

namespace {

/// The kinds that are stacked with `kind`, the first on top.
std::vector<ParamKind> stack_of(ParamKind kind, const MuonItems& items) {
  using enum ParamKind;
  const std::vector<ParamKind> stacks[] = {
      {mlp_gate, mlp_up}, {expert_gate, expert_up}, {query, key, value}};
  for (const std::vector<ParamKind>& stack : stacks) {
    const bool asked = has(items, stack.front() == query ? MuonItem("qkv") : MuonItem("gate_up"));
    if (asked && std::ranges::find(stack, kind) != stack.end()) return stack;
  }
  return {kind};
}

/// The prefix of a name: "layers.3.moe.shared." of "layers.3.moe.shared.up.weight".
std::string layer_of(const std::string& name) {
  return name.substr(0, name.rfind('.', name.rfind('.') - 1) + 1);
}

struct MatrixInput {
  const std::vector<ParamSpec>& parameters;
  const std::vector<OptimizerShard>& shards;
  const Mesh& mesh;
  const MuonConfig& muon;
  std::int64_t head_dim = 0;
};

class Dealer {
 public:
  explicit Dealer(MatrixInput input)
      : input_(input), steps_(static_cast<double>(muon_steps(input.muon).size())) {}

  std::vector<MatrixWork> deal() {
    for (int i = 0; i < std::ssize(input_.parameters); ++i) add(i);
    choose_workers();
    number_rounds();
    return std::move(work_);
  }

 private:
  const ParamSpec& spec(int parameter) const { return at(input_.parameters, parameter); }
  static bool is_matrix(const ParamSpec& one) { return row_of(one.update).by_matrix; }

  /// The parameters of the stack whose first parameter is `first`; empty if it is not the first.
  std::vector<int> stack_from(int first) const {
    const ParamSpec& top = spec(first);
    std::vector<int> stack;
    for (const ParamKind kind : stack_of(top.kind, input_.muon.items)) {
      for (int i = 0; i < std::ssize(input_.parameters); ++i) {
        const ParamSpec& one = spec(i);
        const bool belongs = one.kind == kind && is_matrix(one) && one.unit == top.unit &&
                             layer_of(one.name) == layer_of(top.name);
        if (belongs) stack.push_back(i);
      }
    }
    return stack.front() == first ? stack : std::vector<int>{};
  }

  void add(int parameter) {
    if (!is_matrix(spec(parameter))) return;
    const std::vector<int> stack = stack_from(parameter);
    if (stack.empty()) return;
    if (spec(parameter).global_shape.rank() == 2) return add(stack, -1);
    for (std::int64_t expert = 0; expert < spec(parameter).global_shape[0]; ++expert) {
      add(stack, expert);
    }
  }

  void add(const std::vector<int>& stack, std::int64_t expert) {
    MatrixWork& one = work_.emplace_back();
    for (const int parameter : stack) {
      const Shape& shape = spec(parameter).global_shape;
      one.parts.push_back({parameter, expert});
      one.rows += shape[shape.rank() - 2];
      one.columns = shape[shape.rank() - 1];
    }
    cut_heads(one);
    const auto longer = static_cast<double>(std::max(one.matrix_rows(), one.matrix_columns()));
    const auto shorter = static_cast<double>(one.shorter());
    one.cost = static_cast<double>(one.matrices) * steps_ *
               (4 * shorter * shorter * longer + 2 * shorter * shorter * shorter);
  }

  void cut_heads(MatrixWork& one) const {
    if (!has(input_.muon.items, "heads")) return;
    const ParamKind kind = spec(one.parts.front().parameter).kind;
    one.by_columns = kind == ParamKind::attention_output;
    const bool by_rows = kind == ParamKind::query || kind == ParamKind::key ||
                         kind == ParamKind::value || kind == ParamKind::attention_gate;
    if (by_rows) one.matrices = one.rows / input_.head_dim;
    if (one.by_columns) one.matrices = one.columns / input_.head_dim;
  }

  /// The ep index of the ranks that hold an expert; 0 for dense matrices, which all ranks hold.
  std::int64_t place_of(const MatrixWork& one) const {
    const MatrixPart& part = one.parts.front();
    return part.expert < 0 ? 0 : part.expert / spec(part.parameter).shape[0];
  }

  /// The rank that owns all parts, if they are dealt and no axis cuts them; otherwise -1.
  std::int64_t owner_of(const MatrixWork& one, const std::vector<int>& ranks) const {
    const auto owner = [&](const MatrixPart& part) {
      const OptimizerShard& shard = at(input_.shards, part.parameter);
      return shard.kind == ShardKind::dealt ? shard.owner : -1;
    };
    const std::int64_t first = owner(one.parts.front());
    const bool alone = input_.mesh.world_size() == input_.mesh.dp * input_.mesh.pp &&
                       std::ranges::all_of(
                           one.parts, [&](const MatrixPart& part) { return owner(part) == first; });
    if (first < 0 || !alone) return -1;
    const auto found = std::ranges::find_if(
        ranks, [&](int rank) { return input_.mesh.coordinate(rank, Axis::dp) == first; });
    return found - ranks.begin();
  }

  void choose_workers() {
    // The layout is equal on all stages, so the ranks of the first stage stand for all.
    const std::vector<int> ranks = stage_ranks(input_.mesh, 0);
    std::vector<double> load(ranks.size());
    using Queue = std::set<std::pair<double, std::int64_t>>;
    std::map<std::int64_t, Queue> queues;  // by ep index
    for (std::int64_t i = 0; i < std::ssize(ranks); ++i) {
      queues[input_.mesh.coordinate(at(ranks, i), Axis::ep)].insert({0, i});
    }
    std::vector<std::size_t> order(work_.size());
    std::iota(order.begin(), order.end(), std::size_t{0});
    std::ranges::stable_sort(order, std::greater<>(), [&](std::size_t i) { return work_[i].cost; });
    for (const std::size_t i : order) {
      MatrixWork& one = work_[i];
      one.worker = owner_of(one, ranks);
      if (one.worker < 0) {
        if (one.parts.front().expert >= 0) {
          one.worker = queues[place_of(one)].begin()->second;
        } else {
          const auto least = std::ranges::min_element(
              queues, {}, [](const auto& queue) { return *queue.second.begin(); });
          one.worker = least->second.begin()->second;
        }
      }
      double& busy = at(load, one.worker);
      Queue& queue = queues[input_.mesh.coordinate(at(ranks, one.worker), Axis::ep)];
      queue.erase({busy, one.worker});
      busy += one.cost;
      queue.insert({busy, one.worker});
    }
  }

  /// Numbers each rank's work, largest first, so that work in the same round is similar.
  void number_rounds() {
    std::map<std::int64_t, std::vector<MatrixWork*>> of_rank;
    for (MatrixWork& one : work_) of_rank[one.worker].push_back(&one);
    for (auto& [rank, list] : of_rank) {
      std::ranges::stable_sort(list, std::greater<>(), &MatrixWork::cost);
      for (int round = 0; MatrixWork * one : list) one->round = round++;
    }
  }

  MatrixInput input_;
  double steps_;
  std::vector<MatrixWork> work_;
};

}  // namespace

std::int64_t MatrixWork::shorter() const { return std::min(matrix_rows(), matrix_columns()); }

std::vector<int> stage_ranks(const Mesh& mesh, std::int64_t stage) {
  std::vector<int> ranks =
      mesh.group(stage * mesh.stride(Axis::pp), {Axis::tp, Axis::cp, Axis::dp});
  std::ranges::sort(ranks);
  return ranks;
}

std::vector<MatrixWork> deal_matrices(const std::vector<ParamSpec>& parameters,
                                      const std::vector<OptimizerShard>& shards, const Mesh& mesh,
                                      const MuonConfig& muon, std::int64_t head_dim) {
  return Dealer({parameters, shards, mesh, muon, head_dim}).deal();
}

}  // namespace trainctl
