// trainctl watch: a running job, from its files alone.
#include <sys/ioctl.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <ctime>
#include <filesystem>

#include "base/error.h"
#include "base/text.h"
#include "commands.h"
#include "output.h"
#include "run/directory/signals.h"
#include "run/records/step_records.h"
#include "run/views/watch_text.h"

namespace trainctl {

namespace {

constexpr const char* watch_name = "trainctl watch";
constexpr const char* watch_examples =
    "  trainctl watch runs/gpt\n"
    "  trainctl watch runs/gpt --once\n"
    "  trainctl watch runs/gpt --every 30 > progress.txt\n";

volatile std::sig_atomic_t asked_to_end = 0;
void on_signal(int /*number*/) { asked_to_end = 1; }

/// Signals set asked_to_end and interrupt a sleep at once.
void catch_signals() {
  for (const int number : {SIGINT, SIGTERM, SIGHUP}) handle_unless_ignored(number, on_signal);
}

void sleep_for(double seconds) {
  timespec rest{};
  rest.tv_sec = static_cast<std::time_t>(seconds);
  rest.tv_nsec = static_cast<long>((seconds - static_cast<double>(rest.tv_sec)) * 1e9);
  while (asked_to_end == 0 && nanosleep(&rest, &rest) != 0 && errno == EINTR) {
  }
}

bool terminal_has_utf8() {
  for (const char* variable : {"LC_ALL", "LC_CTYPE", "LANG"}) {
    const char* value = std::getenv(variable);
    if (value == nullptr || *value == '\0') continue;
    const std::string text = value;
    return text.find("UTF-8") != std::string::npos || text.find("utf8") != std::string::npos;
  }
  return false;
}

WatchSpace space_of_terminal() {
  WatchSpace space{.utf8 = terminal_has_utf8(), .color = color_on_stdout()};
  winsize size{};
  if (::ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0 && size.ws_row > 0) {
    space.width = size.ws_col - 1;
    space.height = size.ws_row - 1;
  }
  return space;
}

std::string joined(const std::vector<std::string>& lines, const char* ending) {
  std::string text;
  for (const std::string& line : lines) text += line + ending;
  return text;
}

/// Draws over its last drawing. The cursor is hidden while the object lives.
class Screen {
 public:
  Screen() { print("\x1b[?25l"); }
  ~Screen() {
    constexpr std::string_view cursor = "\x1b[?25h";
    [[maybe_unused]] const ssize_t shown = ::write(STDOUT_FILENO, cursor.data(), cursor.size());
  }
  Screen(const Screen&) = delete;
  Screen& operator=(const Screen&) = delete;

  void show(std::vector<std::string> lines, int height) {
    if (std::ssize(lines) > height) lines.resize(static_cast<std::size_t>(std::max(1, height)));
    std::string text = height_ > 0 ? formatted("\x1b[{}A\r", height_) : "";
    text += joined(lines, "\x1b[K\n") + "\x1b[J";
    print(text);
    height_ = static_cast<int>(lines.size());
  }

 private:
  int height_ = 0;  // lines of the last drawing
};

/// Lines of the view, or that there is nothing to see yet.
std::vector<std::string> view_of(const RunReader& reader, bool found, const WatchSpace& space) {
  if (found) return watch_lines(reader.files(), space, seconds_since_1970());
  return {"waiting for " + (reader.files().directory / "metrics.jsonl").string()};
}

void show_once(RunReader& reader) {
  const std::filesystem::path directory = reader.files().directory;
  const bool found = reader.refresh();
  std::error_code failure;
  require(found || std::filesystem::is_directory(directory, failure), ExitCode::missing_input,
          directory.string() + " is not a directory");
  print(joined(view_of(reader, found, space_of_terminal()), "\n"));
}

void watch_on_terminal(RunReader& reader, double every) {
  Screen screen;
  while (asked_to_end == 0) {
    const bool found = reader.refresh();
    const WatchSpace space = space_of_terminal();
    screen.show(view_of(reader, found, space), space.height);
    if (found && state_of(reader.files(), seconds_since_1970()).over()) return;
    sleep_for(every);
  }
}

/// Prints one line whenever there is a new step or another state.
void watch_in_lines(RunReader& reader, double every) {
  std::string before;
  while (asked_to_end == 0) {
    const bool found = reader.refresh();
    const double now = seconds_since_1970();
    const RunState state = state_of(reader.files(), now);
    const std::string key = found ? std::to_string(reader.files().last_step()) +
                                        std::to_string(static_cast<int>(state.kind))
                                  : "waiting";
    if (key != before) {
      print((found ? watch_line(reader.files(), now) : view_of(reader, found, {}).front()) + "\n");
    }
    before = key;
    if (found && state.over()) return;
    sleep_for(every);
  }
}

}  // namespace

int run_watch(const Arguments& arguments) {
  CommandLine line("Shows a run while it trains, from its files: on any machine that sees them.",
                   watch_name);
  std::string directory;
  double every = 2;
  bool once = false;
  line.add_text("run", directory, "Directory of the run; it may not exist yet", "RUN");
  line.add_number("--every", every, "Seconds between two looks at the files; default 2", 0.1);
  line.add_flag("--once", once, "Show it once and end");
  if (!line.parse(arguments, watch_examples)) return 0;
  if (directory.empty()) refuse(watch_name, "name the run's directory");
  if (every > 86400) refuse(watch_name, "--every must be at most 86400");
  RunReader reader(directory);
  if (once) {
    show_once(reader);
    return 0;
  }
  catch_signals();
  if (stdout_is_terminal()) {
    watch_on_terminal(reader, every);
  } else {
    watch_in_lines(reader, every);
  }
  return 0;
}

}  // namespace trainctl
