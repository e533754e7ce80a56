// Messages for people, on stderr and, once a run directory exists, in one file per rank. Data never
// goes here.
#pragma once

#include <filesystem>
#include <string>
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

}  // namespace trainctl
