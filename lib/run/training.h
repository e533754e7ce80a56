// A training run on one rank: the engine, its data, and what it writes, from the first step of this
// session to the last.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "comm/world.h"
#include "config/read/read.h"
#include "plan/plan.h"
#include "run/beginning.h"
#include "run/data/continuation.h"

namespace trainctl {

class Training {
 public:
  struct Input {
    const ReadResult& read;
    const Plan& plan;
    const Beginning& beginning;
    const std::string& layout_file;              // what layout.yaml holds; empty: there is none
    const Continuation* continuation = nullptr;  // of a run that goes on
    std::int64_t stop_after = 0;                 // > 0: this session ends after so many steps
    int ranks_in_process = 1;
    bool color = true;  // on stderr
  };
  /// Opens the data and allocates everything. Nothing of an earlier run is changed. Throws as
  /// open_corpus and Engine.
  Training(const Input& input, World& world, Group& everyone);
  ~Training();
  Training(const Training&) = delete;
  Training& operator=(const Training&) = delete;

  /// Enters the directory, loads or initialises, trains. Returns the exit code: 0; 75 or 77 after a
  /// signal (docs/exit-codes.md); 74 if something could not be written. Collective.
  int run();

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace trainctl
