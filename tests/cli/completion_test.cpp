// Completion scripts, the short forms of --config, and the levels of messages.
#include <sstream>

#include "catch.h"
#include "process.h"

namespace {

/// The words that bash offers for a line whose last word is unfinished.
std::string offered(const std::vector<std::string>& line) {
  const TempDir dir;
  const std::string script = dir.write("complete", trainctl({"completion", "bash"}).out);
  std::string words;
  for (const std::string& word : line) words += " '" + word + "'";
  const std::string code = "source '" + script + "'; COMP_WORDS=(" + words +
                           "); COMP_CWORD=" + std::to_string(line.size() - 1) +
                           "; _trainctl; echo ${COMPREPLY[@]}";
  return run_program("bash", {"--norc", "-c", code}).out;
}

}  // namespace

TEST_CASE("bash completes commands, options and values") {
  CHECK(offered({"trainctl", "tr"}) == "train\n");
  CHECK(contains(offered({"trainctl", ""}), "train launch validate plan "));
  CHECK(offered({"trainctl", "data", "b"}) == "build\n");
  CHECK(offered({"trainctl", "train", "--loc"}) == "--local-ranks\n");
  CHECK(offered({"trainctl", "data", "build", "--json"}) == "--json-key\n");
  CHECK(offered({"trainctl", "migrate", "--from", "na"}) == "nanogpt\n");
  CHECK(offered({"trainctl", "plan", "--format", "h"}) == "html\n");
  CHECK(offered({"trainctl", "plan", "--free", "tens"}) == "tensor_parallel\n");
  CHECK(offered({"trainctl", "plan", "--fix", "recompute,tens"}) == "recompute,tensor_parallel\n");
  CHECK(offered({"trainctl", "train", "--set", "parallel.tensor"}) ==
        "parallel.tensor_parallel=\n");
  CHECK(offered({"trainctl", "train", "--set", "model.preset", "=", "gpt2-124"}) == "gpt2-124m\n");
  CHECK(offered({"trainctl", "train", "--set", "precision.compute", "=", "b"}) == "bf16\n");
  CHECK(offered({"trainctl", "plan", "--set", "parallel.sequence_parallel", "="}) ==
        "true false\n");
  CHECK(offered({"trainctl", "explain", "world-s"}) == "world-size\n");
  CHECK(contains(offered({"trainctl", "explain", "model.hidden_"}), "model.hidden_size"));
}

TEST_CASE("every shell gets the options that the help shows") {
  for (const char* shell : {"bash", "zsh", "fish"}) {
    const Outcome script = trainctl({"completion", shell});
    CHECK(script.exit_code == 0);
    CHECK(script.err.empty());
    const std::string dashes = std::string(shell) == "fish" ? "-l " : "--";
    for (const char* command : {"train", "plan", "generate", "evaluate", "migrate"}) {
      std::istringstream help(trainctl({command, "--help"}).out);
      for (std::string word; help >> word;) {
        if (word.rfind("--", 0) != 0 || word.size() < 4) continue;
        std::string name = word.substr(2, word.find_first_of(",=", 2) - 2);
        CAPTURE(shell);
        CAPTURE(command);
        if (name.find_first_not_of("abcdefghijklmnopqrstuvwxyz-") != std::string::npos) continue;
        CAPTURE(name);
        CHECK(contains(script.out, dashes + name));
      }
    }
  }
  CHECK(trainctl({"completion", "tcsh"}).exit_code == 2);
}

TEST_CASE("the configuration may be a plain word or follow -c") {
  const TempDir dir;
  const std::string config = dir.write("a.yaml", small_config());
  CHECK(trainctl({"validate", config}).exit_code == 0);
  CHECK(trainctl({"validate", "-c", config}).exit_code == 0);
  CHECK(trainctl({"plan", config, "--world-size", "2"}).exit_code == 0);
  CHECK(trainctl({"validate", config, "--config", config}).exit_code == 2);
  CHECK(trainctl({"train", "--quiet", "--verbose", config}).exit_code == 2);
  const Outcome typo = trainctl({"validate", dir / "none.yaml"});
  CHECK(typo.exit_code == 66);
}

TEST_CASE("plan -o replaces nothing unasked") {
  const TempDir dir;
  const std::string config = dir.write("a.yaml", small_config());
  const std::string page = dir.write("plan.html", "mine");
  CHECK(trainctl({"plan", config, "--format", "html", "-o", page}).exit_code == 2);
  CHECK(read_file(page) == "mine");
  CHECK(trainctl({"plan", config, "--format", "html", "-o", page, "--force"}).exit_code == 0);
  CHECK(contains(read_file(page), "<html"));
}
