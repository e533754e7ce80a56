// The part of a schedule's proof about passes that run in legs (Action::leg). A rank has one place
// for what a pass has on its way in each direction: F in one, R and B in the other.
#pragma once

#include <functional>
#include <string>
#include <utility>

#include "plan/schedule/action.h"

namespace trainctl {

class LegProof {
 public:
  using Fail = std::function<void(const std::string&)>;
  explicit LegProof(Fail fail) : fail_(std::move(fail)) {}

  /// Takes a row F, R or B. Whether its pass is complete with it.
  bool completes(const Action& row);
  void finish() const;  // after the last row

 private:
  struct Open {
    bool any = false;
    Action last;  // its last leg
  };

  Fail fail_;
  Open open_[2];  // F; R or B
};

}  // namespace trainctl
