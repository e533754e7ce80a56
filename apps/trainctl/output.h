// Standard output for data, the progress of long jobs, the abilities of the terminal, and calls of
// other programs.
#pragma once

#include <chrono>
#include <cstdint>
#include <iosfwd>
#include <mutex>
#include <string>
#include <string_view>

#include "arguments.h"
#include "base/error.h"

namespace trainctl {

/// The reader of standard output has closed it (`trainctl plan ... | head`): end without a message.
struct OutputClosed {};

/// From now on print and print_message drop their texts, so that one process of mpirun prints.
void be_silent();

/// Writes data to standard output at once. Throws Error{io} when it cannot be written, OutputClosed
/// when its reader is gone.
void print(std::string_view text);
/// Prints a text that a model or another file wrote. On a terminal, which might obey them, the
/// bytes that steer it (steering_bytes) are shown as "\x1b". A file or a pipe gets every byte.
void print_foreign(std::string_view text);
/// A stream to std::cout for such texts, like print_foreign.
std::ostream& foreign_output();

/// The text, ending in exactly one newline.
std::string with_newline(std::string text);

/// Writes `text`, ending in one newline, to standard output, or to `file` if that is not empty.
void deliver(const std::string& text, const std::string& file);

/// Writes an already formatted message (diagnostics) to stderr.
void print_message(std::string_view text);

/// Flushes std::cout and throws as print() does; for commands that stream through std::cout.
void finish_output();

/// Like color_on_stderr() and stderr_is_terminal(), for standard output.
bool color_on_stdout();
bool stdout_is_terminal();

/// Whether messages on stderr may carry colours: a terminal, and neither NO_COLOR nor TERM=dumb.
bool color_on_stderr();

bool stderr_is_terminal();
bool stdin_is_terminal();

// The document that --format json prints if a configuration cannot be read.

/// Prints the failure document with one error, "unreadable", if `failure` is a missing or
/// unreadable file, and returns its exit code. Rethrows any other `failure`.
int print_unreadable(const std::string& file, const Error& failure);

// The progress of a long job, on stderr: one live line on a terminal, otherwise a plain line every
// few seconds.

class ProgressBar {
 public:
  explicit ProgressBar(std::string what);
  ~ProgressBar();  // ends the live line
  ProgressBar(const ProgressBar&) = delete;
  ProgressBar& operator=(const ProgressBar&) = delete;

  /// Reports bytes done of `total`; cheap enough to call often, from any thread.
  void update(std::int64_t done, std::int64_t total);

 private:
  using Clock = std::chrono::steady_clock;
  std::string line(std::int64_t done, std::int64_t total, double seconds) const;

  std::string what_;
  bool live_;
  bool drawn_ = false;
  Clock::time_point start_;
  Clock::time_point shown_;
  std::mutex mutex_;
};

// Other programs: running one for its output, and replacing this process by one.

/// Replaces this process by `program` (looked up in PATH unless it holds a slash); `words` follow
/// the program's name. Returns only if that failed, with the reason.
std::string execute(const std::string& program, const Arguments& words);

/// The output of `program words...` on both streams, at most 64 KiB; "" if it cannot be started.
std::string output_of(const std::string& program, const Arguments& words);

/// The words as one line for a POSIX shell.
std::string shell_line(const Arguments& words);

/// The absolute path of this program.
std::string own_path();

}  // namespace trainctl
