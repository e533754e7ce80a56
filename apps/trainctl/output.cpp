#include "output.h"

#include <fcntl.h>
#include <poll.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <iostream>

#include "base/error.h"
#include "base/file.h"
#include "base/log.h"
#include "base/text.h"
#include "base/units.h"
#include "comm/world.h"
#include "config/report/diagnostics.h"
#include "formats/print/text.h"

namespace trainctl {

namespace {

bool is_silent = false;

[[noreturn]] void output_failed(int reason) {
  if (reason == EPIPE) throw OutputClosed{};
  throw Error(ExitCode::io,
              formatted("cannot write to standard output: {}", std::strerror(reason)));
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

/// Passes texts to std::cout, each whole and without bytes that steer a terminal.
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
  // The reason of an earlier failed write is lost; only a closed pipe can still be recognised.
  pollfd end{STDOUT_FILENO, POLLOUT, 0};
  const bool closed = poll(&end, 1, 0) > 0 && (end.revents & POLLERR) != 0;
  output_failed(closed ? EPIPE : errno != 0 ? errno : EIO);
}

bool stderr_is_terminal() { return isatty(STDERR_FILENO) == 1; }

bool stdin_is_terminal() { return isatty(STDIN_FILENO) == 1; }

bool stdout_is_terminal() {
  // mpirun gives each rank a terminal of its own and passes the output on, to any destination.
  return isatty(STDOUT_FILENO) == 1 && launched_as().size <= 1;
}

bool color_on_stderr() { return stderr_is_terminal() && colors_are_wanted(); }

bool color_on_stdout() { return stdout_is_terminal() && colors_are_wanted(); }

int print_unreadable(const std::string& file, const Error& failure) {
  if (failure.code() != ExitCode::missing_input) throw failure;
  Diagnostics diagnostics;
  diagnostics.add({.severity = Severity::error,
                   .code = "unreadable",
                   .path = "",
                   .message = failure.what(),
                   .help = "",
                   .place = {.origin = Place::Origin::file, .file = file}});
  print(with_newline(render_json(diagnostics)));
  return static_cast<int>(failure.code());
}

ProgressBar::ProgressBar(std::string what)
    : what_(std::move(what)),
      live_(stderr_is_terminal()),
      start_(Clock::now()),
      shown_(Clock::now()) {}

ProgressBar::~ProgressBar() {
  if (drawn_) std::fputs("\n", stderr);
}

std::string ProgressBar::line(std::int64_t done, std::int64_t total, double seconds) const {
  constexpr int width = 30;
  const double share =
      total > 0 ? std::min(1.0, static_cast<double>(done) / static_cast<double>(total)) : 1.0;
  const double rate = seconds > 0 ? static_cast<double>(done) / seconds : 0.0;
  std::string text = what_ + " ";
  if (live_) {
    const int filled = static_cast<int>(share * width);
    text += formatted("[{}{}] ", std::string(static_cast<std::size_t>(filled), '#'),
                      std::string(static_cast<std::size_t>(width - filled), '.'));
  }
  text += formatted("{} %, {} of {}, {}/s", static_cast<int>(share * 100), format_bytes(done),
                    format_bytes(total), format_bytes(static_cast<std::int64_t>(rate)));
  if (share < 1 && rate > 0) {
    text += ", " + format_seconds(static_cast<double>(total - done) / rate) + " left";
  }
  return text;
}

void ProgressBar::update(std::int64_t done, std::int64_t total) {
  const std::scoped_lock lock(mutex_);
  const Clock::time_point now = Clock::now();
  const auto pause = live_ ? std::chrono::milliseconds(100) : std::chrono::seconds(5);
  const bool last_live = live_ && done >= total;
  if (now - shown_ < pause && !last_live) return;
  shown_ = now;
  const std::string text = line(done, total, std::chrono::duration<double>(now - start_).count());
  if (live_) {
    std::fprintf(stderr, "\r\x1b[K%s", text.c_str());
    drawn_ = true;
  } else {
    log_info(text);
  }
}

namespace {

std::vector<char*> argument_vector(const std::string& program, const Arguments& words) {
  std::vector<char*> pointers = {const_cast<char*>(program.c_str())};
  for (const std::string& word : words) pointers.push_back(const_cast<char*>(word.c_str()));
  pointers.push_back(nullptr);
  return pointers;
}

std::string read_all(int file) {
  constexpr std::size_t most = 1 << 16;
  std::string text;
  std::array<char, 4096> block;
  while (text.size() < most) {
    const ssize_t count = read(file, block.data(), block.size());
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) break;
    text.append(block.data(), static_cast<std::size_t>(count));
  }
  return text;
}

}  // namespace

std::string execute(const std::string& program, const Arguments& words) {
  std::vector<char*> arguments = argument_vector(program, words);
  std::signal(SIGPIPE, SIG_DFL);  // an ignored signal would stay ignored in the new program
  execvp(program.c_str(), arguments.data());
  const int reason = errno;
  std::signal(SIGPIPE, SIG_IGN);
  return std::strerror(reason);
}

std::string output_of(const std::string& program, const Arguments& words) {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) return "";
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, ends[1], STDOUT_FILENO);
  posix_spawn_file_actions_adddup2(&actions, ends[1], STDERR_FILENO);
  std::vector<char*> arguments = argument_vector(program, words);
  pid_t child = 0;
  const int failed =
      posix_spawnp(&child, program.c_str(), &actions, nullptr, arguments.data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  close(ends[1]);
  const std::string text = failed == 0 ? read_all(ends[0]) : "";
  close(ends[0]);
  if (failed == 0) waitpid(child, nullptr, 0);
  return text;
}

std::string shell_line(const Arguments& words) { return joined(words, " ", shell_word); }

std::string own_path() { return std::filesystem::read_symlink("/proc/self/exe").string(); }

}  // namespace trainctl
