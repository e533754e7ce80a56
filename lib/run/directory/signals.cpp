#include "run/directory/signals.h"

#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <initializer_list>

#include "base/log.h"

namespace trainctl {

namespace {

// A signal handler may use only lock-free atomics.
static_assert(std::atomic<int>::is_always_lock_free);
static_assert(std::atomic<const SignalEffect*>::is_always_lock_free);
std::atomic<int> received = 0;
std::atomic<int> interrupts = 0;
std::atomic<const SignalEffect*> current = nullptr;
SignalSpeaker speaker;  // set before the handlers are installed
bool on_terminal = false;

std::string_view word_of(int signal) {
  switch (signal) {
    case SIGINT: return "SIGINT";
    case SIGTERM: return "SIGTERM";
    case SIGHUP: return "SIGHUP";
    case SIGUSR1: return "SIGUSR1";
    default: return "";
  }
}

int code_after(int number, const SignalEffect& effect) {
  return number == SIGINT ? effect.interrupt_code : effect.requeue_code;
}

void tell(int number, const SignalEffect& effect) {
  if (!speaker.speaks) return;
  // `launch` has announced SIGUSR1. mpirun sends SIGTERM to end the job for another reason.
  if (speaker.told_by_launch && number == SIGTERM) return;
  if (speaker.told_by_launch && number == SIGUSR1 && !effect.at_once) return;
  SignalLine line;
  if (on_terminal) line << "\n";  // a line of progress may be open
  line << word_of(number) << ": ";
  const bool by_mpirun = number == SIGTERM && speaker.mpirun_kills;
  if (!effect.at_once && by_mpirun) {
    line << "mpirun ends the job, as it was told to or because a rank has ended; if it leaves the "
            "time, ";
  }
  line << effect.text;
  const int code = code_after(number, effect);
  if (code > 0 && !by_mpirun) line << "; trainctl leaves with " << code;
  if (!effect.at_once && number == SIGINT) line << "; a second SIGINT ends it at once";
  line << "\n";
  line.write_to(STDERR_FILENO);
}

void end_at_once(int number) {
  if (speaker.speaks) {
    SignalLine line;
    line << "a second SIGINT: trainctl ends at once\n";
    line.write_to(STDERR_FILENO);
  }
  std::signal(number, SIG_DFL);
  std::raise(number);
}

// Only a second SIGINT shows that a person insists: mpirun sends SIGTERM after the SIGINT that a
// terminal sends to all processes.
void on_signal(int number) {
  const int before = errno;
  const SignalEffect& effect = *current.load();
  if (effect.at_once) {
    tell(number, effect);
    const bool passed_on = speaker.told_by_launch && number == SIGUSR1;
    if (passed_on && speaker.tell_launch != nullptr) {
      speaker.tell_launch(code_after(number, effect));
    }
    ::_exit(code_after(number, effect));
  }
  if (number == SIGINT && interrupts.exchange(1) > 0) return end_at_once(number);
  int none = 0;
  if (received.compare_exchange_strong(none, number)) tell(number, effect);
  errno = before;
}

}  // namespace

void handle_unless_ignored(int number, void (*handler)(int)) {
  struct sigaction now {};
  if (::sigaction(number, nullptr, &now) == 0 && now.sa_handler == SIG_IGN) return;
  std::signal(number, handler);
}

void catch_stop_signals(const SignalEffect& effect, const SignalSpeaker& who) {
  current = &effect;
  speaker = who;
  on_terminal = ::isatty(STDERR_FILENO) != 0;
  for (int number : {SIGINT, SIGTERM, SIGHUP}) handle_unless_ignored(number, on_signal);
  std::signal(SIGUSR1, on_signal);
}

void change_signal_effect(const SignalEffect& effect) { current = &effect; }

int stop_signal() { return received; }

std::string name_of_signal(int signal) {
  if (signal == 0) return "";
  const char* name = sigabbrev_np(signal);
  return name == nullptr ? "signal " + std::to_string(signal) : "SIG" + std::string(name);
}

bool asks_to_requeue(int signal) { return signal != SIGINT; }

}  // namespace trainctl
