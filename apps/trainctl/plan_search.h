// trainctl plan --search: the layouts of a configuration, and the one that takes least time.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "arguments.h"
#include "planned.h"

namespace trainctl {

struct SearchOptions {
  bool search = false;
  double gap = 2;      // %
  double reserve = 4;  // GiB
  std::int64_t top = 10;
  std::string save;
  std::string world_sizes;  // "64,128"
};
void add_search_options(CommandLine& line, SearchOptions& options);
/// Refuses options that need --search, do nothing with it, or exclude each other.
void check_search_options(const CommandLine& line, const SearchOptions& options,
                          const PlanRequest& request, const std::string& format, bool force);

struct SearchCommand {
  const PlanRequest& request;
  const SearchOptions& options;
  double memory_limit = 0;  // GiB; 0: not given
  bool explain = false;
  std::string format;  // "table", "json", "html"
  std::string output;  // file; "": standard output
  std::string command_line;
};
/// Returns the exit code.
int show_search(const SearchCommand& command);

}  // namespace trainctl
