// trainctl migrate: a file with upstream spellings, a whole MindFormers file, or a file of another
// project, in canonical form.
#include <filesystem>
#include <map>

#include "base/error.h"
#include "base/file.h"
#include "commands.h"
#include "config/migrate/migrate.h"
#include "config/read/read.h"
#include "output.h"

namespace trainctl {

namespace {

constexpr const char* name = "trainctl migrate";
constexpr const char* migrate_examples =
    "  trainctl migrate finetune_llama.yaml -o llama.yaml\n"
    "  trainctl migrate --in-place old.yaml\n"
    "  trainctl migrate old.yaml | diff old.yaml -\n"
    "  trainctl migrate --from nanogpt config/train_shakespeare_char.py -o shakespeare.yaml\n"
    "  trainctl migrate --from megatron-args pretrain_gpt.sh -o gpt.yaml\n";

constexpr const char* local_form = "yaml";
const std::map<std::string, Project> projects = {{"megatron-args", Project("megatron")},
                                                 {"nanogpt", Project("nanogpt")},
                                                 {"torchtitan", Project("torchtitan")},
                                                 {"llm.c", Project("llmc")},
                                                 {"hf", Project("hugging_face")}};

struct MigrateRequest {
  std::string file;
  std::string from = local_form;
  std::string output;
  bool in_place = false;
  bool force = false;
};

bool same_file(const std::string& a, const std::string& b) {
  std::error_code ignored;
  return std::filesystem::equivalent(a, b, ignored);
}

void check_together(const MigrateRequest& request) {
  if (request.in_place && !request.output.empty()) {
    refuse(name, "--in-place and --output exclude each other");
  }
  if (request.in_place && request.from != local_form) {
    refuse(name, "--in-place would replace a file of another project; use --output");
  }
  if (!request.output.empty() && same_file(request.file, request.output)) {
    refuse(name, "--output names FILE itself; use --in-place to replace it");
  }
  if (!request.output.empty() && !request.force) refuse_existing(name, request.output);
}

Migrated migrate(const MigrateRequest& request) {
  const Surroundings::Loaded loaded = load_text(request.file);
  if (!loaded.text) throw Error(ExitCode::missing_input, request.file + ": " + loaded.why);
  const auto project = projects.find(request.from);
  return project == projects.end() ? migrate_config(*loaded.text, request.file)
                                   : migrate_from(project->second, *loaded.text, request.file);
}

}  // namespace

int run_migrate(const Arguments& arguments) {
  CommandLine line(
      "Rewrites a YAML file with canonical keys, or another project's file as one, and lists what "
      "it could not convert.",
      name);
  MigrateRequest request;
  line.add_text("FILE", request.file, "The file to rewrite", "");
  line.require("FILE");
  line.add_choice("--from", request.from,
                  "What FILE is: our YAML with upstream names or a MindFormers file (default), "
                  "Megatron's arguments in a script, nanoGPT's Python, torchtitan's TOML, llm.c's "
                  "command line, or Hugging Face's config.json or training arguments",
                  {local_form, "megatron-args", "nanogpt", "torchtitan", "llm.c", "hf"});
  line.add_text("-o,--output", request.output, "Output file; default: standard output", "OUT");
  line.add_flag("--in-place", request.in_place, "Replace FILE itself");
  line.add_flag("--force", request.force, "Replace the output file if there is one");
  if (!line.parse(arguments, migrate_examples)) return 0;
  check_together(request);
  const Migrated migrated = migrate(request);
  print_message(render_text(migrated.diagnostics, color_on_stderr()));
  if (!migrated.ok) return static_cast<int>(ExitCode::config);
  if (request.in_place) {
    write_whole_file(request.file, migrated.text);
  } else if (!request.output.empty()) {
    write_whole_file(request.output, migrated.text);
  } else {
    print_foreign(migrated.text);
  }
  return 0;
}

}  // namespace trainctl
