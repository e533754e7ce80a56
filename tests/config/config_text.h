// Short ways to write configurations and to look at what was found in them.
#pragma once

#include <algorithm>
#include <string>
#include <vector>

#include "config/read/read.h"
#include "contains.h"

namespace trainctl::test {

/// A configuration without mistakes, one section per line.
inline const std::string good_model =
    "model: {num_layers: 2, hidden_size: 64, num_attention_heads: 4, seq_length: 32, "
    "vocab_size: 256}\n";
inline const std::string good_data = "data: {train: a.txt}\n";
inline const std::string good_train = "train: {steps: 10, global_batch_size: 4}\n";
inline const std::string good_lr = "lr_schedule: {max_lr: 1.0e-3}\n";
inline const std::string good_text = good_model + good_data + good_train + good_lr;

inline ReadResult read(const std::string& text, const std::vector<std::string>& set = {}) {
  return read_config_text(text, "t.yaml", set);
}

/// "code path line:column" of each message.
inline std::vector<std::string> found(const ReadResult& result) {
  std::vector<std::string> list;
  for (const Diagnostic& diagnostic : result.diagnostics.list()) {
    list.push_back(diagnostic.code + " " + diagnostic.path + " " +
                   std::to_string(diagnostic.place.line) + ":" +
                   std::to_string(diagnostic.place.column));
  }
  return list;
}

/// The only message; a message that says so where there is not exactly one.
inline Diagnostic only(const ReadResult& result) {
  if (result.diagnostics.list().size() == 1) return result.diagnostics.list().front();
  Diagnostic none;
  none.code = "there are " + std::to_string(result.diagnostics.list().size()) + " messages";
  return none;
}

}  // namespace trainctl::test
