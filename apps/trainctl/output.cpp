#include "output.h"

#include <poll.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <iostream>

#include "base/error.h"

namespace trainctl {

namespace {

[[noreturn]] void output_failed(int reason) {
  if (reason == EPIPE) throw OutputClosed{};
  throw Error(ExitCode::io,
              "cannot write to standard output: " + std::string(std::strerror(reason)));
}

bool colors_are_wanted() {
  const char* no_color = std::getenv("NO_COLOR");
  const char* terminal = std::getenv("TERM");
  return (no_color == nullptr || *no_color == '\0') && terminal != nullptr &&
         std::strcmp(terminal, "dumb") != 0;
}

}  // namespace

void print(std::string_view text) {
  while (!text.empty()) {
    const ssize_t written = write(STDOUT_FILENO, text.data(), text.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) output_failed(errno);
    text.remove_prefix(static_cast<std::size_t>(written));
  }
}

std::string with_newline(std::string text) {
  while (text.ends_with('\n')) text.pop_back();
  return text + "\n";
}

void print_message(std::string_view text) {
  if (text.empty()) return;
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

bool stdout_is_terminal() { return isatty(STDOUT_FILENO) == 1; }

bool color_on_stderr() { return stderr_is_terminal() && colors_are_wanted(); }

bool color_on_stdout() { return stdout_is_terminal() && colors_are_wanted(); }

}  // namespace trainctl
