#include "plan/schedule/prove_moves.h"

#include <utility>

#include "base/at.h"

namespace trainctl {

namespace {

constexpr int none = -1;

void make_room(std::vector<int>& slots, int slot) {
  if (slot >= std::ssize(slots)) slots.resize(static_cast<std::size_t>(slot) + 1, none);
}

}  // namespace

MoveProof::MoveProof(const std::vector<BucketSum>& buckets, const std::vector<ReadBlock>& blocks,
                     Fail fail)
    : buckets_(buckets),
      blocks_(blocks),
      fail_(std::move(fail)),
      gathered_(blocks.size(), 0),
      arrived_(blocks.size(), 0),
      freed_(blocks.size(), 0),
      reduced_(buckets.size(), 0) {
  for (const ReadBlock& block : blocks) make_room(block_in_, block.slot);
  for (const BucketSum& sum : buckets) {
    make_room(made_in_, sum.slot);
    make_room(sum_in_, sum.slot);
  }
}

void MoveProof::check(const Action& row) {
  if (is_pass(row.kind)) {
    check_read(row);
    add_gradients(row);
  }
  switch (row.kind) {
    case ActionKind::gather: return gather(row);
    case ActionKind::wait_gather: return wait_gather(row);
    case ActionKind::free: return free(row);
    case ActionKind::reduce: return reduce(row);
    case ActionKind::wait_reduce: return wait_reduce(row);
    default: return;
  }
}

void MoveProof::check_visit(const Action& row, int visit) {
  if (row.visit != visit) fail_("should be visit " + std::to_string(visit));
}

/// A block is gathered, then waited for; one that is freed may then be gathered once more.
void MoveProof::gather(const Action& row) {
  int& gathered = at(gathered_, row.bucket);
  if (gathered > at(freed_, row.bucket)) fail_("has been gathered before");
  check_visit(row, gathered++);
  const int slot = at(blocks_, row.bucket).slot;
  if (slot == none) return;
  int& held = at(block_in_, slot);
  if (held != none) fail_("its slot holds block " + std::to_string(held));
  held = row.bucket;
}

void MoveProof::wait_gather(const Action& row) {
  const int gathered = at(gathered_, row.bucket);
  if (gathered == at(freed_, row.bucket)) return fail_("is not being gathered");
  at(arrived_, row.bucket) = gathered;
  check_visit(row, gathered - 1);
}

void MoveProof::free(const Action& row) {
  const ReadBlock& block = at(blocks_, row.bucket);
  const int gathered = at(gathered_, row.bucket);
  if (!block.freed) fail_("the block stays for the whole step");
  if (gathered == at(freed_, row.bucket)) return fail_("has not been gathered");
  if (at(arrived_, row.bucket) < gathered) fail_("is still being gathered");
  at(freed_, row.bucket) = gathered;
  check_visit(row, gathered - 1);
  if (block.slot != none) at(block_in_, block.slot) = none;
}

void MoveProof::check_read(const Action& row) {
  for (std::size_t block = 0; block < blocks_.size(); ++block) {
    if (arrived_[block] > freed_[block] || !blocks_[block].read_by(row)) continue;
    const bool over = freed_[block] > 0 && freed_[block] == gathered_[block];
    fail_(over ? "reads parameters of block " + std::to_string(block) + ", which is freed"
               : "reads parameters before wait_gather " + std::to_string(block));
  }
}

/// Gradients that are summed repeatedly are made in slots.
void MoveProof::add_gradients(const Action& row) {
  if (made_in_.empty()) return;
  for (std::size_t bucket = 0; bucket < buckets_.size(); ++bucket) {
    const BucketSum& sum = buckets_[bucket];
    if (sum.slot == none || !sum.adds(row)) continue;
    const int summed = at(sum_in_, sum.slot);
    if (summed != none) {
      fail_("adds to gradients where the sum of bucket " + std::to_string(summed) +
            " is under way");
    }
    int& made = at(made_in_, sum.slot);
    if (made != none && made != static_cast<int>(bucket)) {
      fail_("adds to gradients where those of bucket " + std::to_string(made) + " are");
    }
    made = static_cast<int>(bucket);
  }
}

void MoveProof::reduce(const Action& row) {
  check_visit(row, at(reduced_, row.bucket)++);
  const int slot = at(buckets_, row.bucket).slot;
  if (slot == none) return;
  if (at(made_in_, slot) != row.bucket) fail_("sums a slot that holds no gradients of the bucket");
  at(made_in_, slot) = none;
  at(sum_in_, slot) = row.bucket;
}

void MoveProof::wait_reduce(const Action& row) {
  if (at(buckets_, row.bucket).reduced) check_visit(row, at(reduced_, row.bucket) - 1);
  const int slot = at(buckets_, row.bucket).slot;
  if (slot != none && at(sum_in_, slot) == row.bucket) at(sum_in_, slot) = none;
}

void MoveProof::finish() {
  for (const int bucket : made_in_) {
    if (bucket == none) continue;
    fail_("the last gradients of bucket " + std::to_string(bucket) + " are never reduced");
  }
  for (std::size_t block = 0; block < blocks_.size(); ++block) {
    const std::string name = "gather " + std::to_string(block);
    if (gathered_[block] == 0 && !blocks_[block].freed) {
      fail_(name + " is missing");
    } else if (arrived_[block] < gathered_[block]) {
      fail_("nobody waited for " + name);
    } else if (blocks_[block].freed && freed_[block] < gathered_[block]) {
      fail_("block " + std::to_string(block) + " is never freed");
    }
  }
}

}  // namespace trainctl
