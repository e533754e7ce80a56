// Repeated rows for shared memory: gathers of parameter blocks that are freed after use, and the
// slots of repeated gradient sums.

#include <algorithm>
#include <map>
#include <numeric>
#include <set>
#include <tuple>
#include <utility>

#include "base/at.h"
#include "plan/schedule/schedule.h"

namespace trainctl {

namespace {

/// Consecutive rows that read the same freed blocks.
struct Use {
  std::size_t first = 0;  // index of the first row
  std::size_t last = 0;
  std::vector<int> blocks;
};

std::vector<int> freed_blocks_of(const Action& row, const std::vector<GatherBlock>& blocks) {
  std::vector<int> read;
  for (int block = 0; block < std::ssize(blocks); ++block) {
    const GatherBlock& one = at(blocks, block);
    if (one.freed && reads(row, one)) read.push_back(block);
  }
  return read;
}

std::vector<Use> uses_of(const std::vector<Action>& rows, const std::vector<GatherBlock>& blocks) {
  std::vector<Use> uses;
  for (std::size_t row = 0; row < rows.size(); ++row) {
    if (!is_pass(rows[row].kind)) continue;
    Use use{row, row, freed_blocks_of(rows[row], blocks)};
    if (use.blocks.empty()) continue;
    if (!uses.empty() && uses.back().blocks == use.blocks) {
      uses.back().last = row;
    } else {
      uses.push_back(std::move(use));
    }
  }
  return uses;
}

/// Inserts copies and waits around the uses of buffers.
class Gatherer {
 public:
  Gatherer(const std::vector<Action>& rows, const std::vector<GatherBlock>& blocks, int ahead)
      : rows_(rows),
        blocks_(blocks),
        uses_(uses_of(rows, blocks)),
        ahead_(static_cast<std::size_t>(ahead)),
        visits_(blocks.size(), -1) {}

  std::vector<Action> write() {
    std::size_t use = 0;
    prepare(0);
    for (std::size_t row = 0; row < rows_.size(); ++row) {
      if (use < uses_.size() && uses_[use].first == row) await(uses_[use]);
      made_.push_back(rows_[row]);
      note_open(rows_[row]);
      if (use < uses_.size() && uses_[use].last == row) prepare(++use);
    }
    return std::move(made_);
  }

 private:
  /// Notes the blocks of a pass between its legs, when another pass may run.
  void note_open(const Action& row) {
    if (!is_pass(row.kind) || row.kind == ActionKind::backward_weight) return;
    std::vector<int>& open = open_[row.kind == ActionKind::forward ? 0 : 1];
    open = row.sends_rows() ? freed_blocks_of(row, blocks_) : std::vector<int>{};
  }

  /// After all uses before number `use`: gathers the blocks of this use and of the next `ahead_`,
  /// and frees the others. Blocks of passes with remaining legs are kept.
  void prepare(std::size_t use) {
    std::vector<int> wanted = open_[0];  // in the order of use
    wanted.insert(wanted.end(), open_[1].begin(), open_[1].end());
    for (std::size_t i = use; i < uses_.size() && i <= use + ahead_; ++i) {
      for (const int block : uses_[i].blocks) {
        if (std::find(wanted.begin(), wanted.end(), block) == wanted.end()) wanted.push_back(block);
      }
    }
    for (auto held = held_.begin(); held != held_.end();) {
      const bool stays = std::find(wanted.begin(), wanted.end(), *held) != wanted.end();
      if (!stays) add(ActionKind::free, *held);
      held = stays ? std::next(held) : held_.erase(held);
    }
    for (const int block : wanted) {
      if (!held_.insert(block).second) continue;
      ++at(visits_, block);
      add(ActionKind::gather, block);
      coming_.insert(block);
    }
  }

  void await(const Use& use) {
    for (const int block : use.blocks) {
      if (coming_.erase(block) > 0) add(ActionKind::wait_gather, block);
    }
  }

  void add(ActionKind kind, int block) {
    made_.push_back(Action{.kind = kind, .bucket = block, .visit = at(visits_, block)});
  }

  const std::vector<Action>& rows_;
  const std::vector<GatherBlock>& blocks_;
  std::vector<Use> uses_;
  std::size_t ahead_;
  std::vector<int> visits_;  // by block: visit of its last gather
  std::set<int> held_;
  std::set<int> coming_;      // gathered, but not awaited yet
  std::vector<int> open_[2];  // blocks of F, and of R or B, with remaining legs
  std::vector<Action> made_;
};

struct RowSpan {  // rows [first, last]
  std::size_t first = 0, last = 0;
};
using RowSpans = std::vector<RowSpan>;  // ascending

bool meet(const RowSpans& a, const RowSpans& b) {
  std::size_t i = 0, j = 0;
  while (i < a.size() && j < b.size()) {
    if (a[i].last < b[j].first) {
      ++i;
    } else if (b[j].last < a[i].first) {
      ++j;
    } else {
      return true;
    }
  }
  return false;
}

RowSpans merged(const RowSpans& a, const RowSpans& b) {
  RowSpans all;
  std::merge(a.begin(), a.end(), b.begin(), b.end(), std::back_inserter(all),
             [](const RowSpan& x, const RowSpan& y) { return x.first < y.first; });
  return all;
}

/// Gives each block the first slot that is free during its lifetime, the largest blocks first.
/// Blocks without lifetime get no slot.
Ring ring_of(const std::vector<RowSpans>& lives, const std::vector<std::int64_t>& sizes) {
  Ring ring;
  ring.slot.assign(lives.size(), -1);
  std::vector<std::size_t> order(lives.size());
  std::iota(order.begin(), order.end(), 0);
  std::ranges::stable_sort(order, {}, [&](std::size_t one) { return -sizes[one]; });
  std::vector<RowSpans> taken;
  for (const std::size_t one : order) {
    if (lives[one].empty()) continue;
    std::size_t slot = 0;
    while (slot < taken.size() && meet(taken[slot], lives[one])) ++slot;
    if (slot == taken.size()) {
      taken.emplace_back();
      ring.sizes.push_back(sizes[one]);
    }
    taken[slot] = merged(taken[slot], lives[one]);
    ring.slot[one] = static_cast<int>(slot);
  }
  for (const std::int64_t size : ring.sizes) {
    ring.begin.push_back(ring.length);
    ring.length += size;
  }
  return ring;
}

}  // namespace

std::vector<Action> gather_freed(const std::vector<Action>& rows,
                                 const std::vector<GatherBlock>& blocks, int ahead) {
  return Gatherer(rows, blocks, ahead).write();
}

std::vector<GatherBlock> freed_only(std::vector<GatherBlock> blocks) {
  for (GatherBlock& block : blocks) {
    if (!block.freed) block = {.units = {}, .freed = true};
  }
  return blocks;
}

Ring weight_ring(const std::vector<Action>& rows, const std::vector<GatherBlock>& blocks,
                 const std::vector<std::int64_t>& sizes) {
  std::vector<RowSpans> lives(blocks.size());
  for (std::size_t row = 0; row < rows.size(); ++row) {
    const Action& action = rows[row];
    if (!names_block(action.kind) || !at(blocks, action.bucket).freed) continue;
    RowSpans& mine = at(lives, action.bucket);
    if (action.kind == ActionKind::gather) mine.push_back({row, rows.size()});
    if (action.kind == ActionKind::free) mine.back().last = row;
  }
  return ring_of(lives, sizes);
}

namespace {

/// An index from rows of B, W and F to the buckets whose gradients they add to.
class Additions {
 public:
  explicit Additions(const std::vector<BucketSum>& buckets) : buckets_(buckets) {
    for (int bucket = 0; bucket < std::ssize(buckets); ++bucket) {
      const BucketSum& sum = at(buckets, bucket);
      if (sum.head >= 0) heads_.push_back(bucket);
      for (const int unit : sum.units) {
        if (unit >= std::ssize(by_unit_)) by_unit_.resize(static_cast<std::size_t>(unit) + 1);
        at(by_unit_, unit).push_back(bucket);
      }
    }
  }

  /// Calls take(bucket) for each bucket to which the row adds, in ascending order.
  template <class Take>
  void each(const Action& row, const Take& take) const {
    const bool backward =
        row.kind == ActionKind::backward_input || row.kind == ActionKind::backward_weight;
    if (backward && row.end != row.begin + 1) {  // a row of several units
      for (int bucket = 0; bucket < std::ssize(buckets_); ++bucket) {
        if (at(buckets_, bucket).adds(row)) take(bucket);
      }
    } else if (backward && row.begin < std::ssize(by_unit_)) {
      for (const int bucket : at(by_unit_, row.begin)) take(bucket);
    } else if (row.kind == ActionKind::forward) {
      for (const int bucket : heads_) {
        if (at(buckets_, bucket).adds(row)) take(bucket);
      }
    }
  }

 private:
  const std::vector<BucketSum>& buckets_;
  std::vector<int> heads_;                 // buckets to which an F adds
  std::vector<std::vector<int>> by_unit_;  // by unit: buckets to which B and W add
};

}  // namespace

Ring gradient_ring(const std::vector<Action>& rows, const std::vector<BucketSum>& buckets,
                   const std::vector<std::int64_t>& sizes) {
  std::vector<RowSpans> lives(buckets.size());
  std::vector<char> open(buckets.size(), 0);  // gradients added since the last sum
  int under_way = -1;                         // bucket of the last started sum
  const Additions additions(buckets);
  for (std::size_t row = 0; row < rows.size(); ++row) {
    additions.each(rows[row], [&](int bucket) {
      if (!at(buckets, bucket).repeated || at(open, bucket) != 0) return;
      at(open, bucket) = 1;
      at(lives, bucket).push_back({row, rows.size()});
    });
    if (rows[row].kind != ActionKind::reduce || !at(buckets, rows[row].bucket).repeated) continue;
    // The previous sum may last until this row.
    if (under_way >= 0 && under_way != rows[row].bucket && at(open, under_way) == 0) {
      at(lives, under_way).back().last = row;
    }
    under_way = rows[row].bucket;
    at(open, under_way) = 0;
    if (!at(lives, under_way).empty()) at(lives, under_way).back().last = row;
  }
  return ring_of(lives, sizes);
}

std::vector<Action> await_slots(const std::vector<Action>& rows,
                                const std::vector<BucketSum>& buckets) {
  std::vector<Action> made;
  std::vector<Action> under_way;  // by slot: sum that is not awaited yet
  const Additions additions(buckets);
  for (const Action& row : rows) {
    additions.each(row, [&](int bucket) {
      const int slot = at(buckets, bucket).slot;
      if (slot < 0 || slot >= std::ssize(under_way)) return;
      Action& last = at(under_way, slot);
      if (last.bucket < 0) return;
      made.push_back({.kind = ActionKind::wait_reduce, .bucket = last.bucket, .visit = last.visit});
      last = {};
    });
    made.push_back(row);
    if (row.kind != ActionKind::reduce) continue;
    const int slot = at(buckets, row.bucket).slot;
    if (slot < 0) continue;
    if (slot >= std::ssize(under_way)) under_way.resize(static_cast<std::size_t>(slot) + 1);
    at(under_way, slot) = row;
  }
  return made;
}

// Rows that copy a layer's activations to the host after its F and back before its R or B.

namespace {

/// The use of a buffer by one unit and micro-batch: from F to the end of the copy to the host, or
/// from the copy back to the last row that reads it.
struct BufferUse {
  Action row;             // first pass of the use
  std::size_t first = 0;  // index of the first row
  std::size_t last = 0;
  bool backward = false;
};

/// The uses of buffers, in order of their first rows.
std::vector<BufferUse> buffer_uses(const std::vector<Action>& rows, const StageForms& forms) {
  std::vector<BufferUse> uses;
  std::map<std::tuple<bool, int, int>, std::size_t> known;  // by direction, micro-batch and unit
  for (std::size_t row = 0; row < rows.size(); ++row) {
    const Action& action = rows[row];
    if (!is_pass(action.kind) || action.begin == action.end || !forms.on_host(action.begin)) {
      continue;
    }
    const bool backward = action.kind != ActionKind::forward;
    const auto [found, fresh] =
        known.try_emplace({backward, action.microbatch, action.begin}, uses.size());
    if (fresh) uses.push_back({action, row, row, backward});
    uses[found->second].last = row;
  }
  return uses;
}

/// The first row of each chunk's and micro-batch's backward.
std::map<std::pair<int, int>, std::size_t> backward_starts(const std::vector<Action>& rows) {
  std::map<std::pair<int, int>, std::size_t> starts;
  for (std::size_t row = 0; row < rows.size(); ++row) {
    const bool forward = rows[row].kind == ActionKind::forward;
    if (!is_pass(rows[row].kind) || forward) continue;
    starts.try_emplace({rows[row].chunk, rows[row].microbatch}, row);
  }
  return starts;
}

/// Inserts copies and waits around the uses of buffers.
class Copier {
 public:
  Copier(const std::vector<Action>& rows, const StageForms& forms, int ahead)
      : rows_(rows), uses_(buffer_uses(rows, forms)), ahead_(static_cast<std::size_t>(ahead)) {
    const auto starts = backward_starts(rows);
    for (std::size_t use = 0; use < uses_.size(); ++use) {
      const BufferUse& mine = uses_[use];
      begin_at_[mine.first].push_back(use);
      if (!mine.backward) {
        end_at_[mine.last].push_back(use);
        continue;
      }
      std::size_t earliest = starts.at({mine.row.chunk, mine.row.microbatch});
      if (use > ahead_) earliest = std::max(earliest, uses_[use - 1 - ahead_].last + 1);
      reload_at_[std::min(earliest, mine.first)].push_back(use);
    }
  }

  std::vector<Action> write() {
    for (std::size_t row = 0; row < rows_.size(); ++row) {
      for (const std::size_t use : reload_at_[row]) reload(use);
      for (const std::size_t use : begin_at_[row]) begin(use);
      made_.push_back(rows_[row]);
      for (const std::size_t use : end_at_[row]) {
        add(ActionKind::offload, use);
        leaving_.push_back(use);
      }
    }
    return std::move(made_);
  }

 private:
  /// Awaits the copies to the host that must end before use number `use`: those of uses more than
  /// `ahead_` before it, and that of the same unit and micro-batch.
  void await(std::size_t use) {
    std::erase_if(leaving_, [&](std::size_t other) {
      const Action& row = uses_[other].row;
      const bool own =
          row.microbatch == uses_[use].row.microbatch && row.begin == uses_[use].row.begin;
      if (other + ahead_ >= use && !own) return false;
      add(ActionKind::wait_offload, other);
      return true;
    });
  }

  void reload(std::size_t use) {
    await(use);
    add(ActionKind::reload, use);
  }

  void begin(std::size_t use) {
    if (uses_[use].backward) return add(ActionKind::wait_reload, use);
    await(use);
  }

  void add(ActionKind kind, std::size_t use) {
    Action row = uses_[use].row;
    row.kind = kind;
    row.leg = ExchangePhase::whole;
    made_.push_back(row);
  }

  const std::vector<Action>& rows_;
  std::vector<BufferUse> uses_;
  std::size_t ahead_;
  std::map<std::size_t, std::vector<std::size_t>> begin_at_;   // by row: uses that it begins
  std::map<std::size_t, std::vector<std::size_t>> end_at_;     // by row: forward uses that it ends
  std::map<std::size_t, std::vector<std::size_t>> reload_at_;  // by row: uses with reload before it
  std::vector<std::size_t> leaving_;  // uses whose offload is not awaited yet
  std::vector<Action> made_;
};

}  // namespace

std::vector<Action> copy_to_host(const std::vector<Action>& rows, const ScheduleInput& input,
                                 int ahead) {
  return Copier(rows, input.forms, ahead).write();
}

}  // namespace trainctl
