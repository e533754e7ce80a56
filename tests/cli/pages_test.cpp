// The pages of `plan --format html` and of `report` in a real browser at 375, 768 and 1,440 pixels,
// light and dark: no errors, nothing that scrolls the page sideways, names and heads for what has
// no text, keys, fingers, contrast (page_check.js). Skipped with a message where there is no
// chromium.
#include <cmath>
#include <filesystem>
#include <iostream>

#include "catch.h"
#include "runs.h"

namespace {

namespace fs = std::filesystem;

std::string browser() {
  for (const char* path :
       {"/usr/bin/chromium", "/usr/bin/chromium-browser", "/usr/bin/google-chrome"}) {
    if (fs::exists(path)) return path;
  }
  std::cerr << "skipped: no chromium on this machine\n";
  return "";
}

std::size_t count_of(const std::string& text, const std::string& part) {
  std::size_t count = 0;
  for (std::size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) {
    ++count;
  }
  return count;
}

/// For a double-quoted attribute.
std::string attribute(const std::string& text) {
  std::string safe;
  for (const char letter : text) {
    if (letter == '&') {
      safe += "&amp;";
    } else if (letter == '"') {
      safe += "&quot;";
    } else {
      safe += letter;
    }
  }
  return safe;
}

struct Page {
  std::string name;
  std::string path;
};

/// Each page in a frame of each width: a window itself cannot be narrower than 500 pixels. What
/// check_page() of a frame says becomes a line.
std::string frames_of(const std::vector<Page>& pages) {
  const std::string check = read_file(std::string(TRAINCTL_TEST_DIR) + "/page_check.js");
  std::string text =
      "<!DOCTYPE html>\n<meta name=\"color-scheme\" content=\"light dark\">\n<script>\n"
      "const said = [];\n"
      "const seen = (frame) => {\n"
      "  const {theme, texts, milliseconds, problems} = frame.contentWindow.check_page();\n"
      "  said.push(`SEEN ${frame.title}, ${theme}: ${texts} texts, drawn in ${milliseconds} ms`,\n"
      "    ...problems.map((one) => 'PROBLEM ' + one));\n"
      "};\n"
      "addEventListener('load', () => { document.body.textContent = said.join('\\n'); });\n"
      "</script>\n<body>\n";
  for (const Page& page : pages) {
    std::string html = read_file(page.path);
    html.insert(html.find("<head>") + 6, "<script>" + check + "</script>");
    const std::string source = attribute(html);
    for (const char* width : {"375", "768", "1440"}) {
      text += "<iframe width=\"" + std::string(width) +
              "\" height=\"20000\" style=\"border: 0\" title=\"" + page.name + " at " + width +
              "\" onload=\"seen(this)\" srcdoc=\"" + source + "\"></iframe>\n";
    }
  }
  return text;
}

/// The text that the frames said.
std::string said_in(const std::string& program, const TempDir& dir, const std::string& frames,
                    const std::string& scheme) {
  const Outcome shown = run_program(
      program, {"--headless", "--disable-gpu", "--no-sandbox", "--window-size=1500,1000",
                "--blink-settings=preferredColorScheme=" + scheme,
                "--user-data-dir=" + dir / "profile", "--dump-dom", "file://" + frames});
  INFO(shown.err.substr(0, 2000));
  CHECK(shown.exit_code == 0);
  const std::size_t first = shown.out.find("<body>");
  return first == std::string::npos ? "" : shown.out.substr(first);
}

void check_pages(const std::vector<Page>& pages) {
  const std::string program = browser();
  if (program.empty()) return;
  const TempDir dir;
  const std::string frames = dir.write("frames.html", frames_of(pages));
  for (const auto& [scheme, theme] : {std::pair{"1", "light"}, {"0", "dark"}}) {
    const std::string said = said_in(program, dir, frames, scheme);
    INFO(said);
    CHECK(count_of(said, "PROBLEM") == 0);
    CHECK(count_of(said, "SEEN ") == 3 * pages.size());
    CHECK(count_of(said, std::string(", ") + theme + ": ") == 3 * pages.size());
    std::cout << said;  // with the times of drawing
  }
}

Page plan_page(const TempDir& dir, const std::string& name, const std::string& config,
               const std::vector<std::string>& more) {
  std::vector<std::string> words{"plan", "--config", config, "--format", "html", "-o", dir / name};
  words.insert(words.end(), more.begin(), more.end());
  const Outcome made = trainctl(words);
  INFO(made.err);
  REQUIRE(made.exit_code == 0);
  return {name, dir / name};
}

/// As a line of a step has them: two layers of 64 experts.
std::string loads_at(int step) {
  std::string text = "{\"balance_loss\": 1.1, \"load\": 1.8, \"dropped\": 3, \"loads\": [[";
  for (int layer = 0; layer < 2; ++layer) {
    if (layer > 0) text += "], [";
    for (int expert = 0; expert < 64; ++expert) {
      text += (expert > 0 ? ", " : "") + std::to_string(20 + (step + 7 * expert + layer) % 300);
    }
  }
  return text + "]]}";
}

/// The lines that a long run writes.
std::string long_metrics(int steps, double offset) {
  std::string text;
  for (int step = 1; step <= steps; ++step) {
    const double loss = offset + 5 / std::sqrt(static_cast<double>(step));
    const std::string number = std::to_string(step);
    text += "{\"step\": " + number + ", \"loss\": " + std::to_string(loss) +
            ", \"grad_norm\": 0.5, \"lr\": 0.001, \"tokens\": " + number + "000" +
            (step % 100 == 0 ? ", \"val_loss\": " + std::to_string(loss + 0.1) : "") +
            ", \"tokens_per_second\": 12345.6, \"step_seconds\": 0.08, \"time\": 17000" + number +
            ", \"router\": " + loads_at(step) +
            ", \"mfu\": 0.41, \"memory\": 123456789, \"ledger\": {\"products\": 0.05, \"kernels\": "
            "0.02, \"bubble\": 0.01}}\n";
  }
  return text;
}

}  // namespace

TEST_CASE("pages of plans in a browser") {
  const TempDir dir;
  const std::string small = dir.write("small.yaml", small_config());
  const std::string priced =
      dir.write("priced.yaml", small_config() + "cluster: {device: cpu-avx2}\n");
  const std::string configs = std::string(TRAINCTL_SOURCE_DIR) + "/configs/";
  check_pages({plan_page(dir, "one rank", small, {}),
               plan_page(dir, "search", priced, {"--world-size", "4", "--search"}),
               plan_page(dir, "interleaved", configs + "llama3-70b.yaml",
                         {"--set", "parallel.virtual_pipeline_stages=5", "--memory-limit", "11"}),
               plan_page(dir, "zero", configs + "llama2-7b.yaml", {"--memory-limit", "80"})});
}

TEST_CASE("pages of runs in a browser, one of 10,000 steps") {
  const TempDir dir;
  const std::string config =
      dir.write("a.yaml", small_config() + "parallel: {pipeline_stages: 2}\n");
  for (const char* run : {"a", "b"}) {
    const Outcome trained = trainctl(
        train_words(config, dir / run,
                    {"--local-ranks", "2", "--set", "train.micro_batch_size=2", "--set",
                     std::string("lr_schedule.max_lr=") + (*run == 'a' ? "0.001" : "0.002")}));
    INFO(trained.err);
    REQUIRE(trained.exit_code == 0);
  }
  dir.write("a/metrics.jsonl", long_metrics(10000, 1));
  dir.write("b/metrics.jsonl", long_metrics(8000, 1.1));
  fs::create_directories(dir.path() / "c");
  dir.write("c/metrics.jsonl", "");  // nothing yet
  REQUIRE(trainctl({"report", dir / "a", "-o", dir / "one.html"}).exit_code == 0);
  REQUIRE(
      trainctl({"report", dir / "a", dir / "b", dir / "c", "-o", dir / "three.html"}).exit_code ==
      0);
  CHECK(fs::file_size(dir / "one.html") < 2'000'000);
  CHECK(contains(read_file(dir / "one.html"), "\"experts\":64"));
  const std::string page = read_file(dir / "three.html");
  CHECK(contains(page, "\"lr_schedule.max_lr\":\"0.002\""));
  check_pages({{"report of one", dir / "one.html"}, {"report of three", dir / "three.html"}});
}
