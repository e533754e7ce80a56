#include "engine/run_dir.h"

#include <fcntl.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>

#include "base/error.h"

namespace trainctl {

namespace {

constexpr std::array own_files{"config.yaml", "plan.json", "metrics.jsonl", "model.safetensors",
                               "config.json"};

std::string reason() { return std::strerror(errno); }

void write_all(int file, const std::string& text, const std::filesystem::path& path) {
  std::size_t done = 0;
  while (done < text.size()) {
    const ssize_t wrote = ::write(file, text.data() + done, text.size() - done);
    if (wrote < 0 && errno == EINTR) continue;
    require(wrote > 0, ExitCode::io, "cannot write " + path.string() + ": " + reason());
    done += static_cast<std::size_t>(wrote);
  }
}

}  // namespace

void write_whole_file(const std::filesystem::path& path, const std::string& text) {
  const std::filesystem::path part = path.string() + ".part";
  const int file = ::open(part.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
  require(file >= 0, ExitCode::io, "cannot write " + part.string() + ": " + reason());
  try {
    write_all(file, text, part);
    require(::fsync(file) == 0, ExitCode::io, "cannot write " + part.string() + ": " + reason());
  } catch (...) {
    ::close(file);
    ::unlink(part.c_str());
    throw;
  }
  ::close(file);
  require(::rename(part.c_str(), path.c_str()) == 0, ExitCode::io,
          "cannot rename " + part.string() + " to " + path.string() + ": " + reason());
}

void prepare_run_dir(const std::filesystem::path& directory, bool overwrite) {
  std::error_code failure;
  std::filesystem::create_directories(directory, failure);
  require(!failure, ExitCode::io,
          "cannot create the output folder " + directory.string() + ": " + failure.message());
  require(overwrite || !std::filesystem::exists(directory / "metrics.jsonl"), ExitCode::usage,
          "the output folder " + directory.string() +
              " holds an earlier run; set output.overwrite: true or choose another output.dir");
  for (const char* name : own_files) std::filesystem::remove(directory / name, failure);
  for (const auto& entry : std::filesystem::directory_iterator(directory, failure)) {
    const std::string name = entry.path().filename().string();
    if (name.starts_with("rank-") && name.ends_with(".log")) {
      std::filesystem::remove(entry.path(), failure);
    }
  }
  write_whole_file(directory / "metrics.jsonl", "");
}

}  // namespace trainctl
