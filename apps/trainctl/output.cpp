#include "output.h"

#include <poll.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <iostream>

#include "base/error.h"
#include "base/log.h"
#include "base/whole_file.h"
#include "comm/world.h"

namespace trainctl {

namespace {

bool is_silent = false;

[[noreturn]] void output_failed(int reason) {
  if (reason == EPIPE) throw OutputClosed{};
  throw Error(ExitCode::io,
              "cannot write to standard output: " + std::string(std::strerror(reason)));
}

std::string without_steering(std::string_view text) {
  std::string shown;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t steering = steering_bytes(text, at);
    if (steering == 0) shown += text[at++];
    for (const std::size_t end = at + steering; at < end; ++at) shown += escaped_byte(text[at]);
  }
  return shown;
}

/// Hands texts on to std::cout, each whole.
class TerminalBuffer : public std::streambuf {
 protected:
  std::streamsize xsputn(const char* text, std::streamsize size) override {
    std::cout << without_steering({text, static_cast<std::size_t>(size)});
    return std::cout ? size : 0;
  }
  int_type overflow(int_type letter) override {
    const char one = traits_type::to_char_type(letter);
    return xsputn(&one, 1) == 1 ? letter : traits_type::eof();
  }
  int sync() override { return std::cout.flush() ? 0 : -1; }
};

bool colors_are_wanted() {
  const char* no_color = std::getenv("NO_COLOR");
  const char* terminal = std::getenv("TERM");
  return (no_color == nullptr || *no_color == '\0') && terminal != nullptr &&
         std::strcmp(terminal, "dumb") != 0;
}

}  // namespace

void be_silent() { is_silent = true; }

void print(std::string_view text) {
  if (is_silent) return;
  while (!text.empty()) {
    const ssize_t written = write(STDOUT_FILENO, text.data(), text.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) output_failed(errno);
    text.remove_prefix(static_cast<std::size_t>(written));
  }
}

void print_foreign(std::string_view text) {
  print(stdout_is_terminal() ? without_steering(text) : std::string(text));
}

std::ostream& foreign_output() {
  static TerminalBuffer buffer;
  static std::ostream terminal(&buffer);
  return stdout_is_terminal() ? terminal : std::cout;
}

std::string with_newline(std::string text) {
  while (text.ends_with('\n')) text.pop_back();
  return text + "\n";
}

void deliver(const std::string& text, const std::string& file) {
  if (file.empty()) return print(with_newline(text));
  write_whole_file(file, with_newline(text));
}

void print_message(std::string_view text) {
  if (text.empty() || is_silent) return;
  std::fwrite(text.data(), 1, text.size(), stderr);
  if (!text.ends_with('\n')) std::fputc('\n', stderr);
}

void finish_output() {
  errno = 0;
  std::cout.flush();
  if (std::cout) return;
  // An earlier write failed, and its reason is lost; that of a closed pipe can be asked for.
  pollfd end{STDOUT_FILENO, POLLOUT, 0};
  const bool closed = poll(&end, 1, 0) > 0 && (end.revents & POLLERR) != 0;
  output_failed(closed ? EPIPE : errno != 0 ? errno : EIO);
}

bool stderr_is_terminal() { return isatty(STDERR_FILENO) == 1; }

bool stdin_is_terminal() { return isatty(STDIN_FILENO) == 1; }

bool stdout_is_terminal() {
  // mpirun gives each rank a terminal of its own and passes on what comes there, to wherever.
  return isatty(STDOUT_FILENO) == 1 && launched_as().size <= 1;
}

bool color_on_stderr() { return stderr_is_terminal() && colors_are_wanted(); }

bool color_on_stdout() { return stdout_is_terminal() && colors_are_wanted(); }

}  // namespace trainctl
