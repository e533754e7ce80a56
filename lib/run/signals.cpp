#include "run/signals.h"

#include <csignal>
#include <initializer_list>

namespace trainctl {

namespace {

volatile std::sig_atomic_t received = 0;

void on_signal(int number) {
  if (received != 0) {
    std::signal(number, SIG_DFL);
    std::raise(number);
  }
  received = number;
}

}  // namespace

void catch_stop_signals() {
  for (int number : {SIGINT, SIGTERM, SIGUSR1}) std::signal(number, on_signal);
}

int stop_signal() { return received; }

}  // namespace trainctl
