#include "base/log.h"

#include <spdlog/sinks/basic_file_sink.h>
#include <spdlog/sinks/stdout_color_sinks.h>
#include <spdlog/spdlog.h>

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

/// https://no-color.org: any value but the empty one means no colour.
spdlog::color_mode color_mode() {
  const char* choice = std::getenv("NO_COLOR");
  const bool plain = choice != nullptr && *choice != 0;
  return plain ? spdlog::color_mode::never : spdlog::color_mode::automatic;
}

spdlog::logger& terminal() {
  static spdlog::logger logger = [] {
    spdlog::logger made("trainctl",
                        std::make_shared<spdlog::sinks::stderr_color_sink_mt>(color_mode()));
    made.set_pattern("%^%v%$");
    made.set_level(spdlog::level::trace);
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

/// Names from files may hold bytes that would steer a terminal.
std::string printable(std::string_view message) {
  std::string text;
  text.reserve(message.size());
  for (const char letter : message) {
    const auto code = static_cast<unsigned char>(letter);
    if ((code >= 0x20 || letter == '\n' || letter == '\t') && code != 0x7f) {
      text += letter;
    } else {
      constexpr const char* digits = "0123456789abcdef";
      text += {'\\', 'x', digits[code / 16], digits[code % 16]};
    }
  }
  return text;
}

}  // namespace

void set_log_rank(int rank, int world_size) {
  rank_of_thread = rank;
  world_of_thread = world_size;
  RankFiles& files = rank_files();
  const std::lock_guard lock(files.mutex);
  const auto found = files.by_rank.find(rank);
  if (found != files.by_rank.end()) file_of_thread = found->second;
}

void set_log_level(LogLevel level) { threshold = static_cast<int>(level); }

void open_log_file(const std::filesystem::path& directory, int rank, LogFile mode) {
  const auto path = directory / ("rank-" + std::to_string(rank) + ".log");
  try {
    auto sink = std::make_shared<spdlog::sinks::basic_file_sink_mt>(path.string(),
                                                                    mode == LogFile::replace);
    file_of_thread = std::make_shared<spdlog::logger>(path.string(), std::move(sink));
    file_of_thread->set_pattern("%Y-%m-%d %H:%M:%S.%e %l %v");
    file_of_thread->set_level(spdlog::level::trace);
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
  const std::string clean = printable(message);
  const std::string rank = world_of_thread > 1 && level >= LogLevel::warning
                               ? "[rank " + std::to_string(rank_of_thread) + "] "
                               : "";
  const std::string text = rank + std::string(prefix_of(level)) + clean;
  if (rank_of_thread == 0 || level >= LogLevel::warning) terminal().log(spdlog_level(level), text);
  if (file_of_thread) file_of_thread->log(spdlog_level(level), clean);
}

void log_to_file(LogLevel level, std::string_view message) {
  if (static_cast<int>(level) < threshold.load(std::memory_order_relaxed)) return;
  if (file_of_thread) file_of_thread->log(spdlog_level(level), printable(message));
}

}  // namespace trainctl
