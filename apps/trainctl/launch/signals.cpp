#include "launch/signals.h"

#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <string_view>

#include "run/directory/signals.h"

namespace trainctl {

namespace {

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

}  // namespace

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

int signal_passed_on() { return first_signal; }

bool is_interrupted_twice() { return interrupted_twice != 0; }

}  // namespace trainctl
