#include "run/directory/signals.h"

#include <csignal>
#include <initializer_list>

namespace trainctl {

namespace {

volatile std::sig_atomic_t received = 0;
volatile std::sig_atomic_t interrupts = 0;

// mpirun sends SIGTERM after the SIGINT that a terminal sends to all, so only a second SIGINT is a
// person who insists.
void on_signal(int number) {
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
