// The words of a job's ranks for `trainctl launch`: how each began and ended. A word is one line on
// standard output, byte 0x1e and a JSON object, which `launch` takes out of what it passes on:
//   {"is":"failed","rank":3,"host":"n2","process":811,"code":74}
//   {"is":"finished","rank":0,"host":"n1","process":507,"code":0,"step":2000}
// So it needs no folder that hosts share, and does not depend on the codes of mpirun.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

namespace trainctl {

enum class RankWord {
  start,     // of every rank, before MPI
  failed,    // of any rank
  finished,  // the others are of rank 0, when all is written
  stopped,   // --stop-after
  saved,     // after a signal
  checked,   // --dry-run
};

inline constexpr std::array<std::string_view, 6> rank_word_texts = {"start",   "failed", "finished",
                                                                    "stopped", "saved",  "checked"};
inline constexpr char rank_word_mark = '\x1e';

/// Whether `trainctl launch` has started this process: TRAINCTL_LAUNCH is set, to an id of the job.
bool is_under_launch();

/// Writes the word in one piece if this is a rank under `launch`, and one that says such words.
/// Returns `code`. From the first call on, a signal handler may call it, too.
int tell_launch(RankWord word, int code = 0, std::int64_t step = 0) noexcept;

}  // namespace trainctl
