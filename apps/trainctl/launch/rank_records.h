// What the ranks of a job have said of themselves (comm/rank_words.h), and the exit code that
// follows from it.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace trainctl {

/// A rank that has begun.
struct RankPlace {
  std::string host;
  long process = 0;
};

class RankRecords {
 public:
  /// Takes the next bytes of mpirun's standard output and returns those that belong to no word.
  std::string take(std::string_view bytes);
  /// What is left of a line without an end.
  std::string rest();

  const std::map<int, RankPlace>& begun() const { return begun_; }
  /// A rank has said how it ended.
  bool some_have_ended() const { return last_word_ || some_failed_; }
  /// The code of rank 0's word, when all is written.
  std::optional<int> last_word() const { return last_word_; }
  /// The first code of a rank that failed, other than that it lost another rank.
  std::optional<int> first_failure() const { return first_failure_; }

 private:
  void note(std::string_view word);

  std::string open_;  // a word of which the end is missing
  bool in_word_ = false;
  std::map<int, RankPlace> begun_;
  std::optional<int> last_word_;
  std::optional<int> first_failure_;
  bool some_failed_ = false;
};

/// The line of mpirun's messages that says most: what came before its first box of text, else the
/// first line in it. "": there is none.
std::string telling_line(std::string_view messages);

/// "rank 2", "ranks 0, 2 to 5 and 9".
std::string names_of_ranks(const std::vector<int>& ranks);

}  // namespace trainctl
