// The constants of the files in configs/devices and configs/software that are fitted to measured
// steps: of published ones at most 26.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "plan/prices/machine.h"

namespace trainctl {

struct Constant {
  std::string file;   // "h100", whose devices share it; "nemo"; "shared" by all software
  std::string key;    // in the file: "overhead"
  double start = 0;   // where the fit begins
  double spread = 0;  // FitStart::spread
  double most = 0;    // the value cannot be larger
  /// Its place in a machine; nullptr where it does not concern it.
  std::function<double*(Machine&, const ClusterConfig&)> place;
};

/// All of them; rows depend on those of their devices and software.
std::vector<Constant> fitted_constants();

/// "h100" of "h100-sxm": devices of one generation share what is fitted.
std::string generation_of(const std::string& device);

}  // namespace trainctl
