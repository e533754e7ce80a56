// trainctl report: the curves and ledgers of runs as one page, or as event files of TensorBoard.
#include <filesystem>

#include "base/error.h"
#include "base/file.h"
#include "base/log.h"
#include "commands.h"
#include "run/records/step_records.h"
#include "run/views/event_file.h"
#include "run/views/report_page.h"

namespace trainctl {

namespace {

constexpr const char* report_name = "trainctl report";
constexpr const char* report_examples =
    "  trainctl report runs/gpt\n"
    "  trainctl report runs/a runs/b runs/c -o compared.html\n"
    "  trainctl report runs/gpt --format tensorboard\n";

namespace fs = std::filesystem;

void write_events(const RunFiles& run) {
  const fs::path folder = run.directory / "tensorboard";
  std::error_code failure;
  fs::create_directories(folder, failure);
  require(!failure, ExitCode::io,
          "cannot create the folder " + folder.string() + ": " + failure.message());
  const double time = run.times.empty() ? 0 : run.times.front();
  const fs::path path = folder / event_file_name(time);
  write_whole_file(path, event_file_of(run));
  log_info("event file: " + path.string());
}

}  // namespace

int run_report(const Arguments& arguments) {
  CommandLine line("Shows runs from their files: one page of HTML, or event files of TensorBoard.",
                   report_name);
  std::vector<std::string> directories;
  std::string format = "html";
  std::string output;
  line.add_texts("runs", directories, "Directories of runs", "RUN...");
  line.add_format(format, {"html", "tensorboard"});
  line.add_text("-o,--output", output, "The page; default: report.html in the first run", "FILE");
  bool force = false;
  line.add_flag("--force", force, "Replace the output file if there is one");
  if (!line.parse(arguments, report_examples)) return 0;
  if (directories.empty()) refuse(report_name, "name at least one run's directory");
  std::vector<RunFiles> runs;
  for (const std::string& directory : directories) runs.push_back(read_run_files(directory));
  if (format == "tensorboard") {
    if (!output.empty())
      refuse(report_name, "-o is for --format html; event files go into each run");
    for (const RunFiles& run : runs) write_events(run);
    return 0;
  }
  if (!output.empty() && !force) refuse_existing(report_name, output);
  const fs::path path =
      output.empty() ? fs::path(directories.front()) / "report.html" : fs::path(output);
  write_whole_file(path, report_page(runs, seconds_since_1970()));
  log_info("report: " + path.string());
  return 0;
}

}  // namespace trainctl
