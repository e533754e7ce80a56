// trainctl schema: every key of the YAML file, and the canonical names of upstream keys.
#include "commands.h"
#include "config/explain/reference.h"
#include "output.h"

namespace trainctl {

namespace {

constexpr const char* schema_examples =
    "  trainctl schema > trainctl.schema.json   # then, on line 1 of a file of yours:\n"
    "                                           # yaml-language-server: "
    "$schema=trainctl.schema.json\n"
    "  trainctl schema --format markdown\n"
    "  trainctl schema --upstream megatron\n"
    "  trainctl schema --upstream mindspore --format json\n";

std::string text_of(const CommandLine& line, const std::string& upstream, std::string format) {
  const bool given = line.given("--format");
  if (upstream.empty()) {
    if (format == "table") line.refuse("--format table needs --upstream");
    return format == "markdown" ? reference_markdown() : json_schema();
  }
  if (!given) format = "table";
  if (format == "json") return upstream_json(upstream);
  if (format != "table") {
    line.refuse("--format " + format + ": must be table|json with --upstream");
  }
  return upstream_table(upstream);
}

}  // namespace

int run_schema(const Arguments& arguments) {
  CommandLine line("Prints every key of the YAML file with its type, default and meaning.",
                   "trainctl schema");
  std::string format = "json";
  std::string upstream;
  line.add_format(format, {"json", "json-schema", "markdown", "table"});
  line.add_choice("--upstream", upstream,
                  "The keys of one upstream project and their canonical names",
                  {"mindspore", "mindformers", "megatron"});
  if (!line.parse(arguments, schema_examples)) return 0;
  print(with_newline(text_of(line, upstream, format)));
  return 0;
}

}  // namespace trainctl
