// The words of a job's ranks for `trainctl launch`: how each rank began and ended. A word is one
// line on standard output, byte 0x1e and a JSON object, which `launch` removes from the output:
//   {"is":"failed","rank":3,"host":"n2","process":811,"code":74}
//   {"is":"finished","rank":0,"host":"n1","process":507,"code":0,"step":2000}
// So `launch` needs no folder that hosts share, and does not depend on the exit codes of mpirun.
#pragma once

#include <cstdint>

namespace trainctl {

enum class RankWord {
  start,     // sent by every rank before it starts MPI
  failed,    // sent by any rank
  finished,  // sent by rank 0, as the words below, when all files are written
  stopped,   // --stop-after
  saved,     // after a signal
  checked,   // --dry-run
};

inline constexpr char rank_word_mark = '\x1e';

/// Whether `trainctl launch` has started this process: TRAINCTL_LAUNCH is set, to an id of the job.
bool is_under_launch();

/// Writes the word in one piece if this rank runs under `launch` and is one that sends this word.
/// Returns `code`. After the first call, a signal handler may call it, too.
int tell_launch(RankWord word, int code = 0, std::int64_t step = 0) noexcept;

}  // namespace trainctl
