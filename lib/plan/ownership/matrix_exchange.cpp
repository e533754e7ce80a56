#include "plan/ownership/matrix_exchange.h"

#include <algorithm>
#include <cstdlib>
#include <map>
#include <numeric>
#include <tuple>
#include <utility>

#include "base/at.h"
#include "base/integers.h"
#include "plan/tables/shard.h"

namespace trainctl {

namespace {

std::int64_t total(const std::vector<std::int64_t>& counts) {
  return std::accumulate(counts.begin(), counts.end(), std::int64_t{0});
}

/// The ownership of matrix parts on all ranks of a stage.
class Owners {
 public:
  Owners(const Plan& plan, int stage)
      : plan_(plan), stage_(at(plan.stages, stage)), ranks_(stage_ranks(plan.mesh, stage)) {
    for (const int rank : ranks_) tables_.push_back(make_ownership(plan, rank));
  }

  const std::vector<int>& ranks() const { return ranks_; }
  std::int64_t size() const { return std::ssize(ranks_); }
  const ParamSpec& spec(const MatrixPart& part) const {
    return at(stage_.parameters, part.parameter);
  }

  /// The elements of the part that the rank owns, as a slice of its share of the parameter.
  Slice slice(const MatrixPart& part, std::int64_t rank) const {
    const Slice& owned = at(at(tables_, rank).parameters, part.parameter).owned;
    if (part.expert < 0) return owned;
    const ParamSpec& parameter = spec(part);
    const std::int64_t first = share(part, rank).begin[0];
    const std::int64_t count = parameter.shape[0];
    if (part.expert < first || part.expert >= first + count) return {};
    const std::int64_t length = parameter.shape.numel() / count;
    const std::int64_t begin = std::max(owned.begin, (part.expert - first) * length);
    const std::int64_t end = std::min(owned.end, (part.expert - first + 1) * length);
    return begin < end ? Slice{begin, end} : Slice{};
  }

  Box share(const MatrixPart& part, std::int64_t rank) const {
    return shard_box(spec(part), plan_.mesh, at(ranks_, rank));
  }

  /// For each rank, the rank that sends its elements: of the owners of the same elements, the one
  /// nearest to the worker. -1 if the rank owns none.
  std::vector<std::int64_t> senders(const MatrixPart& part, std::int64_t worker) const {
    using Key = std::tuple<std::array<std::int64_t, Shape::max_rank>, std::int64_t, std::int64_t>;
    std::map<Key, std::int64_t> nearest;  // by begin of the share, and slice
    std::vector<Key> keys;
    for (std::int64_t rank = 0; rank < size(); ++rank) {
      const Slice own = slice(part, rank);
      const Key key{share(part, rank).begin, own.begin, own.end};
      keys.push_back(key);
      if (own.length() == 0) continue;
      const auto [found, fresh] = nearest.try_emplace(key, rank);
      const bool nearer = std::abs(rank - worker) < std::abs(found->second - worker);
      if (!fresh && nearer) found->second = rank;
    }
    std::vector<std::int64_t> senders;
    for (std::int64_t rank = 0; rank < size(); ++rank) {
      senders.push_back(slice(part, rank).length() == 0 ? -1 : nearest.at(at(keys, rank)));
    }
    return senders;
  }

 private:
  const Plan& plan_;
  const StagePlan& stage_;
  std::vector<int> ranks_;
  std::vector<OwnershipTable> tables_;
};

int rounds_of(const StagePlan& stage) {
  int rounds = 0;
  for (const MatrixWork& one : stage.matrices) rounds = std::max(rounds, one.round + 1);
  return rounds;
}

/// Collects the rounds of one rank.
class RankRounds {
 public:
  RankRounds(const Plan& plan, std::int64_t rank)
      : stage_(plan.stage_of(rank)),
        owners_(plan, static_cast<int>(plan.mesh.coordinate(rank, Axis::pp))),
        me_(std::ranges::find(owners_.ranks(), static_cast<int>(rank)) - owners_.ranks().begin()) {
    rounds_.resize(static_cast<std::size_t>(rounds_of(stage_)));
    for (MatrixRound& round : rounds_) {
      const auto ranks = static_cast<std::size_t>(owners_.size());
      for (auto* counts :
           {&round.send, &round.receive, &round.return_send, &round.return_receive}) {
        counts->resize(ranks);
      }
    }
  }

  std::vector<MatrixRound> make() {
    // In the order of workers, since calls have their parts in rank order.
    std::vector<int> order(stage_.matrices.size());
    std::iota(order.begin(), order.end(), 0);
    std::ranges::stable_sort(order, {}, [&](int i) { return at(stage_.matrices, i).worker; });
    for (const int work : order) add(work);
    for (MatrixRound& round : rounds_) finish(round);
    return std::move(rounds_);
  }

 private:
  void add(int work) {
    const MatrixWork& one = at(stage_.matrices, work);
    MatrixRound& round = at(rounds_, one.round);
    if (one.worker == me_) {
      round.work = work;
      lay_stack(one, round);
    }
    for (const MatrixPart& part : one.parts) {
      const Slice own = owners_.slice(part, me_);
      if (own.length() == 0) continue;
      OwnedPart owned{.work = work, .parameter = part.parameter, .slice = own};
      owned.incoming = total(round.return_receive);
      at(round.return_receive, one.worker) += own.length();
      const bool sends = at(owners_.senders(part, one.worker), me_) == me_;
      owned.outgoing = sends ? total(round.send) : -1;
      if (sends) at(round.send, one.worker) += own.length();
      round.owned.push_back(owned);
      round.values += own.length();
    }
  }

  /// Places the values that another owner sends after all values that this rank sends.
  static void finish(MatrixRound& round) {
    std::int64_t behind = total(round.send);
    for (OwnedPart& part : round.owned) {
      if (part.outgoing >= 0) continue;
      part.outgoing = behind;
      behind += part.slice.length();
    }
  }

  /// Maps the buffers to the stack, rank by rank, in the order of calls, and part by part.
  void lay_stack(const MatrixWork& one, MatrixRound& round) const {
    std::vector<std::vector<std::int64_t>> senders;
    for (const MatrixPart& part : one.parts) senders.push_back(owners_.senders(part, one.worker));
    for (std::int64_t rank = 0; rank < owners_.size(); ++rank) {
      std::int64_t top = 0;
      for (std::size_t i = 0; i < one.parts.size(); ++i) {
        const MatrixPart& part = one.parts[i];
        const Slice own = owners_.slice(part, rank);
        if (at(senders[i], rank) == rank) {
          add_rows(part, rank, own, top, total(round.receive), round.in);
          at(round.receive, rank) += own.length();
        }
        if (own.length() > 0) {
          add_rows(part, rank, own, top, total(round.return_send), round.out);
          at(round.return_send, rank) += own.length();
        }
        const Shape& shape = owners_.spec(part).global_shape;
        top += shape[shape.rank() - 2] * shape[shape.rank() - 1];
      }
    }
  }

  /// `top`: begin of the part in the stack; `packed`: begin of the slice in the buffer.
  void add_rows(const MatrixPart& part, std::int64_t rank, const Slice& own, std::int64_t top,
                std::int64_t packed, std::vector<MatrixRows>& list) const {
    const int dims = owners_.spec(part).global_shape.rank();
    const std::int64_t columns = owners_.spec(part).global_shape[dims - 1];
    const Box share = owners_.share(part, rank);
    for (const Box& box : cut_into_boxes(share, own)) {
      const auto begin = [&](int dim) { return at(box.begin, dim); };
      MatrixRows rows{.packed = packed + index_in(share, box) - own.begin,
                      .stacked = top + begin(dims - 2) * columns + begin(dims - 1),
                      .rows = box.extent[dims - 2],
                      .length = box.extent[dims - 1]};
      if (rows.length == columns) rows = {rows.packed, rows.stacked, 1, rows.rows * columns};
      list.push_back(rows);
    }
  }

  const StagePlan& stage_;
  Owners owners_;
  std::int64_t me_;
  std::vector<MatrixRound> rounds_;
};

}  // namespace

std::vector<MatrixRound> matrix_rounds(const Plan& plan, std::int64_t rank) {
  if (plan.stage_of(rank).matrices.empty()) return {};
  return RankRounds(plan, rank).make();
}

namespace {

/// The largest sizes on any rank of the stage, in elements.
struct MatrixSizes {
  std::int64_t values = 0;   // values that a rank owns in a round
  std::int64_t stack = 0;    // stack of a work
  std::int64_t matrix = 0;   // one matrix
  std::int64_t square = 0;   // square of a matrix's shorter side
  std::int64_t results = 0;  // results that a worker sends
  bool exchanges = false;    // whether the stage has several ranks
  bool apart = false;        // whether some work has several matrices, copied from the stack
};

MatrixSizes matrix_sizes(const Plan& plan, int number) {
  const StagePlan& stage = at(plan.stages, number);
  MatrixSizes sizes;
  if (stage.matrices.empty()) return sizes;
  const Owners owners(plan, number);
  sizes.exchanges = owners.size() > 1;
  std::map<std::pair<int, std::int64_t>, std::int64_t> values;  // by round and rank
  for (const MatrixWork& one : stage.matrices) {
    sizes.stack = std::max(sizes.stack, one.elements());
    sizes.matrix = std::max(sizes.matrix, one.elements() / one.matrices);
    sizes.square = std::max(sizes.square, one.shorter() * one.shorter());
    sizes.apart = sizes.apart || one.matrices > 1;
    std::int64_t results = 0;
    for (const MatrixPart& part : one.parts) {
      for (std::int64_t rank = 0; rank < owners.size(); ++rank) {
        const std::int64_t length = owners.slice(part, rank).length();
        results += length;
        values[{one.round, rank}] += length;
      }
    }
    if (sizes.exchanges) sizes.results = std::max(sizes.results, results);
  }
  for (const auto& [place, length] : values) sizes.values = std::max(sizes.values, length);
  return sizes;
}

}  // namespace

std::vector<MatrixBuffer> matrix_buffers(const Plan& plan, int stage) {
  const DType products = plan.matrix_products;
  const MatrixSizes sizes = matrix_sizes(plan, stage);
  if (sizes.stack == 0) return {};
  // Values that are sent from and to the ranks that own them.
  std::vector<MatrixBuffer> buffers{{"values", sizes.values, DType::f32}};
  if (products != DType::f32) buffers.push_back({"narrow values", sizes.values, products});
  if (sizes.exchanges) buffers.push_back({"results", sizes.results, products});
  buffers.push_back({"stack", sizes.stack, products});
  if (sizes.apart) buffers.push_back({"matrix", sizes.matrix, products});
  // Received values for a stack use the memory of later products.
  const std::int64_t arriving = sizes.exchanges ? sizes.stack : 0;
  buffers.push_back({"product", std::max(sizes.matrix, arriving), DType::f32});
  buffers.push_back({"gram", sizes.square, products});
  buffers.push_back({"gram product", sizes.square, DType::f32});
  buffers.push_back({"squares", 1, DType::f64});
  return buffers;
}

std::int64_t matrix_bytes(const Plan& plan, int stage) {
  constexpr std::int64_t line = 64;  // alignment of each buffer
  std::int64_t bytes = 0;
  for (const MatrixBuffer& one : matrix_buffers(plan, stage)) {
    bytes += round_up(one.elements * size_of(one.type), line);
  }
  return bytes;
}

std::vector<const MatrixWork*> busiest_work(const StagePlan& stage) {
  std::map<std::int64_t, double> load;
  for (const MatrixWork& one : stage.matrices) load[one.worker] += one.cost;
  std::vector<const MatrixWork*> work;
  if (load.empty()) return work;
  const auto most =
      std::ranges::max_element(load, {}, [](const auto& entry) { return entry.second; });
  for (const MatrixWork& one : stage.matrices) {
    if (one.worker == most->first) work.push_back(&one);
  }
  return work;
}

std::int64_t sent_bytes(const Plan& plan, const std::vector<MatrixRound>& rounds) {
  std::int64_t elements = 0;
  for (const MatrixRound& round : rounds) elements += total(round.send) + total(round.return_send);
  return elements * size_of(plan.matrix_products);
}

}  // namespace trainctl
