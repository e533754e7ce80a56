// Signals that end a command early. The handler at once prints one line that tells the effect of
// the first signal; a second SIGINT ends the process.
#pragma once

#include <string>
#include <string_view>

namespace trainctl {

/// The effect of a signal. The handler reads it, so it must live as long as the process.
struct SignalEffect {
  std::string_view text;   // such as "the step ends and a checkpoint is saved"
  int requeue_code = 0;    // exit code after a signal of a scheduler (asks_to_requeue)
  int interrupt_code = 0;  // exit code after SIGINT; if 0, the line names no code
  bool at_once = false;    // whether the process ends in the handler; otherwise it only notes
};

/// Which process tells the user about a signal.
struct SignalSpeaker {
  bool speaks = true;           // true on one of several ranks that get the same signal
  bool told_by_launch = false;  // `launch`, which passes signals on as SIGUSR1, has told the user
  bool mpirun_kills = false;    // mpirun sends SIGTERM and soon kills the ranks
  /// Called in the handler before a signal passed on by `launch` ends the process with `code`.
  void (*tell_launch)(int code) = nullptr;
};

/// Installs the handler, unless this process was started with the signal ignored, as `nohup` does
/// with SIGHUP and shells do with SIGINT for background jobs. Do not use it for SIGUSR1, which
/// `launch` has mpirun ignore until mpirun catches it.
void handle_unless_ignored(int signal, void (*handler)(int));

/// Installs handlers for SIGINT, SIGTERM and SIGHUP, unless ignored, and for SIGUSR1, for the life
/// of the process.
void catch_stop_signals(const SignalEffect& effect, const SignalSpeaker& speaker = {});
/// Later signals get another effect; earlier ones stay noted.
void change_signal_effect(const SignalEffect& effect);
/// The number of the first signal received; 0 if none.
int stop_signal();
/// The name of a signal, such as "SIGTERM"; "" for 0.
std::string name_of_signal(int signal);
/// Whether the signal comes from a scheduler, which will start the run again. False for SIGINT,
/// which a person sends.
bool asks_to_requeue(int signal);

}  // namespace trainctl
