// Models from one form to another: Hugging Face's directories, runs, llm.c's file.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

#include "base/dtype.h"

namespace trainctl {

enum class ModelForm : std::uint8_t {
  hugging_face,  // a directory; to read, also that of a run
  llmc,          // a file
};

struct ConvertRequest {
  ModelForm from_form = ModelForm::hugging_face;
  std::filesystem::path from;
  ModelForm to_form = ModelForm::hugging_face;
  std::filesystem::path to;      // must not exist yet; a directory may be there and empty
  DType stored = DType::f32;     // or bf16
  std::int64_t shard_bytes = 0;  // of a Hugging Face directory; 0: one file
  bool averages = false;         // the average of weights that a run's checkpoint holds
};

/// Writes the model and says in one line what was written. Holds one tensor at a time. A tokenizer
/// in a directory goes along. Throws Error{usage | missing_input | bad_data | io | unavailable}.
std::string convert_model(const ConvertRequest& request);

}  // namespace trainctl
