// The fuzz target and its replay in the unit tests use a blob as a safetensors file, as an index,
// as a config.json and as llm.c's model. Only an Error may come of it.
#pragma once

#include <cstdlib>
#include <string>
#include <string_view>

#include "../data/scratch_folder.h"
#include "config/read/read.h"
#include "config/upstream/hugging_face.h"
#include "weights/hugging_face.h"
#include "weights/llmc_model.h"
#include "weights/safetensors.h"

namespace trainctl::testing {

inline bool use_safetensors(const std::filesystem::path& path) {
  try {
    const SafetensorsFile file(path);
    std::int64_t bytes = 0;
    for (const auto& [name, entry] : file.entries()) {
      std::string held(static_cast<std::size_t>(entry.bytes), '\0');
      file.read(entry, 0, held);
      bytes += entry.bytes;
    }
    if (bytes > static_cast<std::int64_t>(std::filesystem::file_size(path))) std::abort();
    return true;
  } catch (const Error&) {
    return false;
  }
}

inline bool use_index(const ScratchFolder& folder) {
  try {
    return !open_model_files(folder / "sharded").empty();
  } catch (const Error&) {
    return false;
  }
}

/// As config.json, and if it can be read, as a model that a configuration starts from.
inline bool use_config(std::string_view text) {
  if (!read_hugging_face_config(text).problems.empty()) return false;
  const auto load = [&](const std::string&) { return Surroundings::Loaded{std::string(text), ""}; };
  const ReadResult read = read_config_text(
      "model: {from: a}\ndata: {train: b}\ntrain: {steps: 1, global_batch_size: 1}\n"
      "lr_schedule: {max_lr: 1}\n",
      "t.yaml", {}, {.load = load, .variable = {}});
  return !read.diagnostics.has_errors();
}

inline bool use_llmc(const std::filesystem::path& path) {
  try {
    const LlmcWeights file(path);
    float value = 0;
    file.read("final_norm.bias", {.row = 0, .rows = 1}, &value);
    return true;
  } catch (const Error&) {
    return false;
  }
}

/// The first byte chooses the reader; the rest is the file. Returns whether it was accepted.
inline bool use_blob(const ScratchFolder& folder, std::string_view blob) {
  if (blob.empty()) return false;
  const std::string content(blob.substr(1));
  switch (static_cast<unsigned char>(blob[0]) % 4) {
    case 0: return use_safetensors(folder.write("one.safetensors", content));
    case 1: folder.write("sharded/model.safetensors.index.json", content); return use_index(folder);
    case 2: return use_config(content);
    default: return use_llmc(folder.write("m.bin", content));
  }
}

}  // namespace trainctl::testing
