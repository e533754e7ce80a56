#include "catch.h"
#include "config_text.h"

namespace trainctl::test {

TEST_CASE("--set replaces, adds and makes sections; the last one wins") {
  const ReadResult result =
      read(good_text, {"train.steps=77", "log.every=3", "train.steps=78", "optimizer.eps=1e-6",
                       "model.rope_scaling.factor=8", "output.dir=a #b: c"});
  CHECK(found(result).empty());
  CHECK(result.config.train.steps == 78);
  CHECK(result.config.train.global_batch_size == 4);
  CHECK(result.config.log.every == 3);
  CHECK(result.config.optimizer.eps == 1e-6);
  CHECK(result.config.model.rope_scaling.factor == 8.0);
  CHECK(result.config.output.dir == "a #b: c");
  CHECK(result.sources.find("train.steps").to_string() == "--set train.steps=78");
  CHECK(result.sources.find("train.global_batch_size").to_string() == "t.yaml:3:39");
}

TEST_CASE("--set takes lists, maps and quoted strings as YAML") {
  const ReadResult result = read(good_text, {"data.train=[a, {path: b, weight: 2}]",
                                             "log={every: 7, color: false}", "output.dir=\"12\""});
  CHECK(found(result).empty());
  CHECK(result.config.data.train == std::vector<DataSource>{{"a", 1.0}, {"b", 2.0}});
  CHECK(result.config.log.every == 7);
  CHECK_FALSE(result.config.log.color);
  CHECK(result.config.output.dir == "12");
}

TEST_CASE("--set meets the same checks, at its own place") {
  const auto one = [](const std::string& argument) { return only(read(good_text, {argument})); };
  CHECK(one("train.stps=5").code == "unknown-key");
  CHECK(one("train.stps=5").help == "did you mean steps?");
  CHECK(one("train.stps=5").place.to_string() == "--set train.stps=5");
  CHECK(one("train.stps=5").place.column == 7);
  CHECK(one("train.steps=x").code == "wrong-type");
  CHECK(one("train.steps=x").place.column == 13);
  CHECK(one("train.steps=0").code == "out-of-range");
  CHECK(one("train.steps=").code == "wrong-type");
  CHECK(one("train.steps=010").help == "write 10");
  CHECK(one("train.steps=\"5\"").help == "write 5");
  CHECK(one("train.steps.x=5").code == "wrong-type");
  CHECK(one("train=5").code == "wrong-type");
  CHECK(one("parallel.seq_split_num=2").code == "not-built");
  CHECK(one("lr_schedule.style=cosin").code == "bad-word");
  CHECK(one("log={every: 7, every: 8}").code == "duplicate-key");
  CHECK(one("data.train=[a, ").code != "");
  CHECK(one("data.train=[a] b").place.origin == Place::Origin::set_option);
  CHECK(one("output.dir=\"a").code == "unterminated-quote");
  CHECK(one("output.dir=\"a").place.column == 12);
}

TEST_CASE("--set arguments without path=value") {
  for (const char* argument : {"", "train", "=5", ".steps=5", "train.=5", "train..steps=5"}) {
    CAPTURE(argument);
    const Diagnostic diagnostic = only(read(good_text, {argument}));
    CHECK(diagnostic.code == "bad-set");
    CHECK(diagnostic.place.origin == Place::Origin::set_option);
  }
  CHECK(only(read(good_text, {"output.dir=a\nb"})).code == "control-character");
  CHECK(only(read(good_text, {"output.dir=\xff"})).code == "encoding");
}

TEST_CASE("--set does not reach what an alias shows elsewhere") {
  const std::string text = good_model + good_data + good_lr +
                           "train: {steps: 10, global_batch_size: 4}\n"
                           "log: &l {every: 3}\n";
  const ReadResult result = read(text, {"log.every=4"});
  CHECK(result.config.log.every == 4);
  const ReadResult shared = read(good_text + "output: &o {dir: a}\nlog: *o\n", {"output.dir=b"});
  CHECK(found(shared) == std::vector<std::string>{"unknown-key log.dir 5:13"});
  CHECK(shared.config.output.dir == "b");
}

TEST_CASE("a mistake in the file that --set replaces is gone") {
  CHECK(found(read(good_text + "log: {every: x}\n", {"log.every=5"})).empty());
}

}  // namespace trainctl::test
