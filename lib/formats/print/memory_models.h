// The published memory models next to the plan's own estimate, as named numbers.
#pragma once

#include <string>
#include <vector>

#include "formats/print/print.h"

namespace trainctl {

struct ModelNumber {
  std::string name;
  double value = 0;
  bool is_bytes = true;  // otherwise a count
};

struct MemoryModelRows {
  std::string name;   // "megatron", "megatron-0.15", "korthikanti"
  std::string about;  // the settings it was evaluated with
  std::vector<ModelNumber> numbers;
};

/// The models that `input.memory_models` selects; none without a config.
std::vector<MemoryModelRows> memory_models(const PrintInput& input);

/// "weights 1.5 GiB, activations 2 GiB"; the numbers whose name starts with "layer_" are left out.
std::string numbers_text(const MemoryModelRows& model);

}  // namespace trainctl
