// trainctl migrate: a file with upstream spellings, or a whole MindFormers file, in canonical form.
#include <filesystem>

#include "base/error.h"
#include "base/whole_file.h"
#include "commands.h"
#include "config/migrate/migrate.h"
#include "config/read/read.h"
#include "output.h"

namespace trainctl {

namespace {

constexpr const char* examples =
    "  trainctl migrate finetune_llama.yaml -o llama.yaml\n"
    "  trainctl migrate --in-place old.yaml\n"
    "  trainctl migrate old.yaml | diff old.yaml -\n";

struct MigrateRequest {
  std::string file;
  std::string output;
  bool in_place = false;
};

bool same_file(const std::string& a, const std::string& b) {
  std::error_code ignored;
  return std::filesystem::equivalent(a, b, ignored);
}

}  // namespace

int run_migrate(const Arguments& arguments) {
  CommandLine line("Rewrites a YAML file with canonical keys and lists what it could not convert.",
                   "trainctl migrate");
  MigrateRequest request;
  line.add_text("FILE", request.file, "The file to rewrite", "");
  line.require("FILE");
  line.add_text("-o,--output", request.output, "Output file; default: standard output", "OUT");
  line.add_flag("--in-place", request.in_place, "Replace FILE itself");
  if (!line.parse(arguments, examples)) return 0;
  if (request.in_place && !request.output.empty()) {
    refuse("trainctl migrate", "--in-place and --output exclude each other");
  }
  if (!request.output.empty() && same_file(request.file, request.output)) {
    refuse("trainctl migrate", "--output names FILE itself; use --in-place to replace it");
  }
  const Surroundings::Loaded loaded = load_text(request.file);
  if (!loaded.text) throw Error(ExitCode::missing_input, request.file + ": " + loaded.why);

  const Migrated migrated = migrate_config(*loaded.text, request.file);
  print_message(render_text(migrated.diagnostics, color_on_stderr()));
  if (!migrated.ok) return static_cast<int>(ExitCode::config);
  if (request.in_place) {
    write_whole_file(request.file, migrated.text);
  } else if (!request.output.empty()) {
    write_whole_file(request.output, migrated.text);
  } else {
    print(migrated.text);
  }
  return 0;
}

}  // namespace trainctl
