#include "launch/rank_records.h"

#include <nlohmann/json.hpp>
#include <sstream>

#include "base/error.h"
#include "comm/rank_words.h"

namespace trainctl {

namespace {
constexpr std::size_t longest_word = 1024;  // what is longer is something else
}

std::string RankRecords::take(std::string_view bytes) {
  std::string others;
  for (const char letter : bytes) {
    if (letter == rank_word_mark) {
      others += rest();
      in_word_ = true;
    } else if (!in_word_) {
      others += letter;
    } else if (letter == '\n') {
      note(open_);
      in_word_ = false;
      open_.clear();
    } else {
      open_ += letter;
      if (open_.size() > longest_word) others += rest();
    }
  }
  return others;
}

std::string RankRecords::rest() {
  in_word_ = false;
  return std::exchange(open_, "");
}

void RankRecords::note(std::string_view text) {
  const auto word = nlohmann::json::parse(text, nullptr, false);
  if (!word.is_object()) return;
  try {
    const auto is = word.at("is").get<std::string>();
    const int rank = word.at("rank").get<int>();
    if (is == "start") {
      begun_[rank] = {word.at("host").get<std::string>(), word.at("process").get<long>()};
      return;
    }
    const int code = word.at("code").get<int>();
    if (is == "failed") {
      some_failed_ = true;
      if (!first_failure_ && code != static_cast<int>(ExitCode::peer)) first_failure_ = code;
    } else if (rank == 0 && !last_word_) {
      last_word_ = code;
    }
  } catch (const nlohmann::json::exception&) {
    // Another program's line that begins as ours do.
  }
}

std::string telling_line(std::string_view messages) {
  std::string before;
  std::istringstream lines{std::string(messages)};
  bool in_box = false;
  for (std::string line; std::getline(lines, line);) {
    const bool blank = line.find_first_not_of(" \t\r") == std::string::npos;
    const bool edge = line.size() > 20 && line.find_first_not_of('-') == std::string::npos;
    if (edge && !before.empty()) break;
    if (edge) in_box = true;
    if (blank || edge) continue;
    before = line;
    if (in_box) break;
  }
  return before;
}

std::string names_of_ranks(const std::vector<int>& ranks) {
  std::string text = ranks.size() == 1 ? "rank " : "ranks ";
  for (std::size_t i = 0; i < ranks.size();) {
    std::size_t end = i + 1;
    while (end < ranks.size() && ranks[end] == ranks[end - 1] + 1) ++end;
    if (i > 0) text += end == ranks.size() ? " and " : ", ";
    text += std::to_string(ranks[i]);
    if (end - i > 1) text += (end - i > 2 ? " to " : ", ") + std::to_string(ranks[end - 1]);
    i = end;
  }
  return text;
}

}  // namespace trainctl
