// ${NAME} and ${NAME:-default} in values.
#include <cstdlib>
#include <map>

#include "catch.h"
#include "config/yaml/tree.h"
#include "config_text.h"

namespace trainctl::test {
namespace {

ReadResult read_where(const std::string& text,
                      const std::map<std::string, std::string>& variables) {
  Surroundings around;
  around.variable = [&variables](const std::string& name) -> std::optional<std::string> {
    const auto found = variables.find(name);
    if (found == variables.end()) return std::nullopt;
    return found->second;
  };
  return read_config_text(good_model + good_data + good_lr + text, "t.yaml", {}, around);
}

ReadResult read_dir(const std::string& value,
                    const std::map<std::string, std::string>& variables = {}) {
  return read_where(good_train + "output:\n  dir: " + value + "\n", variables);
}

std::string dir_of(const std::string& value,
                   const std::map<std::string, std::string>& variables = {}) {
  const ReadResult result = read_dir(value, variables);
  return found(result).empty() ? result.config.output.dir : found(result).front();
}

}  // namespace

TEST_CASE("a variable in a plain value is typed after it is replaced") {
  const std::string text = "train:\n  steps: ${STEPS:-10}\n  global_batch_size: ${BATCH}\n";
  const ReadResult result = read_where(text, {{"BATCH", "0x10"}});
  CHECK(found(result).empty());
  CHECK(result.config.train.steps == 10);
  CHECK(result.config.train.global_batch_size == 16);
  CHECK(result.sources.find("train.steps").to_string() == "t.yaml:5:10, default of ${STEPS}");
  CHECK(result.sources.find("train.global_batch_size").to_string() == "t.yaml:6:22, from ${BATCH}");
  CHECK(result.sources.find("train.steps").position() == "t.yaml:5:10");
}

TEST_CASE("variables work in maps and lists in brackets") {
  const ReadResult result = read_where(
      "train: {steps: ${STEPS:-10}, global_batch_size: ${B:-4}}\n"
      "parallel: {hierarchical_context_parallel_sizes: [${A:-2}, 4], context_parallel: 8}\n",
      {{"STEPS", "12"}});
  CHECK(found(result).empty());
  CHECK(result.config.train.steps == 12);
  CHECK(result.config.train.global_batch_size == 4);
  CHECK(result.config.parallel.hierarchical_context_parallel_sizes == IntList{2, 4});
}

TEST_CASE("text around variables, several variables, and dollars") {
  CHECK(dir_of("runs/${A}-${B:-b}", {{"A", "a"}}) == "runs/a-b");
  CHECK(dir_of("\"${A} x\"", {{"A", "a"}}) == "a x");
  CHECK(dir_of("'${A}'", {{"A", "a"}}) == "${A}");
  CHECK(dir_of("|-\n    ${A}", {{"A", "a"}}) == "${A}");
  CHECK(dir_of("$${A} $5 $$", {{"A", "a"}}) == "${A} $5 $");
  CHECK(dir_of("${A}", {{"A", "${B}"}, {"B", "b"}}) == "${B}");
  CHECK(dir_of("${A:-x: y, {z} #1}") == "x: y, {z");
  CHECK(dir_of("${A:-x: y #1}") == "x: y #1");
  CHECK(dir_of("\"${A:-}/x\"") == "/x");
  CHECK(dir_of("${EMPTY:-used}", {{"EMPTY", ""}}) == "used");
  CHECK(dir_of("\"${EMPTY}x\"", {{"EMPTY", ""}}) == "x");
  const ReadResult two = read_dir("${A}-${B:-b}", {{"A", "a"}});
  CHECK(two.sources.find("output.dir").note == "from ${A}, default of ${B}");
}

TEST_CASE("a plain value that becomes empty is null, one in quotes is a string") {
  CHECK(found(read_dir("${A:-}")) == std::vector<std::string>{"wrong-type output.dir 6:8"});
  CHECK(found(read_dir("\"${A:-}\"")) == std::vector<std::string>{"out-of-range output.dir 6:8"});
  CHECK(found(read_where("train: {steps: \"${S:-10}\", global_batch_size: 4}\n", {})) ==
        std::vector<std::string>{"wrong-type train.steps 4:16"});
}

TEST_CASE("a variable that is not set is one error, at its place") {
  const ReadResult result = read_where("train: {steps: ${STEPS}, global_batch_size: 4}\n", {});
  const Diagnostic diagnostic = only(result);
  CHECK(diagnostic.code == "unset-variable");
  CHECK(diagnostic.path == "train.steps");
  CHECK(diagnostic.message == "the environment variable STEPS is not set");
  CHECK(diagnostic.help == "set it, or give a default: ${STEPS:-value}");
  CHECK(diagnostic.place.column == 16);
  CHECK(diagnostic.place.end_column == 24);
  const Diagnostic renamed =
      only(read_where(good_train + "parallel_config: {model_parallel: ${TP}}\n", {}));
  CHECK(renamed.code == "unset-variable");
  CHECK(renamed.path == "parallel.tensor_parallel");
}

TEST_CASE("what looks like a variable and is none") {
  for (const char* value : {"\"${}\"", "\"${1}\"", "\"${A-b}\"", "\"${A\"", "\"${A B}\""}) {
    CAPTURE(value);
    const Diagnostic diagnostic = only(read_dir(value));
    CHECK(diagnostic.code == "bad-variable");
    CHECK(diagnostic.message == "expected a variable name after ${");
    CHECK(diagnostic.help == "write ${NAME} or ${NAME:-default}; write $$ for a dollar sign");
  }
  const Diagnostic bytes = only(read_dir("${A}", {{"A", "\xff"}}));
  CHECK(bytes.code == "bad-variable");
  CHECK(bytes.message == "the value of ${A} is not valid UTF-8");
}

TEST_CASE("variables in keys are not replaced") {
  CHECK(found(read_where(good_train + "log: {\"${A}\": 5}\n", {{"A", "every"}})) ==
        std::vector<std::string>{"unknown-key log.${A} 5:7"});
}

TEST_CASE("an aliased variable keeps its place, and a mistake in its value says where it is from") {
  const ReadResult result =
      read_where("train: {steps: &n ${N}, global_batch_size: *n}\n", {{"N", "x"}});
  CHECK(found(result).size() == 2);
  CHECK(contains(render_text(result.diagnostics, false),
                 "t.yaml:4:19: error[wrong-type]: train.steps: \"x\" is not a whole number\n"
                 "   4 | train: {steps: &n ${N}, global_batch_size: *n}\n"
                 "     |                   ^~~~\n"
                 "     note: the value is from ${N}\n"));
}

TEST_CASE("the process's environment serves where no other is given") {
  setenv("TRAINCTL_TEST_STEPS", "21", 1);
  const ReadResult result = read(good_model + good_data + good_lr +
                                 "train: {steps: ${TRAINCTL_TEST_STEPS}, global_batch_size: 4}\n");
  unsetenv("TRAINCTL_TEST_STEPS");
  CHECK(found(result).empty());
  CHECK(result.config.train.steps == 21);
}

TEST_CASE("the dump of a value with dollars reads back") {
  for (const char* value : {"'${A}'", "'a$$b'", "'$$${X}'", "a$b"}) {
    CAPTURE(value);
    const ReadResult result = read_dir(value);
    REQUIRE(found(result).empty());
    const ReadResult again = read(dump_config(result.config, nullptr));
    CHECK(found(again).empty());
    CHECK(again.config.output.dir == result.config.output.dir);
  }
}

TEST_CASE("masking hides nothing but what is inside a variable") {
  for (const char* text : {"a: {b: ${C:-d}}", "['${', '}']", "$${a}", "${a", "a: '${x:-\"}'"}) {
    CAPTURE(text);
    std::string masked = mask_variables(text);
    CHECK(masked.size() == std::string(text).size());
    unmask_variables(masked);
    CHECK(masked == text);
  }
  CHECK(mask_variables("['${', '}']") == "['${', '}']");
  CHECK(mask_variables("{a: ${B:-1}}").find("${") == std::string::npos);
}

}  // namespace trainctl::test
