#include "run/directory/signals.h"

#include <unistd.h>

#include <atomic>
#include <csignal>
#include <initializer_list>
#include <string_view>

#include "base/error.h"

namespace trainctl {

namespace {

static_assert(std::atomic<int>::is_always_lock_free);  // so that a signal handler may use them
std::atomic<int> received = 0;
std::atomic<int> interrupts = 0;
std::atomic<int> code_at_once = 0;

/// Only calls what a signal handler may.
void leave(int number) {
  constexpr std::string_view text = "interrupted before the first step: nothing to save\n";
  [[maybe_unused]] const ssize_t told = ::write(STDERR_FILENO, text.data(), text.size());
  ::_exit(asks_to_requeue(number) ? code_at_once.load() : static_cast<int>(ExitCode::interrupted));
}

// mpirun sends SIGTERM after the SIGINT that a terminal sends to all, so only a second SIGINT is a
// person who insists.
void on_signal(int number) {
  if (code_at_once != 0) leave(number);
  if (number == SIGINT && interrupts > 0) {
    std::signal(number, SIG_DFL);
    std::raise(number);
    return;
  }
  if (number == SIGINT) interrupts = 1;
  if (received == 0) received = number;
}

}  // namespace

void catch_stop_signals() {
  for (int number : {SIGINT, SIGTERM, SIGHUP, SIGUSR1}) std::signal(number, on_signal);
  std::signal(SIGXFSZ, SIG_IGN);
}

void end_at_once(int requeue_code) {
  code_at_once = requeue_code;
  if (requeue_code != 0 && received != 0) leave(received);
}

int stop_signal() { return received; }

std::string name_of_signal(int signal) {
  switch (signal) {
    case 0: return "";
    case SIGINT: return "SIGINT";
    case SIGTERM: return "SIGTERM";
    case SIGHUP: return "SIGHUP";
    case SIGUSR1: return "SIGUSR1";
    default: return "signal " + std::to_string(signal);
  }
}

bool asks_to_requeue(int signal) { return signal != SIGINT; }

}  // namespace trainctl
