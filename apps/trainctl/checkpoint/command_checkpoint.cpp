// trainctl checkpoint: what a run saved, and models of other programs.
#include <algorithm>

#include "base/error.h"
#include "checkpoint/look.h"
#include "commands.h"
#include "output.h"
#include "run/models/model_directory.h"

namespace trainctl {

namespace {

constexpr const char* checkpoint_examples =
    "  trainctl checkpoint ls runs/gpt\n"
    "  trainctl checkpoint verify runs/gpt/checkpoints/step-00000500\n"
    "  trainctl checkpoint export --from runs/gpt --to hf models/mine\n"
    "  trainctl checkpoint import --from llmc gpt2_124M.bin --to models/gpt2\n";

constexpr const char* export_examples =
    "  trainctl checkpoint export --from runs/gpt --to hf models/mine\n"
    "  trainctl checkpoint export --from runs/gpt --to hf models/mine --dtype bf16 "
    "--shard-size 5GB\n"
    "  trainctl checkpoint export --from runs/gpt --to llmc gpt2_mine.bin\n";

constexpr const char* import_examples =
    "  trainctl checkpoint import --from hf models/gpt2 --to models/checked\n"
    "  trainctl checkpoint import --from llmc gpt2_124M.bin --to models/gpt2\n";

ModelForm form_of(const CommandLine& line, const std::string& option, const std::string& word) {
  if (word == "hf") return ModelForm::hugging_face;
  if (word == "llmc") return ModelForm::llmc;
  line.refuse(option + " " + word + ": expected hf DIR or llmc FILE");
}

/// "5GB", "500MB", "4GiB", "1000000".
std::int64_t bytes_of(const CommandLine& line, const std::string& text) {
  struct Unit {
    const char* name;
    std::int64_t bytes;
  };
  constexpr Unit units[] = {{"", 1},
                            {"B", 1},
                            {"KB", 1'000},
                            {"MB", 1'000'000},
                            {"GB", 1'000'000'000},
                            {"KiB", std::int64_t{1} << 10},
                            {"MiB", std::int64_t{1} << 20},
                            {"GiB", std::int64_t{1} << 30}};
  const std::size_t digits = std::min(text.find_first_not_of("0123456789"), text.size());
  for (const Unit& unit : units) {
    if (digits == 0 || digits > 12 || text.substr(digits) != unit.name) continue;
    std::int64_t bytes = 0;
    const std::int64_t count = std::stoll(text.substr(0, digits));
    if (count > 0 && !__builtin_mul_overflow(count, unit.bytes, &bytes)) return bytes;
  }
  line.refuse("--shard-size " + text + ": expected a size such as 5GB or 500MiB");
}

void add_dtype(CommandLine& line, std::string& dtype) {
  line.add_choice("--dtype", dtype, "Number format of the written weights; default fp32",
                  {"fp32", "bf16"});
}

int convert(ConvertRequest request, const std::string& dtype) {
  request.stored = dtype == "bf16" ? DType::bf16 : DType::f32;
  print(convert_model(request) + "\n");
  return 0;
}

int run_export(const Arguments& arguments) {
  CommandLine line(
      "Writes the weights of a run in the form of another program: hf DIR (Hugging Face) or llmc "
      "FILE.",
      "trainctl checkpoint export");
  std::string from;
  std::vector<std::string> to;
  std::string dtype = "fp32";
  std::string shard_size;
  line.add_text("--from", from, "A run's output directory, or a Hugging Face directory", "DIR");
  line.require("--from");
  line.add_texts("--to", to, "hf DIR, empty or not there yet, or llmc FILE, not there yet",
                 "FORM PATH", 2);
  line.require("--to");
  add_dtype(line, dtype);
  bool averages = false;
  line.add_weights(averages);
  line.add_text("--shard-size", shard_size, "hf: cut the weights into files of at most this size",
                "SIZE");
  if (!line.parse(arguments, export_examples)) return 0;
  ConvertRequest request{
      .from = from, .to_form = form_of(line, "--to", to[0]), .to = to[1], .averages = averages};
  if (line.given("--shard-size")) {
    if (request.to_form != ModelForm::hugging_face) {
      line.refuse("--shard-size is for hf only; llm.c's model is one file");
    }
    request.shard_bytes = bytes_of(line, shard_size);
  }
  return convert(request, dtype);
}

int run_import(const Arguments& arguments) {
  CommandLine line(
      "Checks a model of another program and writes it as a directory that generate and model.from "
      "take: config.json and model.safetensors.",
      "trainctl checkpoint import");
  std::vector<std::string> from;
  std::string to;
  std::string dtype = "fp32";
  line.add_texts("--from", from, "hf DIR or llmc FILE", "FORM PATH", 2);
  line.require("--from");
  line.add_text("--to", to, "The directory to write, empty or not there yet", "DIR");
  line.require("--to");
  add_dtype(line, dtype);
  if (!line.parse(arguments, import_examples)) return 0;
  return convert({.from_form = form_of(line, "--from", from[0]), .from = from[1], .to = to}, dtype);
}

}  // namespace

int run_checkpoint(const Arguments& arguments) {
  return run_subcommand("trainctl checkpoint", arguments, checkpoint_examples,
                        {{"ls", "List the checkpoints of a run", run_checkpoint_ls},
                         {"inspect", "Show what a checkpoint holds", run_checkpoint_inspect},
                         {"verify", "Check every byte of checkpoints", run_checkpoint_verify},
                         {"diff", "Compare two checkpoints", run_checkpoint_diff},
                         {"export", "Write weights for Hugging Face or llm.c", run_export},
                         {"import", "Read a model of Hugging Face or llm.c", run_import}});
}

}  // namespace trainctl
