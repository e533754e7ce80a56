// The part of the proof of one rank's rows that is about copies to the host: what a layer keeps
// there is copied once it is made, and is back before it is read.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "plan/schedule/schedule.h"

namespace trainctl {

class CopyProof {
 public:
  using Fail = std::function<void(const std::string& what)>;  // about the current row

  /// Keeps a reference to `input`.
  CopyProof(const ScheduleInput& input, Fail fail);
  /// The next row, whose chunk, micro-batch and units are the rank's.
  void check(const Action& row);
  /// At the step.
  void finish();

 private:
  /// Where a unit's values of one micro-batch are.
  enum class Where : std::uint8_t { nowhere, made, leaving, away, coming, back };
  Where& where(int unit, int microbatch);
  void pass(const Action& row, int unit);
  void move(const Action& row, Where from, Where to, const char* otherwise);

  const ScheduleInput& input_;
  Fail fail_;
  int first_ = 0;  // unit of the rank
  std::vector<Where> where_;
};

}  // namespace trainctl
