// Files for tests of data/: a folder that goes with the test, and the bytes of token files.
#pragma once

#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/file.h"

namespace trainctl::testing {

/// In memory where that is possible: builds wait for the disk.
inline std::filesystem::path scratch_parent() {
  const std::filesystem::path shared = "/dev/shm";
  return ::access(shared.c_str(), W_OK) == 0 ? shared : std::filesystem::temp_directory_path();
}

class ScratchFolder : public TemporaryFolder {
 public:
  ScratchFolder() : TemporaryFolder(scratch_parent() / "trainctl-test") {}

  std::filesystem::path operator/(const std::string& name) const { return path() / name; }

  std::filesystem::path write(const std::string& name, const std::string& bytes) const {
    const auto file = path() / name;
    std::filesystem::create_directories(file.parent_path());
    std::ofstream(file, std::ios::binary) << bytes;
    return file;
  }
  /// Names in the folder, sorted.
  std::vector<std::string> names() const {
    std::vector<std::string> found;
    for (const auto& entry : std::filesystem::directory_iterator(path())) {
      found.push_back(entry.path().filename().string());
    }
    std::sort(found.begin(), found.end());
    return found;
  }
};

inline std::string bytes_of(const std::filesystem::path& file) {
  std::ifstream in(file, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

/// The bytes of values, back to back.
template <class T>
std::string packed(const std::vector<T>& values) {
  std::string bytes(values.size() * sizeof(T), '\0');
  if (!values.empty()) std::memcpy(bytes.data(), values.data(), bytes.size());
  return bytes;
}

/// A Megatron index of one-sequence documents with these lengths.
inline std::string megatron_index(std::uint8_t code, std::int64_t width,
                                  const std::vector<std::int32_t>& lengths) {
  std::vector<std::int64_t> pointers;
  std::vector<std::int64_t> documents{0};
  std::int64_t next = 0;
  for (std::int32_t length : lengths) {
    pointers.push_back(next);
    next += length * width;
    documents.push_back(documents.back() + 1);
  }
  return std::string("MMIDIDX\0\0", 9) + packed<std::uint64_t>({1}) + packed<std::uint8_t>({code}) +
         packed<std::uint64_t>({lengths.size(), documents.size()}) + packed(lengths) +
         packed(pointers) + packed(documents);
}

/// An llm.c header: magic, version, count and zeros.
inline std::string llmc_header(std::int32_t magic, std::int32_t version, std::int32_t count) {
  std::vector<std::int32_t> header(256, 0);
  header[0] = magic;
  header[1] = version;
  header[2] = count;
  return packed(header);
}

/// The message of the Error that `call` throws, after its exit code: "65 file: ..."; "" without
/// one.
template <class Call>
std::string error_of(Call call) {
  try {
    call();
  } catch (const Error& error) {
    return std::to_string(static_cast<int>(error.code())) + " " + error.what();
  }
  return "";
}

/// "" when `message` holds each of `parts`; else what it lacks.
inline std::string missing_in(const std::string& message, const std::vector<std::string>& parts) {
  for (const std::string& part : parts) {
    if (message.find(part) == std::string::npos) return "no \"" + part + "\" in: " + message;
  }
  return "";
}

}  // namespace trainctl::testing
