// The part of the proof of one rank's rows that is about memory which is shared: parameters are
// there when they are read, and gradients are not added to where others are or are being summed.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "plan/schedule/schedule.h"

namespace trainctl {

class MoveProof {
 public:
  using Fail = std::function<void(const std::string& what)>;  // about the current row

  /// Keeps references to the tables.
  MoveProof(const std::vector<BucketSum>& buckets, const std::vector<ReadBlock>& blocks, Fail fail);
  /// The next row, whose bucket or block exists.
  void check(const Action& row);
  /// At the step.
  void finish();

 private:
  void gather(const Action& row);
  void wait_gather(const Action& row);
  void free(const Action& row);
  void check_read(const Action& row);
  void add_gradients(const Action& row);
  void reduce(const Action& row);
  void wait_reduce(const Action& row);
  void check_visit(const Action& row, int visit);

  const std::vector<BucketSum>& buckets_;
  const std::vector<ReadBlock>& blocks_;
  Fail fail_;
  std::vector<int> gathered_;  // per block: how often
  std::vector<int> arrived_;   // how many of these were waited for
  std::vector<int> freed_;     // and how many are over
  std::vector<int> reduced_;   // per bucket: how often
  std::vector<int> block_in_;  // per slot of parameters: the block that is there
  std::vector<int> made_in_;   // per slot of gradients: the bucket whose gradients are made there
  std::vector<int> sum_in_;    // and the one whose sum is under way there
};

}  // namespace trainctl
