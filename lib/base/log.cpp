#include "base/log.h"

#include <spdlog/sinks/basic_file_sink.h>
#include <spdlog/sinks/stdout_color_sinks.h>
#include <spdlog/spdlog.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <map>
#include <memory>
#include <mutex>
#include <string>

#include "base/error.h"

namespace trainctl {

namespace {

std::atomic<int> threshold{static_cast<int>(LogLevel::info)};
thread_local int rank_of_thread = 0;
thread_local int world_of_thread = 1;
thread_local std::shared_ptr<spdlog::logger> file_of_thread;

struct RankFiles {
  std::mutex mutex;
  std::map<int, std::shared_ptr<spdlog::logger>> by_rank;
};
RankFiles& rank_files() {
  static RankFiles files;
  return files;
}

/// https://no-color.org: any value but the empty one disables colour.
spdlog::color_mode color_mode() {
  const char* choice = std::getenv("NO_COLOR");
  const bool plain = choice != nullptr && *choice != 0;
  return plain ? spdlog::color_mode::never : spdlog::color_mode::automatic;
}

/// spdlog would report a failed log file, for example on a full disk, with a line of its own on
/// stderr. Important messages are on stderr already.
void drop_failure(const std::string& /*message*/) {}

spdlog::logger& terminal() {
  static spdlog::logger logger = [] {
    spdlog::logger made("trainctl",
                        std::make_shared<spdlog::sinks::stderr_color_sink_mt>(color_mode()));
    made.set_pattern("%^%v%$");
    made.set_level(spdlog::level::trace);
    made.set_error_handler(drop_failure);
    return made;
  }();
  return logger;
}

spdlog::level::level_enum spdlog_level(LogLevel level) {
  switch (level) {
    case LogLevel::debug: return spdlog::level::debug;
    case LogLevel::info: return spdlog::level::info;
    case LogLevel::warning: return spdlog::level::warn;
    case LogLevel::error: return spdlog::level::err;
  }
  return spdlog::level::off;
}

std::string_view prefix_of(LogLevel level) {
  if (level == LogLevel::warning) return "warning: ";
  if (level == LogLevel::error) return "error: ";
  return "";
}

bool is_command(std::string_view rest) { return rest.starts_with("::") || rest.starts_with("##"); }

}  // namespace

std::size_t steering_bytes(std::string_view text, std::size_t at) {
  const auto code = [&](std::size_t i) -> unsigned {
    return i < text.size() ? static_cast<unsigned char>(text[i]) : 0;
  };
  const unsigned first = code(at);
  if (first < 0x20) return first == '\n' || first == '\t' ? 0 : 1;
  if (first == 0x7f) return 1;
  // UTF-8 of U+0080 to U+009F; U+200E, U+200F, U+202A to U+202E, U+2066 to U+2069; U+061C.
  if (first == 0xc2 && code(at + 1) >= 0x80 && code(at + 1) <= 0x9f) return 2;
  if (first == 0xd8 && code(at + 1) == 0x9c) return 2;
  if (first != 0xe2) return 0;
  const unsigned last = code(at + 2);
  const bool marks = code(at + 1) == 0x80 && (last == 0x8e || last == 0x8f);
  const bool turns = code(at + 1) == 0x80 && last >= 0xaa && last <= 0xae;
  const bool parts = code(at + 1) == 0x81 && last >= 0xa6 && last <= 0xa9;
  return marks || turns || parts ? 3 : 0;
}

std::string escaped_byte(char byte) {
  constexpr const char* digits = "0123456789abcdef";
  const auto code = static_cast<unsigned char>(byte);
  return {'\\', 'x', digits[code / 16], digits[code % 16]};
}

std::string printable_lines(std::string_view message) {
  std::string text;
  text.reserve(message.size());
  bool begins = true;  // only spaces in this line so far
  for (std::size_t at = 0; at < message.size();) {
    std::size_t steering = steering_bytes(message, at);
    if (begins && is_command(message.substr(at))) steering = 1;
    const std::size_t end = at + std::max<std::size_t>(1, steering);
    for (; at < end; ++at) {
      if (steering > 0) {
        text += escaped_byte(message[at]);
      } else {
        text += message[at];
        begins = message[at] == '\n' || (begins && (message[at] == ' ' || message[at] == '\t'));
      }
    }
    if (steering > 0) begins = false;
  }
  return text;
}

void set_log_rank(int rank, int world_size) {
  rank_of_thread = rank;
  world_of_thread = world_size;
  RankFiles& files = rank_files();
  const std::lock_guard lock(files.mutex);
  const auto found = files.by_rank.find(rank);
  if (found != files.by_rank.end()) file_of_thread = found->second;
}

void set_log_level(LogLevel level) { threshold = static_cast<int>(level); }

void open_log_file(const std::filesystem::path& directory, int rank, bool appends) {
  const auto path = directory / ("rank-" + std::to_string(rank) + ".log");
  try {
    auto sink = std::make_shared<spdlog::sinks::basic_file_sink_mt>(path.string(), !appends);
    file_of_thread = std::make_shared<spdlog::logger>(path.string(), std::move(sink));
    file_of_thread->set_pattern("%Y-%m-%d %H:%M:%S.%e %l %v");
    file_of_thread->set_level(spdlog::level::trace);
    file_of_thread->set_error_handler(drop_failure);
    file_of_thread->flush_on(spdlog::level::info);
    RankFiles& files = rank_files();
    const std::lock_guard lock(files.mutex);
    files.by_rank[rank] = file_of_thread;
  } catch (const spdlog::spdlog_ex& failure) {
    throw Error(ExitCode::io, "cannot write the log file " + path.string() + ": " + failure.what());
  }
}

void log(LogLevel level, std::string_view message) {
  if (static_cast<int>(level) < threshold.load(std::memory_order_relaxed)) return;
  const std::string clean = printable_lines(message);
  const std::string rank = world_of_thread > 1 && level >= LogLevel::warning
                               ? "[rank " + std::to_string(rank_of_thread) + "] "
                               : "";
  const std::string text = rank + std::string(prefix_of(level)) + clean;
  if (rank_of_thread == 0 || level >= LogLevel::warning) terminal().log(spdlog_level(level), text);
  if (file_of_thread) file_of_thread->log(spdlog_level(level), clean);
}

void log_to_file(LogLevel level, std::string_view message) {
  if (static_cast<int>(level) < threshold.load(std::memory_order_relaxed)) return;
  if (file_of_thread) file_of_thread->log(spdlog_level(level), printable_lines(message));
}

namespace {
void (*told)(int code) = nullptr;
}

void tell_sudden_end_to(void (*tell)(int code)) { told = tell; }

void end_suddenly(ExitCode code) {
  if (told != nullptr) told(static_cast<int>(code));
  ::_exit(static_cast<int>(code));
}

}  // namespace trainctl
