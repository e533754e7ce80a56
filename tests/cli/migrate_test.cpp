// trainctl migrate, validate --explain and the annotations, as a user sees them.
#include <filesystem>

#include "catch.h"
#include "process.h"

namespace {

const std::string old_names = "# a run\n\nparallel_config: {model_parallel: 1}  # one\n";

}  // namespace

TEST_CASE("migrate writes to standard output, to a file, or in place") {
  const TempDir dir;
  const std::string file = dir.write("old.yaml", old_names + small_config());
  const Outcome printed = trainctl({"migrate", file});
  INFO(printed.err);
  CHECK(printed.exit_code == 0);
  CHECK(printed.out.rfind("# a run\n\nmodel:\n", 0) == 0);
  CHECK(contains(printed.out, "parallel:  # one\n  tensor_parallel: 1\n"));
  CHECK(read_file(file) == old_names + small_config());

  const Outcome written = trainctl({"migrate", file, "-o", dir / "new.yaml"});
  CHECK(written.exit_code == 0);
  CHECK(written.out.empty());
  CHECK(read_file(dir / "new.yaml") == printed.out);

  CHECK(trainctl({"migrate", "--in-place", file}).exit_code == 0);
  CHECK(read_file(file) == printed.out);
  CHECK(trainctl({"validate", "--config", file}).exit_code == 0);
  std::size_t files = 0;
  for (const auto& entry : std::filesystem::directory_iterator(dir.path())) {
    files += entry.is_regular_file() ? 1 : 0;
  }
  CHECK(files == 2);
}

TEST_CASE("migrate does not replace its own input unasked, nor write what it cannot read") {
  const TempDir dir;
  const std::string file = dir.write("old.yaml", small_config());
  const Outcome same = trainctl({"migrate", file, "-o", file});
  CHECK(same.exit_code == exits::usage);
  CHECK(contains(same.err, "--output names FILE itself; use --in-place to replace it"));
  CHECK(read_file(file) == small_config());
  CHECK(trainctl({"migrate", file, "--in-place", "-o", dir / "x"}).exit_code == exits::usage);
  CHECK(trainctl({"migrate"}).exit_code == exits::usage);
  CHECK(trainctl({"migrate", dir / "absent.yaml"}).exit_code == exits::missing_input);
  CHECK(trainctl({"migrate", file, "-o", dir / "no/folder/x"}).exit_code == exits::io);
  const Outcome broken = trainctl({"migrate", dir.write("b.yaml", "a: \"x\n"), "-o", dir / "x"});
  CHECK(broken.exit_code == exits::invalid);
  CHECK(contains(broken.err, "b.yaml:1:4: error[unterminated-quote]"));
  CHECK_FALSE(std::filesystem::exists(dir / "x"));
}

TEST_CASE("migrate lists what it could not carry") {
  const TempDir dir;
  const std::string file = dir.write(
      "m.yaml",
      small_config() + "run_mode: train\nrunner_config:\n  epochs: 2\ncallbacks: [{type: A}]\n");
  const Outcome outcome = trainctl({"migrate", file});
  CHECK(outcome.exit_code == 0);
  CHECK(contains(outcome.err,
                 "m.yaml:8:3: warning[not-carried]: runner_config.epochs: ignored: "
                 "train.steps is given\n"));
  CHECK(contains(outcome.err, "m.yaml:9:1: warning[not-carried]: callbacks: "));
  CHECK(contains(outcome.err, "2 warnings\n"));
  CHECK_FALSE(contains(outcome.out, "epochs"));
}

TEST_CASE("migrate refuses values that cannot be, and control characters") {
  const TempDir dir;
  const auto migrated = [&](const std::string& text) {
    return trainctl({"migrate", "--from", "megatron-args", dir.write("m.sh", text)});
  };
  const std::string start = "python pretrain_gpt.py --hidden-size 64 --num-attention-heads 4 ";
  CHECK(migrated(start + "--num-layers 2\n").exit_code == 0);
  for (const char* wrong : {"--num-layers banana", "--num-layers -5", "--num-layers 2.5"}) {
    const Outcome outcome = migrated(start + wrong + "\n");
    INFO(outcome.err);
    CHECK(outcome.exit_code == exits::invalid);
    CHECK(outcome.out.empty());
    CHECK(contains(outcome.err, "num_layers"));
  }
  const Outcome control = migrated(start + "--lr 1e-3\x1b[2J\n");
  CHECK(control.exit_code == exits::invalid);
  CHECK(contains(control.err, "m.sh:1:74: error[control-character]"));
  CHECK_FALSE(contains(control.err, "\x1b"));
}

TEST_CASE("validate --explain shows one value, whatever else is wrong") {
  const TempDir dir;
  dir.write("base.yaml", small_config());
  const std::string file =
      dir.write("t.yaml", "include: base.yaml\nlog: {every: ${TRAINCTL_EVERY:-7}, levl: info}\n");
  const auto explain = [&](const std::string& path) {
    return trainctl({"validate", "--config", file, "--explain", path}, {"TRAINCTL_EVERY=9"});
  };
  const Outcome every = explain("log.every");
  INFO(every.err);
  CHECK(every.exit_code == 0);
  CHECK(contains(every.out,
                 "log.every = 9\n  from        " + file + ":2:14, from ${TRAINCTL_EVERY}\n"));
  CHECK(contains(explain("model.hidden_size").out, "base.yaml:1:"));
  CHECK(contains(explain("model.hidden_size").out, ", included by " + file + ":1:10\n"));
  CHECK(contains(explain("log").out, "log: Messages and traces\n"));
  CHECK(explain("").exit_code == exits::usage);
  const Outcome unknown = explain("model.hiden_size");
  CHECK(unknown.exit_code == exits::usage);
  CHECK(contains(unknown.err,
                 "--explain model.hiden_size: unknown key; did you mean "
                 "model.hidden_size?"));
  const Outcome broken =
      trainctl({"validate", "--config", dir.write("b.yaml", "a: \"x\n"), "--explain", "log"});
  CHECK(broken.exit_code == exits::invalid);
  CHECK(contains(broken.err, "unterminated-quote"));
}

TEST_CASE("validate and plan annotate for GitHub") {
  const TempDir dir;
  const std::string file = dir.write("t.yaml", small_config() + "log: {evry: 5}\n");
  for (const char* command : {"validate", "plan"}) {
    CAPTURE(command);
    const Outcome outcome = trainctl({command, "--config", file, "--format", "github"});
    CHECK(outcome.exit_code == exits::invalid);
    CHECK(outcome.out == "::error file=" + file +
                             ",line=6,col=7,endColumn=11,title=unknown-key::log.evry: unknown "
                             "key \"evry\" in log%0Ahelp: did you mean every?\n");
    CHECK(outcome.err.empty());
  }
}

TEST_CASE("migrate --from reads other projects' files, and writes over nothing unasked") {
  const TempDir dir;
  const std::string python = dir.write("train_tiny.py",
                                       "dataset = 'tiny'\nn_layer = 2\nn_head = 2\nn_embd = 16\n"
                                       "block_size = 8\nbatch_size = 4\n"
                                       "gradient_accumulation_steps = 1\nmax_iters = 5\n"
                                       "lr_decay_iters = 5\nwarmup_iters = 1\neval_iters = 1\n"
                                       "compile = False\n");
  const std::string file = dir / "tiny.yaml";
  const Outcome written = trainctl({"migrate", "--from", "nanogpt", python, "-o", file});
  INFO(written.err);
  CHECK(written.exit_code == 0);
  CHECK(contains(written.err, "compile false: not carried: the kernels are compiled"));
  CHECK(contains(read_file(file), "  num_layers: 2  # n_layer 2, line 2\n"));
  const std::string tokens(400, '\0');
  const std::string data = dir.write("train.bin", tokens);
  const Outcome trained =
      trainctl({"train", file, "--set", "data.train=" + data, "--set",
                "data.validation.path=" + data, "--output", dir / "run", "--quiet"});
  INFO(trained.err);
  CHECK(trained.exit_code == 0);
  CHECK(trained.err.empty());

  const Outcome again = trainctl({"migrate", "--from", "nanogpt", python, "-o", file});
  CHECK(again.exit_code == exits::usage);
  CHECK(contains(again.err, "tiny.yaml is there already; --force replaces it"));
  CHECK(trainctl({"migrate", "--from", "nanogpt", python, "-o", file, "--force"}).exit_code == 0);
  CHECK(trainctl({"migrate", "--from", "nanogpt", python, "--in-place"}).exit_code == exits::usage);
  CHECK(trainctl({"migrate", "--from", "pytorch", python}).exit_code == exits::usage);
  const Outcome mistaken = trainctl({"migrate", "--from", "megatron-args", python});
  CHECK(mistaken.exit_code == exits::invalid);
  CHECK(contains(mistaken.err, "no keys of Megatron found"));
}
