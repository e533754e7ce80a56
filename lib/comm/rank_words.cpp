#include "comm/rank_words.h"

#include <unistd.h>

#include <cstdlib>
#include <iterator>
#include <string_view>

#include "base/at.h"
#include "base/log.h"
#include "comm/world.h"

namespace trainctl {

namespace {

/// The sender of words, looked up once in advance, since a signal handler may not do so.
struct Speaker {
  bool speaks = false;
  int rank = 0;
  std::array<char, 64> host{};
  std::size_t host_length = 0;
};

Speaker this_rank() {
  Speaker speaker;
  const LaunchedAs launched = launched_as();
  speaker.speaks = is_under_launch() && !launched.launcher.empty();
  speaker.rank = launched.rank;
  for (const char letter : host_name()) {
    if (speaker.host_length == speaker.host.size()) break;
    const bool plain = letter > ' ' && letter < 0x7f && letter != '"' && letter != '\\';
    speaker.host[speaker.host_length++] = plain ? letter : '?';
  }
  return speaker;
}

/// By RankWord.
constexpr std::string_view word_texts[] = {"start",   "failed", "finished",
                                           "stopped", "saved",  "checked"};
static_assert(std::size(word_texts) == static_cast<std::size_t>(RankWord::checked) + 1);

}  // namespace

bool is_under_launch() { return std::getenv("TRAINCTL_LAUNCH") != nullptr; }

int tell_launch(RankWord word, int code, std::int64_t step) noexcept {
  static const Speaker speaker = this_rank();
  const bool of_the_run = word > RankWord::failed;
  if (!speaker.speaks || (of_the_run && speaker.rank != 0)) return code;
  SignalLine line;
  line << std::string_view(&rank_word_mark, 1) << "{\"is\":\"" << at(word_texts, word)
       << "\",\"rank\":" << std::int64_t{speaker.rank} << ",\"host\":\""
       << std::string_view(speaker.host.data(), speaker.host_length)
       << "\",\"process\":" << std::int64_t{getpid()};
  if (word != RankWord::start) line << ",\"code\":" << std::int64_t{code};
  if (of_the_run) line << ",\"step\":" << step;
  line << "}\n";
  line.write_to(STDOUT_FILENO);
  return code;
}

}  // namespace trainctl
