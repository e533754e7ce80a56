// trainctl schema: every key that a YAML file may hold.
#include "commands.h"
#include "config/reference.h"
#include "output.h"

namespace trainctl {

namespace {

constexpr const char* examples =
    "  trainctl schema > trainctl.schema.json   # then, on line 1 of a file of yours:\n"
    "                                           # yaml-language-server: "
    "$schema=trainctl.schema.json\n"
    "  trainctl schema --format markdown\n";

}  // namespace

int run_schema(const Arguments& arguments) {
  CLI::App app("Prints every key of the YAML file with its type, default and meaning.",
               "trainctl schema");
  std::string format = "json";
  add_format(app, format, {"json", "markdown"});
  if (!parse_arguments(app, arguments, examples)) return 0;
  print(with_newline(format == "json" ? json_schema() : reference_markdown()));
  return 0;
}

}  // namespace trainctl
