// Messages for people, on stderr and, once a run directory exists, in one file per rank. Data never
// goes here. Also the last words of a process that must end at once.
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

/// Who speaks: set once per rank thread, shown as "[rank 3]" when the world has more than one rank.
/// A thread that speaks for a rank writes to the rank's file too, if it is open by then.
void set_log_rank(int rank, int world_size);
/// Messages below `level` are dropped.
void set_log_level(LogLevel level);
/// Adds DIR/rank-N.log as a second destination for this rank's messages: behind what is in it, or
/// instead of that. Throws Error{io}.
void open_log_file(const std::filesystem::path& directory, int rank, bool appends = false);
/// How many bytes at a place steer a terminal: a control character other than a newline or tab, or
/// a character that turns the direction of writing. 0: none.
std::size_t steering_bytes(std::string_view text, std::size_t at);
/// "\x1b" for a byte.
std::string escaped_byte(char byte);
/// `message` with such bytes as "\x1b". Logs of builds take lines like "::error::" and "##[" for
/// commands: the first character of these is shown so as well.
std::string printable_lines(std::string_view message);

/// Info messages of ranks other than 0 go to their file only; warnings and errors go to stderr from
/// any rank. Shown as printable_lines().
void log(LogLevel level, std::string_view message);
/// Writes only to this rank's file: for messages that others say on stderr.
void log_to_file(LogLevel level, std::string_view message);

inline void log_debug(std::string_view message) { log(LogLevel::debug, message); }
inline void log_info(std::string_view message) { log(LogLevel::info, message); }
inline void log_warning(std::string_view message) { log(LogLevel::warning, message); }
inline void log_error(std::string_view message) { log(LogLevel::error, message); }

// The end of a process that cannot end in order: a thread of it waits for a disk that does not
// answer, or the run is not its own any more.

/// Whom end_suddenly tells first. It may be called in a signal handler, so it neither allocates nor
/// locks. Set it once, before there are threads.
void tell_sudden_end_to(void (*tell)(int code));
/// Ends the process at once: no destructor runs, and nothing that is buffered is written.
[[noreturn]] void end_suddenly(ExitCode code);

// One line of text for a signal handler: made and written without memory from the heap.

/// Text beyond its space is left out.
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
  /// In one piece; an error is nobody's to tell.
  void write_to(int file) const {
    [[maybe_unused]] const ssize_t told = ::write(file, bytes_.data(), size_);
  }

 private:
  std::array<char, 320> bytes_;
  std::size_t size_ = 0;
};

}  // namespace trainctl
