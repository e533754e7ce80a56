// Messages for people, on stderr and, once a run directory exists, in one file per rank. Data are
// never written here. Also the last message of a process that must end at once.
#pragma once

#include <unistd.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>

#include "base/error.h"

namespace trainctl {

enum class LogLevel { debug, info, warning, error };

/// Sets the rank for which this thread logs, shown as "[rank 3]" if the world has several ranks.
/// Call it once per thread; messages also go to the rank's file if it is open by then.
void set_log_rank(int rank, int world_size);
/// Messages below `level` are dropped.
void set_log_level(LogLevel level);
/// Adds DIR/rank-N.log as a second destination for this rank's messages: behind what is in it, or
/// instead of that. Throws Error{io}.
void open_log_file(const std::filesystem::path& directory, int rank, bool appends = false);
/// The number of bytes at `at` that control a terminal: a control character other than newline or
/// tab, or a character that changes the writing direction. 0 if there are none.
std::size_t steering_bytes(std::string_view text, std::size_t at);
/// A byte as text, such as "\x1b".
std::string escaped_byte(char byte);
/// `message` with such bytes replaced by text like "\x1b". Build logs interpret lines such as
/// "::error::" and "##[" as commands, so their first character is replaced as well.
std::string printable_lines(std::string_view message);

/// Info messages of ranks other than 0 go only to their file; warnings and errors of all ranks go
/// to stderr. Messages are shown as printable_lines().
void log(LogLevel level, std::string_view message);
/// Writes only to this rank's file, for messages that other ranks write to stderr.
void log_to_file(LogLevel level, std::string_view message);

inline void log_debug(std::string_view message) { log(LogLevel::debug, message); }
inline void log_info(std::string_view message) { log(LogLevel::info, message); }
inline void log_warning(std::string_view message) { log(LogLevel::warning, message); }
inline void log_error(std::string_view message) { log(LogLevel::error, message); }

// Ends a process that cannot end in order: one of its threads waits for a disk that does not
// answer, or another process has taken over the run.

/// Sets the function that end_suddenly calls first. It may be called in a signal handler, so it
/// must neither allocate nor lock. Set it once, before threads are started.
void tell_sudden_end_to(void (*tell)(int code));
/// Ends the process at once: runs no destructors and writes no buffers.
[[noreturn]] void end_suddenly(ExitCode code);

// A line of text for a signal handler, built and written without heap memory.

/// Drops text beyond the size of its buffer.
class SignalLine {
 public:
  SignalLine& operator<<(std::string_view text) {
    const std::size_t count = std::min(text.size(), bytes_.size() - size_);
    std::copy_n(text.data(), count, bytes_.data() + size_);
    size_ += count;
    return *this;
  }
  SignalLine& operator<<(std::int64_t number) {
    std::array<char, 24> digits{};
    const auto end = std::to_chars(digits.data(), digits.data() + digits.size(), number).ptr;
    return *this << std::string_view(digits.data(), static_cast<std::size_t>(end - digits.data()));
  }
  /// Writes the line with one call; errors are ignored, since they cannot be reported.
  void write_to(int file) const {
    [[maybe_unused]] const ssize_t told = ::write(file, bytes_.data(), size_);
  }

 private:
  std::array<char, 320> bytes_;
  std::size_t size_ = 0;
};

}  // namespace trainctl
