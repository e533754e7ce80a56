// trainctl checkpoint: the checkpoints of runs, and models of other programs.

#include <algorithm>

#include "arguments.h"
#include "base/error.h"
#include "base/file.h"
#include "base/text.h"
#include "base/units.h"
#include "checkpoint/folder.h"
#include "checkpoint/inspect.h"
#include "checkpoint/manifest.h"
#include "commands.h"
#include "formats/print/text.h"
#include "output.h"
#include "run/models/model_directory.h"

namespace trainctl {

// The subcommands of `trainctl checkpoint` that look at checkpoints and change nothing.

namespace {

namespace fs = std::filesystem;

/// The checkpoint at `named`: the directory itself, or the newest checkpoint of a run.
fs::path checkpoint_at(const std::string& named) {
  if (kind_of_file(fs::path(named) / manifest_name) != FileKind::none) return named;
  const auto complete = CheckpointFolder(named).complete();
  require(!complete.empty(), ExitCode::missing_input,
          named + " is neither a complete checkpoint nor a run with one");
  return complete.front().path;
}

bool is_there(const fs::path& checkpoint) {
  return kind_of_file(checkpoint / manifest_name) != FileKind::none;
}

/// Calls `look` with the checkpoint at `named`. If a running job has removed it meanwhile, an error
/// is ignored, and `look` is called with the next checkpoint.
template <class Look>
auto look_at(const std::string& named, const Look& look) {
  constexpr int max_tries = 100;
  for (int tries = 1;; ++tries) {
    const fs::path path = checkpoint_at(named);
    const bool last = path == named || tries == max_tries;
    try {
      auto result = look(path);
      if (is_there(path)) return result;
    } catch (const Error&) {
      if (is_there(path)) throw;
    }
    require(!last, ExitCode::missing_input,
            path.string() + " was removed by its run while it was read");
  }
}

/// `text` padded to `width`, with at least one space after it.
std::string in_column(const std::string& text, std::size_t width) {
  return padded(text, width - 1) + " ";
}

std::string optional_number(const std::optional<double>& value) {
  return value ? printed("%.4f", *value) : "-";
}

/// One line for each value and tensor that differs.
std::string differences_of(const fs::path& first, const fs::path& second) {
  const Manifest left = read_manifest(first);
  const Manifest right = read_manifest(second);
  std::string text;
  const auto compare = [&](const std::string& name, auto x, auto y) {
    if (x != y) text += formatted("{}{} and {}\n", in_column(name, 12), x, y);
  };
  compare("step", left.state.step, right.state.step);
  compare("samples", left.state.samples, right.state.samples);
  compare("updates", left.state.updates, right.state.updates);
  compare("loss_scale", left.state.loss_scale, right.state.loss_scale);
  for (const TensorDifference& one : compare_checkpoints(first, second)) {
    text += in_column(one.value, 12) + in_column(one.name, 40);
    text += one.what.empty() ? formatted("{} elements differ, by at most {}", one.differing,
                                         printed("%.3g", one.largest))
                             : one.what;
    text += "\n";
  }
  return text;
}

/// "500", or "500.813" if the name of the directory has the session.
std::string step_text(const CheckpointFolder::Entry& entry) {
  return std::to_string(entry.step) + entry.path.extension().string();
}

int run_checkpoint_ls(const Arguments& arguments) {
  CommandLine line("Lists the checkpoints of a run.", "trainctl checkpoint ls");
  std::string run;
  line.add_text("RUN", run, "A run's output directory", "DIR");
  line.require("RUN");
  if (!line.parse(arguments, "  trainctl checkpoint ls runs/gpt\n")) return 0;
  require(kind_of_file(run) == FileKind::folder, ExitCode::missing_input, "no directory " + run);
  const CheckpointFolder folder(run);
  std::string text = in_column("step", 12) + in_column("size", 12) + in_column("loss", 10) +
                     in_column("val_loss", 10) + in_column("state", 12) + "layout\n";
  const auto complete = folder.complete();
  const auto incomplete = folder.incomplete();
  for (const CheckpointFolder::Entry& entry : complete) {
    const std::size_t before = text.size();
    text += in_column(step_text(entry), 12);
    try {
      const Manifest manifest = read_manifest(entry.path);
      text += in_column(format_bytes(manifest.bytes()), 12) +
              in_column(optional_number(manifest.loss), 10) +
              in_column(optional_number(manifest.val_loss), 10) + in_column("complete", 12) +
              manifest.layout.to_string() + "\n";
    } catch (const Error& error) {
      if (error.code() == ExitCode::io) throw;  // the checkpoint itself may be intact
      if (!is_there(entry.path)) {
        text.resize(before);
        continue;
      }
      text += in_column("-", 12) + in_column("-", 10) + in_column("-", 10) +
              in_column("damaged", 12) + error.what() + "\n";
    }
  }
  for (const fs::path& path : incomplete) {
    text += in_column(path.filename().string(), 44) + "incomplete\n";
  }
  print(text);
  if (complete.empty() && incomplete.empty()) print_message(run + " has no checkpoints\n");
  return 0;
}

int run_checkpoint_inspect(const Arguments& arguments) {
  CommandLine line("Shows what a checkpoint holds.", "trainctl checkpoint inspect");
  std::string named;
  line.add_text("CHECKPOINT", named, "A checkpoint, or a run whose newest is taken", "DIR");
  line.require("CHECKPOINT");
  if (!line.parse(arguments,
                  "  trainctl checkpoint inspect runs/gpt/checkpoints/step-00000500\n")) {
    return 0;
  }
  fs::path path;
  const Manifest manifest = look_at(named, [&](const fs::path& found) {
    path = found;
    return read_manifest(found);
  });
  const TrainState& state = manifest.state;
  std::string text = path.string() + "\n";
  text +=
      formatted("  step        {} of {}, {} updates\n", state.step, manifest.steps, state.updates);
  text += "  samples     " + format_grouped(state.samples) + ", " + format_grouped(state.tokens) +
          " tokens in " + format_grouped(state.positions) + " positions, " +
          format_grouped(state.labels) + " labels\n";
  text += "  loss        " + optional_number(manifest.loss) + ", validation " +
          optional_number(manifest.val_loss) + "\n";
  text += "  optimizer   " + manifest.optimizer + ", loss scale " +
          printed("%g", state.loss_scale) + "\n";
  text += "  written by  " + manifest.layout.to_string() + "\n";
  text += formatted("  files       {} with {}\n\n", manifest.files.size(),
                    format_bytes(manifest.bytes()));
  std::size_t width = 10;
  for (const SavedTensor& tensor : manifest.tensors) width = std::max(width, tensor.name.size());
  for (const SavedTensor& tensor : manifest.tensors) {
    text += formatted("  {}{}{}{}{}", in_column(tensor.value, 12),
                      in_column(tensor.name, width + 2), in_column(tensor.shape.to_string(), 18),
                      tensor.pieces.size(), tensor.pieces.size() == 1 ? " piece\n" : " pieces\n");
  }
  print(text);
  return 0;
}

int run_checkpoint_verify(const Arguments& arguments) {
  CommandLine line("Reads every byte of checkpoints and compares it with the hashes.",
                   "trainctl checkpoint verify");
  std::vector<std::string> named;
  line.add_texts("CHECKPOINT", named, "Checkpoints, or runs whose newest is taken", "DIR");
  line.require("CHECKPOINT");
  if (!line.parse(arguments, "  trainctl checkpoint verify runs/gpt\n")) return 0;
  bool all = true;
  for (const std::string& one : named) {
    fs::path path;
    const std::vector<std::string> wrong = look_at(one, [&](const fs::path& found) {
      path = found;
      ProgressBar bar("checking " + path.string());
      return verify_checkpoint(
          path, [&](std::int64_t done, std::int64_t all_bytes) { bar.update(done, all_bytes); });
    });
    all = all && wrong.empty();
    if (wrong.empty()) print(path.string() + ": complete and undamaged\n");
    for (const std::string& message : wrong) print_message("error: " + message + "\n");
  }
  return static_cast<int>(all ? ExitCode::ok : ExitCode::bad_data);
}

int run_checkpoint_diff(const Arguments& arguments) {
  CommandLine line("Compares two checkpoints, whatever their layouts.", "trainctl checkpoint diff");
  std::string a;
  std::string b;
  line.add_text("A", a, "A checkpoint, or a run whose newest is taken", "DIR");
  line.add_text("B", b, "Another", "DIR");
  line.require("A");
  line.require("B");
  if (!line.parse(arguments, "  trainctl checkpoint diff runs/a runs/b\n")) return 0;
  const std::string text = look_at(a, [&](const fs::path& first) {
    return look_at(b, [&](const fs::path& second) { return differences_of(first, second); });
  });
  print(text.empty() ? "equal\n" : text);
  return static_cast<int>(text.empty() ? ExitCode::ok : ExitCode::diverged);
}

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

/// Whether a form is llm.c's file; else it is Hugging Face's directory.
bool is_llmc(const CommandLine& line, const std::string& option, const std::string& word) {
  if (word == "hf") return false;
  if (word == "llmc") return true;
  line.refuse(option + " " + word + ": expected hf DIR or llmc FILE");
}

/// The bytes in a text such as "5GB", "500MB", "4GiB" or "1000000".
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
      .from = from, .to_llmc = is_llmc(line, "--to", to[0]), .to = to[1], .averages = averages};
  if (line.given("--shard-size")) {
    if (request.to_llmc) {
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
  return convert({.from_llmc = is_llmc(line, "--from", from[0]), .from = from[1], .to = to}, dtype);
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
