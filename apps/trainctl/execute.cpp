#include "execute.h"

#include <fcntl.h>
#include <spawn.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <string_view>

#include "base/error.h"
#include "base/log.h"
#include "formats/print/text.h"
#include "run/directory/signals.h"

namespace trainctl {

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

volatile std::sig_atomic_t mpirun_process = 0;
volatile std::sig_atomic_t first_signal = 0;
volatile std::sig_atomic_t interrupted_twice = 0;

/// What a handler says of the first signal.
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

/// While mpirun starts the ranks, a signal for them gets lost.
void pass_on_again(int) {
  kill(mpirun_process, SIGUSR1);
  alarm(1);
}

/// mpirun returns 128 + the signal that ended a rank.
void explain_killed(int status) {
  const int signal = WIFEXITED(status) ? WEXITSTATUS(status) - 128 : 0;
  if (signal <= 0 || signal == SIGUSR1 || interrupted_twice != 0) return;
  log_error("a rank was ended by " + name_of_signal(signal) +
            (signal == SIGKILL ? ", as the system does when memory runs out" : "") +
            "; the lines above and the logs of the other ranks name it");
}

/// `code` of mpirun after a signal was passed on.
int code_after_signal(int code) {
  constexpr int interrupted = static_cast<int>(ExitCode::interrupted);
  if (code == 128 + SIGUSR1) return interrupted;  // it came before the program could catch it
  const bool saved = code == static_cast<int>(ExitCode::requeue);
  return saved && first_signal == SIGINT ? interrupted : code;
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

int run_mpirun(const std::string& program, const Arguments& words) {
  std::vector<char*> arguments = argument_vector(program, words);
  int reason[2];
  require(pipe2(reason, O_CLOEXEC) == 0, ExitCode::unavailable, "cannot start " + program);
  const pid_t self = getpid();
  const pid_t child = fork();
  require(child >= 0, ExitCode::unavailable, "cannot start " + program);
  if (child == 0) {
    prctl(PR_SET_PDEATHSIG, SIGTERM);
    if (getppid() != self) _exit(1);
    setpgid(0, 0);
    setenv("TRAINCTL_LAUNCH", "1", 1);  // see explain_kill_delay in run/run.cpp
    dup2(open("/dev/null", O_RDONLY), STDIN_FILENO);
    std::signal(SIGPIPE, SIG_DFL);
    // Until mpirun catches it, and when it no longer does: it must not end mpirun.
    std::signal(SIGUSR1, SIG_IGN);
    execvp(program.c_str(), arguments.data());
    [[maybe_unused]] const ssize_t told = write(reason[1], &errno, sizeof errno);
    _exit(1);
  }
  close(reason[1]);
  mpirun_process = child;
  std::signal(SIGALRM, pass_on_again);
  for (const int number : {SIGINT, SIGTERM, SIGHUP, SIGUSR1}) std::signal(number, pass_on);
  int failed = 0;
  ssize_t count = 0;
  do {
    count = read(reason[0], &failed, sizeof failed);
  } while (count < 0 && errno == EINTR);
  close(reason[0]);
  int status = 0;
  while (waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  alarm(0);
  explain_killed(status);
  require(count != sizeof failed, ExitCode::unavailable,
          "cannot start mpirun: " + std::string(std::strerror(failed)));
  const int code = WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
  return first_signal == 0 ? code : code_after_signal(code);
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

std::string shell_line(const Arguments& words) {
  std::string line;
  for (const std::string& word : words) line += (line.empty() ? "" : " ") + shell_word(word);
  return line;
}

std::string own_path() { return std::filesystem::read_symlink("/proc/self/exe").string(); }

}  // namespace trainctl
