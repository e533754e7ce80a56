#include "checkpoint/look.h"

#include "base/error.h"
#include "base/file.h"
#include "base/units.h"
#include "checkpoint/folder.h"
#include "checkpoint/inspect.h"
#include "checkpoint/manifest.h"
#include "formats/print/text.h"
#include "output.h"
#include "progress_bar.h"

namespace trainctl {

namespace {

namespace fs = std::filesystem;

/// The directory itself, or the newest checkpoint of a run.
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

/// Calls `look` with the checkpoint that `named` means. A run that goes on may remove it meanwhile:
/// then with the next, since what is found wrong says nothing.
template <class Look>
auto look_at(const std::string& named, const Look& look) {
  constexpr int most_tries = 100;
  for (int tries = 1;; ++tries) {
    const fs::path path = checkpoint_at(named);
    const bool last = path == named || tries == most_tries;
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

/// With at least one space behind it.
std::string in_column(const std::string& text, std::size_t width) {
  return padded(text, width - 1) + " ";
}

std::string optional_number(const std::optional<double>& value) {
  return value ? printed("%.4f", *value) : "-";
}

}  // namespace

namespace {

/// One line for each value and tensor that differs.
std::string differences_of(const fs::path& first, const fs::path& second) {
  const Manifest left = read_manifest(first);
  const Manifest right = read_manifest(second);
  std::string text;
  const auto compare = [&](const std::string& name, auto x, auto y) {
    if (x != y)
      text += in_column(name, 12) + std::to_string(x) + " and " + std::to_string(y) + "\n";
  };
  compare("step", left.state.step, right.state.step);
  compare("samples", left.state.samples, right.state.samples);
  compare("updates", left.state.updates, right.state.updates);
  compare("loss_scale", left.state.loss_scale, right.state.loss_scale);
  for (const TensorDifference& one : compare_checkpoints(first, second)) {
    text += in_column(one.value, 12) + in_column(one.name, 40);
    text += one.what.empty() ? std::to_string(one.differing) + " elements differ, by at most " +
                                   printed("%.3g", one.largest)
                             : one.what;
    text += "\n";
  }
  return text;
}

/// "500", or "500.813" where the name of the directory says the session.
std::string step_text(const CheckpointFolder::Entry& entry) {
  return std::to_string(entry.step) + entry.path.extension().string();
}

}  // namespace

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
      if (error.code() == ExitCode::io) throw;  // that says nothing of the checkpoint
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
  text += "  step        " + std::to_string(state.step) + " of " + std::to_string(manifest.steps) +
          ", " + std::to_string(state.updates) + " updates\n";
  text += "  samples     " + format_grouped(state.samples) + ", " + format_grouped(state.tokens) +
          " tokens in " + format_grouped(state.positions) + " positions, " +
          format_grouped(state.labels) + " labels\n";
  text += "  loss        " + optional_number(manifest.loss) + ", validation " +
          optional_number(manifest.val_loss) + "\n";
  text += "  optimizer   " + manifest.optimizer + ", loss scale " +
          printed("%g", state.loss_scale) + "\n";
  text += "  written by  " + manifest.layout.to_string() + "\n";
  text += "  files       " + std::to_string(manifest.files.size()) + " with " +
          format_bytes(manifest.bytes()) + "\n\n";
  std::size_t width = 10;
  for (const SavedTensor& tensor : manifest.tensors) width = std::max(width, tensor.name.size());
  for (const SavedTensor& tensor : manifest.tensors) {
    text += "  " + in_column(tensor.value, 12) + in_column(tensor.name, width + 2) +
            in_column(tensor.shape.to_string(), 18) + std::to_string(tensor.pieces.size()) +
            (tensor.pieces.size() == 1 ? " piece\n" : " pieces\n");
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

}  // namespace trainctl
