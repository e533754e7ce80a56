// trainctl schema: every key of the YAML file, and the canonical names of upstream keys.
#include <map>

#include "commands.h"
#include "config/explain/reference.h"
#include "output.h"

namespace trainctl {

namespace {

constexpr const char* examples =
    "  trainctl schema > trainctl.schema.json   # then, on line 1 of a file of yours:\n"
    "                                           # yaml-language-server: "
    "$schema=trainctl.schema.json\n"
    "  trainctl schema --format markdown\n"
    "  trainctl schema --upstream megatron\n"
    "  trainctl schema --upstream mindspore --format json\n";

const std::map<std::string, Upstream> lists = {{"mindspore", Upstream::mindspore},
                                               {"mindformers", Upstream::mindformers},
                                               {"megatron", Upstream::megatron}};

void add_upstream(CLI::App& app, std::string& upstream) {
  const auto read = [&app, &upstream](const std::string& value) {
    if (!lists.contains(value)) {
      refuse(app.get_name(), "--upstream " + value + ": must be mindspore|mindformers|megatron");
    }
    upstream = value;
  };
  app.add_option_function<std::string>("--upstream", read,
                                       "The keys of one upstream project and their canonical names")
      ->type_name("mindspore|mindformers|megatron");
}

std::string text_of(CLI::App& app, const std::string& upstream, std::string format) {
  const bool given = app.get_option("--format")->count() > 0;
  if (upstream.empty()) {
    if (format == "table") refuse(app.get_name(), "--format table needs --upstream");
    return format == "markdown" ? reference_markdown() : json_schema();
  }
  if (!given) format = "table";
  const Upstream list = lists.at(upstream);
  if (format == "json") return upstream_json(list);
  if (format != "table") {
    refuse(app.get_name(), "--format " + format + ": must be table|json with --upstream");
  }
  return upstream_table(list);
}

}  // namespace

int run_schema(const Arguments& arguments) {
  CLI::App app("Prints every key of the YAML file with its type, default and meaning.",
               "trainctl schema");
  std::string format = "json";
  std::string upstream;
  add_format(app, format, {"json", "json-schema", "markdown", "table"});
  add_upstream(app, upstream);
  if (!parse_arguments(app, arguments, examples)) return 0;
  print(with_newline(text_of(app, upstream, format)));
  return 0;
}

}  // namespace trainctl
