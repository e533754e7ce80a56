// Messages for people, on stderr and, once a run directory exists, in one file per rank. Data never
// goes here.
#pragma once

#include <filesystem>
#include <string_view>

namespace trainctl {

enum class LogLevel { debug, info, warning, error };

/// Who speaks: set once per rank thread, shown as "[rank 3]" when the world has more than one rank.
/// A thread that speaks for a rank writes to the rank's file too, if it is open by then.
void set_log_rank(int rank, int world_size);
/// Messages below `level` are dropped.
void set_log_level(LogLevel level);
enum class LogFile { replace, append };
/// Adds DIR/rank-N.log as a second destination for this rank's messages. Throws Error{io}.
void open_log_file(const std::filesystem::path& directory, int rank,
                   LogFile mode = LogFile::replace);
/// Info messages of ranks other than 0 go to their file only; warnings and errors go to stderr from
/// any rank. Control characters except newlines and tabs are shown as "\x1b".
void log(LogLevel level, std::string_view message);
/// The same, but only to this rank's file: for what others say on stderr.
void log_to_file(LogLevel level, std::string_view message);

inline void log_debug(std::string_view message) { log(LogLevel::debug, message); }
inline void log_info(std::string_view message) { log(LogLevel::info, message); }
inline void log_warning(std::string_view message) { log(LogLevel::warning, message); }
inline void log_error(std::string_view message) { log(LogLevel::error, message); }

}  // namespace trainctl
