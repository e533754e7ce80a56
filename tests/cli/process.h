// Running the built program and keeping what it said; a folder that goes away with the test.
#pragma once

#include <sys/types.h>

#include <filesystem>
#include <string>
#include <vector>

#include "contains.h"

/// The exit codes of the program, repeated here because scripts of its users have these numbers.
namespace exits {
constexpr int usage = 2;
constexpr int bad_data = 65;
constexpr int missing_input = 66;
constexpr int diverged = 71;
constexpr int taken = 73;
constexpr int io = 74;
constexpr int requeue = 75;
constexpr int peer = 76;
constexpr int interrupted = 77;
constexpr int invalid = 78;
}  // namespace exits

struct Outcome {
  int exit_code = -1;  // 128 + signal when a signal ended it
  std::string out;
  std::string err;
};

class TempDir {
 public:
  TempDir();
  ~TempDir();
  TempDir(const TempDir&) = delete;
  TempDir& operator=(const TempDir&) = delete;
  const std::filesystem::path& path() const { return path_; }
  /// Writes a file in the folder and returns its full path.
  std::string write(const std::string& name, const std::string& text) const;
  std::string operator/(const std::string& name) const { return (path_ / name).string(); }

 private:
  std::filesystem::path path_;
};

/// The direct children of a process, oldest first.
std::vector<pid_t> children_of(pid_t process);

/// A program that runs at the same time as the test; `environment` entries ("NAME=value") replace
/// inherited ones. Killed when it goes out of scope unfinished.
class Process {
 public:
  Process(const std::string& program, const std::vector<std::string>& words,
          const std::vector<std::string>& environment = {});
  ~Process();
  Process(const Process&) = delete;
  Process& operator=(const Process&) = delete;

  pid_t pid() const { return pid_; }
  /// Its direct children, oldest first.
  std::vector<pid_t> children() const { return children_of(pid_); }
  Outcome wait();

 private:
  TempDir dir_;
  pid_t pid_ = 0;
};

/// Runs `program words...` to its end.
Outcome run_program(const std::string& program, const std::vector<std::string>& words,
                    const std::vector<std::string>& environment = {});

/// Runs the built trainctl.
Outcome trainctl(const std::vector<std::string>& words,
                 const std::vector<std::string>& environment = {});

std::string read_file(const std::filesystem::path& path);

/// A small complete configuration; extra lines may be appended.
std::string small_config();
