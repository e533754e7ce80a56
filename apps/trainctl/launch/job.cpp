#include "launch/job.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/types.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <functional>
#include <iterator>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "base/log.h"
#include "base/text.h"
#include "base/units.h"
#include "comm/rank_words.h"
#include "comm/this_host.h"
#include "comm/world.h"
#include "device/wait.h"
#include "output.h"
#include "run/directory/signals.h"

namespace trainctl {

// The words of the ranks of a job about themselves (comm/rank_words.h), and the exit code that
// follows from them.

namespace {

/// A rank that has begun.
struct RankPlace {
  std::string host;
  long process = 0;
};

constexpr std::size_t longest_word = 1024;  // a longer text is not a word

class RankRecords {
 public:
  /// Takes the next bytes of mpirun's standard output and returns the bytes outside of words.
  std::string take(std::string_view bytes) {
    std::string others;
    for (const char letter : bytes) {
      if (letter == rank_word_mark) {
        others += rest();
        in_word_ = true;
      } else if (!in_word_) {
        others += letter;
      } else if (letter == '\n') {
        note(open_);
        in_word_ = false;
        open_.clear();
      } else {
        open_ += letter;
        if (open_.size() > longest_word) others += rest();
      }
    }
    return others;
  }

  /// The remaining text: a last line without an end.
  std::string rest() {
    in_word_ = false;
    return std::exchange(open_, "");
  }

  const std::map<int, RankPlace>& begun() const { return begun_; }
  /// Whether some rank has reported how it ended.
  bool some_have_ended() const { return last_word_ || some_failed_; }
  /// The code in rank 0's last word, which it sends when all is written.
  std::optional<int> last_word() const { return last_word_; }
  /// The first code of a rank that failed, other than that it lost another rank.
  std::optional<int> first_failure() const { return first_failure_; }

 private:
  void note(std::string_view text) {
    const auto word = nlohmann::json::parse(text, nullptr, false);
    if (!word.is_object()) return;
    try {
      const auto is = word.at("is").get<std::string>();
      const int rank = word.at("rank").get<int>();
      if (is == "start") {
        begun_[rank] = {word.at("host").get<std::string>(), word.at("process").get<long>()};
        return;
      }
      const int code = word.at("code").get<int>();
      if (is == "failed") {
        some_failed_ = true;
        if (!first_failure_ && code != static_cast<int>(ExitCode::peer)) first_failure_ = code;
      } else if (rank == 0 && !last_word_) {
        last_word_ = code;
      }
    } catch (const nlohmann::json::exception&) {
      // A line of another program that begins like a word is ignored.
    }
  }

  std::string open_;  // the beginning of a word
  bool in_word_ = false;
  std::map<int, RankPlace> begun_;
  std::optional<int> last_word_;
  std::optional<int> first_failure_;
  bool some_failed_ = false;
};

/// The most telling line of mpirun's messages: the line before its first box of text, else the
/// first line in the box; "" if there is none.
std::string telling_line(std::string_view messages) {
  std::string before;
  std::istringstream lines{std::string(messages)};
  bool in_box = false;
  for (std::string line; std::getline(lines, line);) {
    const bool blank = line.find_first_not_of(" \t\r") == std::string::npos;
    const bool edge = line.size() > 20 && line.find_first_not_of('-') == std::string::npos;
    if (edge && !before.empty()) break;
    if (edge) in_box = true;
    if (blank || edge) continue;
    before = line;
    if (in_box) break;
  }
  return before;
}

/// The text for some ranks: "rank 2", "ranks 0, 2 to 5 and 9".
std::string names_of_ranks(const std::vector<int>& ranks) {
  std::string text = ranks.size() == 1 ? "rank " : "ranks ";
  for (std::size_t i = 0; i < ranks.size();) {
    std::size_t end = i + 1;
    while (end < ranks.size() && ranks[end] == ranks[end - 1] + 1) ++end;
    if (i > 0) text += end == ranks.size() ? " and " : ", ";
    text += std::to_string(ranks[i]);
    if (end - i > 1) text += (end - i > 2 ? " to " : ", ") + std::to_string(ranks[end - 1]);
    i = end;
  }
  return text;
}

// Passes signals that reach `launch` to the ranks of its job.

volatile std::sig_atomic_t mpirun_process = 0;
volatile std::sig_atomic_t first_signal = 0;
volatile std::sig_atomic_t interrupted_twice = 0;

/// The line that a handler writes about the first signal.
std::string_view line_after(int number) {
#define TOLD "the ranks end the step and save a checkpoint; launch leaves with "
  switch (number) {
    case SIGINT: return "SIGINT: " TOLD "77; a second SIGINT ends them at once\n";
    case SIGTERM: return "SIGTERM: " TOLD "75\n";
    case SIGHUP: return "SIGHUP: " TOLD "75\n";
    default: return "SIGUSR1: " TOLD "75\n";
  }
#undef TOLD
}

void write_line(std::string_view line) {
  [[maybe_unused]] const ssize_t told = write(STDERR_FILENO, line.data(), line.size());
}

void pass_on(int number) {
  const int before = errno;
  if (first_signal == 0) {
    first_signal = number;
    kill(mpirun_process, SIGUSR1);
    alarm(1);
    write_line(line_after(number));
  } else if (number == SIGINT) {
    interrupted_twice = 1;
    kill(mpirun_process, SIGINT);
    write_line("a second SIGINT: the ranks end at once\n");
  }
  errno = before;
}

/// Repeats the signal each second, since it gets lost while mpirun starts the ranks.
void pass_on_again(int) {
  kill(mpirun_process, SIGUSR1);
  alarm(1);
}

/// From now on the first SIGINT, SIGTERM, SIGHUP or SIGUSR1 goes to mpirun as SIGUSR1, again each
/// second until stop_passing_signals(), as it gets lost while mpirun starts the ranks; a second
/// SIGINT goes to mpirun as SIGINT. A message reports each. Ignored signals stay ignored.
void pass_signals_to(pid_t mpirun) {
  mpirun_process = mpirun;
  std::signal(SIGALRM, pass_on_again);
  for (const int number : {SIGINT, SIGTERM, SIGHUP}) handle_unless_ignored(number, pass_on);
  std::signal(SIGUSR1, pass_on);
}

void stop_passing_signals() {
  std::signal(SIGALRM, SIG_IGN);
  alarm(0);
}

/// The number of the first signal; 0 if there was none.
int signal_passed_on() { return first_signal; }

bool is_interrupted_twice() { return interrupted_twice != 0; }

constexpr double seconds_to_end = 5;  // time for mpirun to end after its ranks
constexpr double seconds_after_term = 2;
constexpr double seconds_after_kill = 1;
constexpr int look_milliseconds = 100;
constexpr std::size_t kept_messages = 1 << 16;  // bytes

constexpr int code_of(ExitCode code) { return static_cast<int>(code); }

/// A pipe from mpirun, of which this process has the reading end.
class Pipe {
 public:
  Pipe() {
    require(pipe2(ends_.data(), O_CLOEXEC) == 0, ExitCode::unavailable,
            formatted("cannot make a pipe for mpirun: {}", std::strerror(errno)));
    fcntl(ends_[0], F_SETFL, O_NONBLOCK);
  }
  ~Pipe() {
    close_writing();
    ::close(ends_[0]);
  }
  Pipe(const Pipe&) = delete;
  Pipe& operator=(const Pipe&) = delete;

  int reading() const { return ends_[0]; }
  int writing() const { return ends_[1]; }
  void close_writing() {
    if (ends_[1] >= 0) ::close(ends_[1]);
    ends_[1] = -1;
  }
  /// The bytes that are available now.
  std::string read_now() const {
    std::string text;
    std::array<char, 1 << 14> block;
    while (text.size() < kept_messages) {
      const ssize_t count = ::read(ends_[0], block.data(), block.size());
      if (count < 0 && errno == EINTR) continue;
      if (count <= 0) break;
      text.append(block.data(), static_cast<std::size_t>(count));
    }
    return text;
  }

 private:
  std::array<int, 2> ends_{-1, -1};
};

/// Writes the text. If its reader is gone, the job continues without it.
void pass_on_text(int file, std::string_view text) {
  while (!text.empty()) {
    const ssize_t count = ::write(file, text.data(), text.size());
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) return;
    text.remove_prefix(static_cast<std::size_t>(count));
  }
}

/// Whether the process, whatever its number means elsewhere, is a rank of this job.
bool is_rank_of(long process, const std::string& id) {
  std::ifstream file(formatted("/proc/{}/environ", process), std::ios::binary);
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  return ('\0' + text).find('\0' + ("TRAINCTL_LAUNCH=" + id) + '\0') != std::string::npos;
}

class Job {
 public:
  Job(const Arguments& line, const std::string& id, std::int64_t ranks,
      const std::vector<std::string>& hosts, double start_seconds)
      : line_(line),
        id_(id),
        ranks_(ranks),
        hosts_(hosts),
        start_seconds_(start_seconds),
        start_(start_seconds) {}

  int run() {
    start();
    while (!reap()) {
      wait_a_moment();
      hear();
      if (end_stage_ == 3 && patience_->over()) break;  // not even SIGKILL ends it
      look();
    }
    stop_passing_signals();
    hear();
    pass_on_text(STDOUT_FILENO, records_.rest());
    if (end_stage_ > 0) end_own_ranks();
    return code_after_signal(code());
  }

 private:
  void start() {
    Pipe reason;
    const pid_t self = getpid();
    mpirun_ = fork();
    require(mpirun_ >= 0, ExitCode::unavailable, "cannot start " + line_.front());
    if (mpirun_ == 0) {
      prctl(PR_SET_PDEATHSIG, SIGTERM);
      if (getppid() != self) _exit(1);
      become_mpirun(reason.writing());
    }
    setpgid(mpirun_, mpirun_);
    for (Pipe* pipe : {&out_, &err_, &reason}) pipe->close_writing();
    pass_signals_to(mpirun_);
    // The writing end closes when the new program starts, or after the reason why it did not.
    pollfd end{reason.reading(), POLLIN, 0};
    while (poll(&end, 1, -1) < 0 && errno == EINTR) {
    }
    const std::string failure = reason.read_now();
    if (failure.empty()) return;
    while (waitpid(mpirun_, &status_, 0) < 0 && errno == EINTR) {
    }
    throw Error(ExitCode::unavailable, "cannot start mpirun: " + failure);
  }

  void become_mpirun(int reason) {
    setpgid(0, 0);
    dup2(open("/dev/null", O_RDONLY), STDIN_FILENO);
    dup2(out_.writing(), STDOUT_FILENO);
    dup2(err_.writing(), STDERR_FILENO);
    // SIGUSR1 must not end mpirun before mpirun catches it, or once it no longer does.
    std::signal(SIGUSR1, SIG_IGN);
    pass_on_text(reason, execute(line_.front(), Arguments(line_.begin() + 1, line_.end())));
    _exit(1);
  }

  /// Whether mpirun has ended.
  bool reap() {
    pid_t found = 0;
    do {
      found = waitpid(mpirun_, &status_, WNOHANG);
    } while (found < 0 && errno == EINTR);
    return found != 0;
  }

  void wait_a_moment() const {
    std::array<pollfd, 2> files{{{out_.reading(), POLLIN, 0}, {err_.reading(), POLLIN, 0}}};
    poll(files.data(), files.size(), look_milliseconds);
    // A closed end makes poll() return at once; mpirun ends soon after.
    const bool closed = (files[0].revents & POLLHUP) != 0 || (files[1].revents & POLLHUP) != 0;
    if (closed) poll(nullptr, 0, look_milliseconds / 10);
  }

  void hear() {
    pass_on_text(STDOUT_FILENO, records_.take(out_.read_now()));
    const std::string messages = err_.read_now();
    pass_on_text(STDERR_FILENO, messages);
    messages_ += messages.substr(0, kept_messages - std::min(kept_messages, messages_.size()));
    for (const auto& [rank, place] : records_.begun()) {
      if (here_.contains(rank)) continue;
      const bool here = place.host == host_name() && is_rank_of(place.process, id_);
      here_[rank] = here ? place.process : 0;
    }
  }

  /// The ranks on this host that are "stopped" or "ended".
  std::vector<int> ranks_here(std::string_view trouble) const {
    std::vector<int> found;
    for (const auto& [rank, process] : here_) {
      if (process != 0 && trouble_of(process) == trouble) found.push_back(rank);
    }
    return found;
  }

  /// Whether to end mpirun: ranks have ended, a second SIGINT came, or no rank has begun in time.
  bool should_end() {
    if (records_.some_have_ended() || is_interrupted_twice()) return true;
    if (!ranks_here("ended").empty()) return true;
    if (!records_.begun().empty() || !start_.over()) return false;
    never_begun_ = true;
    return true;
  }

  /// Ends mpirun if it takes too long. It ends a job within a second or two, but after the loss of
  /// a host it may wait for a quarter of an hour, or for ever.
  void look() {
    if (!patience_) {
      if (!should_end()) return;
      patience_ = WaitLimit(never_begun_ ? 0 : seconds_to_end);
      stopped_ = ranks_here("stopped");
    }
    if (patience_->over()) end_mpirun();
  }

  void end_mpirun() {
    end_stage_ += 1;
    if (end_stage_ == 1) {
      if (never_begun_) {
        const std::string who = joined(hosts_, ", ");
        log_error("no rank has begun within " + format_seconds(start_seconds_) +
                  (who.empty() ? "" : "; mpirun may wait for one of the hosts " + who));
      } else {
        log_warning("mpirun has not ended " + format_seconds(seconds_to_end) +
                    " after a rank; it is ended");
      }
      kill(mpirun_, SIGTERM);
      patience_ = WaitLimit(seconds_after_term);
    } else {
      kill(-mpirun_, SIGKILL);
      patience_ = WaitLimit(seconds_after_kill);
    }
  }

  /// Kills the ranks here that mpirun left; ranks elsewhere see that their connection to it is
  /// lost.
  void end_own_ranks() const {
    for (const auto& [rank, process] : here_) {
      if (process != 0 && is_rank_of(process, id_)) {
        kill(static_cast<pid_t>(process), SIGKILL);
      }
    }
  }

  /// The signal that ended a rank: mpirun returns 128 + signal; its codes above 159 differ.
  std::optional<int> signal_of_rank() const {
    if (end_stage_ > 0 || !WIFEXITED(status_)) return std::nullopt;
    const int signal = WEXITSTATUS(status_) - 128;
    return signal >= 1 && signal <= 31 ? std::optional(signal) : std::nullopt;
  }

  void tell_missing_ranks() const {
    std::vector<int> missing;
    for (int rank = 0; rank < ranks_; ++rank) {
      if (!records_.begun().contains(rank)) missing.push_back(rank);
    }
    if (!missing.empty()) {
      log_error(formatted("{} of {}{} not begun", names_of_ranks(missing), ranks_,
                          missing.size() == 1 ? " has" : " have"));
    }
    if (!stopped_.empty()) {
      log_error(names_of_ranks(stopped_) + " on this host" +
                (stopped_.size() == 1 ? " is" : " are") + " stopped");
    }
  }

  int code() const {
    if (const auto said = records_.last_word()) return *said;
    if (const auto failed = records_.first_failure()) return *failed;
    if (is_interrupted_twice()) return code_of(ExitCode::interrupted);
    if (const auto signal = signal_of_rank()) {
      if (signal_passed_on() == 0 || *signal != SIGUSR1) {
        log_error("a rank was ended by " + name_of_signal(*signal) +
                  (*signal == SIGKILL ? ", as the system does when memory runs out" : "") +
                  "; the lines above and the logs of the other ranks name it");
      }
      return 128 + *signal;
    }
    if (WIFSIGNALED(status_) && end_stage_ == 0) {
      log_error("mpirun was ended by " + name_of_signal(WTERMSIG(status_)));
      return 128 + WTERMSIG(status_);
    }
    if (records_.begun().empty()) {
      const std::string line = telling_line(messages_);
      log_error("mpirun has started no rank" + (line.empty() ? "" : ": " + line));
      return code_of(ExitCode::unavailable);
    }
    tell_missing_ranks();
    if (!records_.some_have_ended()) {
      log_error(
          "no rank has said how the run ended: a host was lost, or a rank, or mpirun ended them");
    }
    return code_of(ExitCode::peer);
  }

  int code_after_signal(int code) const {
    const int signal = signal_passed_on();
    if (signal == 0) return code;
    constexpr int interrupted = code_of(ExitCode::interrupted);
    if (code == 128 + SIGUSR1) return interrupted;  // came before the program could catch it
    return code == code_of(ExitCode::requeue) && signal == SIGINT ? interrupted : code;
  }

  const Arguments& line_;
  const std::string& id_;
  const std::int64_t ranks_;
  const std::vector<std::string>& hosts_;
  const double start_seconds_;
  Pipe out_;
  Pipe err_;
  pid_t mpirun_ = 0;
  int status_ = 0;
  RankRecords records_;
  std::map<int, long> here_;  // processes of ranks on this host
  std::string messages_;      // first messages of mpirun and the ranks
  WaitLimit start_;
  std::optional<WaitLimit> patience_;  // time limit for mpirun to end
  std::vector<int> stopped_;           // ranks stopped here when the first rank had ended
  int end_stage_ = 0;                  // 1 after SIGTERM to mpirun; 2 and 3 after SIGKILL
  bool never_begun_ = false;
};

}  // namespace

int run_job(const Arguments& line, const std::string& id, std::int64_t ranks,
            const std::vector<std::string>& hosts, double start_seconds) {
  return Job(line, id, ranks, hosts, start_seconds).run();
}

}  // namespace trainctl
