// The model directories that transformers wrote (tests/reference/make_hugging_face.py).
#pragma once

#include <filesystem>
#include <string>

namespace trainctl::testing {

inline std::filesystem::path reference_model(const std::string& name) {
  return std::filesystem::path(TRAINCTL_SOURCE_DIR) / "tests/reference/hugging_face" / name;
}

}  // namespace trainctl::testing
