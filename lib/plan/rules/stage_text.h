// The stage text of parallel.pipeline.layout (megatron.core PipelineParallelLayerLayout):
// "Et*3|t*4|(tt|)*2tL". E embedding, t layer, m multi-token prediction, L loss, | between stages;
// x*n and (..)*n repeat, commas and spaces are ignored.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace trainctl {

struct StageLayout {
  std::vector<std::string> stages;  // letters of each, in model order
  std::string error;                // why the text cannot be read; empty if it can
};

/// Writes repetitions out; only the syntax is checked. At most 1,000,000 letters.
StageLayout parse_stage_layout(std::string_view text);

}  // namespace trainctl
