// The data section: training data, validation data, and how they are split into samples.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "config/schema/choices.h"

namespace trainctl {

struct DataSource {
  std::string path;  // a text file or folder, a .bin/.idx prefix, or a .bin file
  double weight = 1.0;
  bool operator==(const DataSource&) const = default;
};

struct ValidationConfig {
  std::optional<std::string> path;  // its own data instead of a part of `train`
  double fraction = 0.0;
  // tail: the last part; blocks: every (1/fraction)th 1024 tokens
  SplitStyle split = SplitStyle::tail;
  std::int64_t max_sequences = 0;  // 0: all non-overlapping windows
  bool operator==(const ValidationConfig&) const = default;
};

struct DataConfig {
  std::vector<DataSource> train;   // YAML: a path, a list of paths, or a list of {path, weight}
  std::string tokenizer = "byte";  // byte | sentencepiece:MODEL | hf:DIR; also for generate
  ValidationConfig validation;
  bool shuffle = true;
  bool packing = true;  // documents are joined; false: each row has tokens of one document
  bool reset_attention_mask = false;  // attention stays within a document
  bool reset_position_ids = false;    // positions restart at each document
  bool eod_mask_loss = false;         // the end-of-document token has no loss
  // where documents end; default: the tokenizer's, or the file's documents
  std::optional<std::int64_t> eod_token;
  ChangedData changed = ChangedData::refuse;  // of a source since the checkpoint
  std::string cache_dir;                      // tokenised text; default: the user's cache folder
  std::int64_t prefetch = 2;                  // batches prepared ahead
  bool operator==(const DataConfig&) const = default;
};

}  // namespace trainctl
