// Signals that end a command early. The handler says at once, in one line, what the first signal
// leads to; a second SIGINT ends the process.
#pragma once

#include <string>
#include <string_view>

namespace trainctl {

/// The effect of a signal. A handler reads it, so it must live as long as the process.
struct SignalEffect {
  std::string_view text;   // "the step ends and a checkpoint is saved"
  int requeue_code = 0;    // the exit code after a signal of a scheduler (asks_to_requeue)
  int interrupt_code = 0;  // after SIGINT; 0: the line names no code
  bool at_once = false;    // the process ends in the handler; otherwise the signal is only noted
};

/// Who tells the user of a signal.
struct SignalSpeaker {
  bool speaks = true;           // of several ranks that get the same signal, one
  bool told_by_launch = false;  // `launch`, which passes signals on as SIGUSR1, has said it
  bool mpirun_kills = false;    // mpirun sends SIGTERM, and soon kills the ranks
  /// Called in the handler before a signal that `launch` passes on ends the process with `code`.
  void (*tell_launch)(int code) = nullptr;
};

/// Installs the handler, unless the program that started this process had it ignore the signal, as
/// `nohup` does with SIGHUP and shells with the SIGINT of what runs in their background. Not for
/// SIGUSR1, which `launch` has an mpirun ignore that has not begun to catch it.
void handle_unless_ignored(int signal, void (*handler)(int));

/// Installs the handlers for SIGINT, SIGTERM and SIGHUP, unless they are ignored, and for SIGUSR1,
/// for the life of the process.
void catch_stop_signals(const SignalEffect& effect, const SignalSpeaker& speaker = {});
/// From now on signals have another effect; those that came before are only noted.
void change_signal_effect(const SignalEffect& effect);
/// 0, or the number of the first signal received.
int stop_signal();
/// "SIGTERM"; "" for 0.
std::string name_of_signal(int signal);
/// Whether a scheduler asks, which will start the run again. False for SIGINT, which a person
/// sends.
bool asks_to_requeue(int signal);

}  // namespace trainctl
