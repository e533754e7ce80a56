// Standard output for data, and the abilities of the terminal.
#pragma once

#include <iosfwd>
#include <string>
#include <string_view>

namespace trainctl {

/// The reader of standard output has closed it (`trainctl plan ... | head`): end without a message.
struct OutputClosed {};

/// From now on print and print_message drop their texts: of the processes of mpirun one speaks.
void be_silent();

/// Writes data to standard output at once. Throws Error{io} when it cannot be written, OutputClosed
/// when nobody reads it any more.
void print(std::string_view text);
/// The same of a text that a model or another file wrote. A terminal might obey it: there, what
/// steers one (steering_bytes) is shown as "\x1b". Into a file or a pipe byte for byte.
void print_foreign(std::string_view text);
/// std::cout for such a text.
std::ostream& foreign_output();

/// The text, ending in exactly one newline.
std::string with_newline(std::string text);

/// Such a text, to standard output, or as the whole of a file if `file` names one.
void deliver(const std::string& text, const std::string& file);

/// Writes an already formatted message (diagnostics) to stderr.
void print_message(std::string_view text);

/// Flushes std::cout, with the same failures; for commands that stream through it.
void finish_output();

/// As the following two, of standard output.
bool color_on_stdout();
bool stdout_is_terminal();

/// Whether messages on stderr may carry colours: a terminal, and neither NO_COLOR nor TERM=dumb.
bool color_on_stderr();

bool stderr_is_terminal();
bool stdin_is_terminal();

}  // namespace trainctl
