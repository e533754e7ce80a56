// Single values: what is accepted, what is refused, and what is suggested instead.
#include <limits>

#include "catch.h"
#include "config/schema/values.h"
#include "config/yaml/numbers.h"
#include "config_text.h"

namespace trainctl::test {
namespace {

/// Reads `section: {key: value}` in addition to what a configuration needs.
ReadResult read_with(const std::string& path, const std::string& value) {
  const std::size_t dot = path.find('.');
  const std::string section = path.substr(0, dot);
  std::string text;
  for (const std::string& line : {good_model, good_data, good_train, good_lr}) {
    const bool here = line.starts_with(section + ":");
    std::string shown = line;
    if (here) shown.insert(line.rfind('}'), ", " + path.substr(dot + 1) + ": " + value);
    text += shown;
  }
  if (!contains(text, path.substr(dot + 1) + ": " + value)) {
    text += section + ": {" + path.substr(dot + 1) + ": " + value + "}\n";
  }
  return read(text);
}

struct Refused {
  std::string path;
  std::string value;
  std::string code;
  std::string help;
};

}  // namespace

TEST_CASE("whole numbers") {
  CHECK(read_with("parallel.bucket_size", "3000000000").config.parallel.bucket_size == 3000000000);
  CHECK(read_with("parallel.bucket_size", "+5").config.parallel.bucket_size == 5);
  CHECK(read_with("train.seed", "0x10").config.train.seed == 16);
  CHECK(read_with("train.seed", "18446744073709551615").config.train.seed ==
        std::numeric_limits<std::uint64_t>::max());
  CHECK(read_with("train.validate_every", "9223372036854775807").config.train.validate_every ==
        std::numeric_limits<std::int64_t>::max());
}

TEST_CASE("numbers that are refused, with what was meant") {
  const std::vector<Refused> cases{
      {"log.every", "010", "wrong-type", "write 10"},
      {"log.every", "-007", "wrong-type", ""},
      {"log.every", "1_000", "wrong-type", "write 1000"},
      {"log.every", "1e3", "wrong-type", "write 1000"},
      {"log.every", "5.0", "wrong-type", "write 5"},
      {"log.every", "4.5", "wrong-type", ""},
      {"log.every", "0b11", "wrong-type", ""},
      {"log.every", "0x", "wrong-type", ""},
      {"log.every", "ten", "wrong-type", ""},
      {"log.every", "'5'", "wrong-type", "write 5"},
      {"log.every", "\"1e3\"", "wrong-type", "write 1000"},
      {"log.every", "true", "wrong-type", ""},
      {"log.every", "~", "wrong-type", "remove it: without it the default holds"},
      {"log.every", "[5]", "wrong-type", "write 5"},
      {"log.every", "10%", "wrong-type", ""},
      {"optimizer.beta1", "1_000", "wrong-type", ""},
      {"log.every", "{a: 5}", "wrong-type", ""},
      {"log.every", "0", "out-of-range", ""},
      {"log.every", "-1", "out-of-range", ""},
      {"log.every", "9223372036854775808", "out-of-range", ""},
      {"train.seed", "-1", "out-of-range",
       "remove it: without it the default seed holds, and runs repeat"},
      {"train.seed", "18446744073709551616", "out-of-range", ""},
      {"optimizer.eps", "0", "out-of-range", ""},
      {"optimizer.beta1", "1", "out-of-range", ""},
      {"optimizer.beta1", "-0.1", "out-of-range", ""},
      {"optimizer.eps", ".inf", "out-of-range", ""},
      {"optimizer.eps", "-.INF", "out-of-range", ""},
      {"optimizer.eps", ".nan", "out-of-range", ""},
      {"optimizer.eps", "nan", "out-of-range", ""},
      {"optimizer.eps", "1e999", "out-of-range", ""},
      {"optimizer.eps", "1e-999", "out-of-range", ""},
      {"optimizer.eps", "1e", "wrong-type", ""},
      {"optimizer.eps", "1_0.5", "wrong-type", "write 10.5"},
      {"optimizer.eps", "00.5", "wrong-type", "write 0.5"},
      {"optimizer.eps", "\"0.5\"", "wrong-type", "write 0.5"},
      {"optimizer.eps", "0.5f", "wrong-type", ""},
  };
  for (const Refused& refused : cases) {
    CAPTURE(refused.path, refused.value);
    const Diagnostic diagnostic = only(read_with(refused.path, refused.value));
    CHECK(diagnostic.code == refused.code);
    CHECK(diagnostic.path == refused.path);
    CHECK(diagnostic.help == refused.help);
  }
  const ReadResult comma = read(good_text + "optimizer:\n  eps: 0,01\n");
  CHECK(only(comma).help == "write 0.01");
}

TEST_CASE("a list of one number, and words for nothing") {
  CHECK(only(read_with("checkpoint.every", "[4]")).help == "write 4");
  CHECK(only(read_with("checkpoint.every", "[a]")).help.empty());
  CHECK(only(read_with("optimizer.beta1", "[0.9]")).help == "write 0.9");
  const std::string remove = "remove it: without it the default holds";
  for (const char* nothing : {"None", "none", "auto", "~"}) {
    CAPTURE(nothing);
    CHECK(only(read_with("train.micro_batch_size", nothing)).help == remove);
  }
  // Where 0 says it.
  for (const char* never : {"None", "never", "off", "false"}) {
    CAPTURE(never);
    CHECK(only(read_with("checkpoint.every", never)).help == "write 0");
    CHECK(only(read_with("optimizer.clip_grad_norm", never)).help == "write 0");
  }
  CHECK(only(read_with("checkpoint.every", "~")).help == remove);
  CHECK(only(read_with("checkpoint.keep", "all")).help == "write 0");
  CHECK(only(read_with("optimizer.type", "[adamw]")).help == "write adamw");
}

TEST_CASE("range messages state the numbers of the rule") {
  CHECK(only(read_with("log.every", "0")).message == "must be at least 1, found 0");
  CHECK(only(read_with("optimizer.beta1", "1.5")).message ==
        "must be at least 0 and below 1, found 1.5");
  CHECK(contains(only(read_with("parallel.device_num", "0")).message, "1 to 1000000"));
}

TEST_CASE("numbers with a fraction") {
  for (const auto& [text, value] : std::vector<std::pair<std::string, double>>{
           {"3e-4", 3e-4}, {"3.0E-4", 3e-4}, {".5", 0.5}, {"+0.25", 0.25}, {"7", 7.0}, {"2.", 2}}) {
    CAPTURE(text);
    CHECK(read_with("optimizer.clip_grad_norm", text).config.optimizer.clip_grad_norm == value);
  }
}

TEST_CASE("true and false, and nothing like them") {
  CHECK(read_with("log.color", "false").config.log.color == false);
  CHECK(read_with("log.color", "true").config.log.color == true);
  CHECK(read_with("log.color", "True").config.log.color == true);
  CHECK(read_with("log.color", "FALSE").config.log.color == false);
  const std::vector<std::pair<std::string, std::string>> cases{
      {"yes", "write true"},
      {"On", "write true"},
      {"y", "write true"},
      {"1", "write true"},
      {"\"true\"", "write true"},
      {"no", "write false"},
      {"off", "write false"},
      {"0", "write false"},
      {"maybe", ""},
      {"~", ""},
  };
  for (const auto& [value, help] : cases) {
    CAPTURE(value);
    const Diagnostic diagnostic = only(read_with("log.color", value));
    CHECK(diagnostic.code == "wrong-type");
    CHECK(diagnostic.help == help);
  }
}

TEST_CASE("strings") {
  CHECK(read_with("output.dir", "\"a # b\"").config.output.dir == "a # b");
  CHECK(read_with("output.dir", "a b").config.output.dir == "a b");
  CHECK(read_with("output.dir", "12").config.output.dir == "12");
  CHECK(read_with("data.tokenizer", "sentencepiece:m.model").config.data.tokenizer ==
        "sentencepiece:m.model");
  CHECK(only(read_with("output.dir", "\"\"")).code == "out-of-range");
  CHECK(only(read_with("output.dir", "null")).code == "wrong-type");
  CHECK(only(read_with("output.dir", "[a]")).code == "wrong-type");
  CHECK(only(read_with("output.dir", "\"a\\nb\"")).code == "control-character");
  CHECK(only(read_with("data.tokenizer", "\"sentencepiece:\"")).code == "bad-word");
  CHECK(only(read_with("data.tokenizer", "byt")).help == "did you mean byte?");
  CHECK(only(read_with("parallel.device", "gpu")).message ==
        "must be auto, cpu or cuda, found \"gpu\"");
  CHECK(found(read_with("data.cache_dir", "\"\"")).empty());
}

TEST_CASE("words") {
  CHECK(read_with("lr_schedule.style", "WSD").config.lr_schedule.style == LrStyle::wsd);
  CHECK(read_with("lr_schedule.style", "wsd").config.lr_schedule.style == LrStyle::wsd);
  for (const char* word : {"inverse-square-root", "inverse_square_root"}) {
    CHECK(read_with("lr_schedule.style", word).config.lr_schedule.style ==
          LrStyle::inverse_square_root);
  }
  CHECK(read_with("precision.compute", "fp16").config.precision.compute == ComputeType::fp16);
  const Diagnostic wrong = only(read_with("lr_schedule.style", "cosin"));
  CHECK(wrong.code == "bad-word");
  CHECK(wrong.help == "did you mean cosine?");
  CHECK(contains(wrong.message, "constant, linear, cosine, inverse-square-root or WSD"));
  CHECK(only(read_with("precision.compute", "BF16")).help == "did you mean bf16?");
  CHECK(only(read_with("precision.compute", "[bf16]")).code == "wrong-type");
}

TEST_CASE("training data: a path, paths, or paths with weights") {
  const auto train = [](const std::string& value) {
    return read(good_model + good_train + good_lr + "data: {train: " + value + "}\n");
  };
  using Sources = std::vector<DataSource>;
  CHECK(train("a").config.data.train == Sources{{"a", 1.0}});
  CHECK(train("[a, b]").config.data.train == Sources{{"a", 1.0}, {"b", 1.0}});
  CHECK(train("[{path: a, weight: 0.25}, b]").config.data.train ==
        Sources{{"a", 0.25}, {"b", 1.0}});
  CHECK(found(train("[]")) == std::vector<std::string>{"out-of-range data.train 4:15"});
  CHECK(found(train("~")) == std::vector<std::string>{"wrong-type data.train 4:15"});
  CHECK(found(train("{path: a}")) == std::vector<std::string>{"wrong-type data.train 4:15"});
  CHECK(found(train("[a, [b], ~, \"\", {weight: 2}, {path: c, wieght: 2}]")) ==
        std::vector<std::string>{"wrong-type data.train.1 4:19", "wrong-type data.train.2 4:24",
                                 "out-of-range data.train.3 4:27",
                                 "unknown-key data.train.5.wieght 4:54",
                                 "missing-key data.train.4.path 4:31"});
}

TEST_CASE("numbers are written so that they come back, for YAML 1.1 too") {
  CHECK(write_value(3e-4) == "3.0e-04");
  CHECK(write_value(0.1) == "0.1");
  CHECK(write_value(1.0) == "1.0");
  CHECK(write_value(500000.0) == "500000.0");
  CHECK(write_value(1e300) == "1.0e+300");
  CHECK(write_value(-2.5e-9) == "-2.5e-09");
  for (double value : {0.1, 1.0 / 3, 5e-324, 1.7976931348623157e308, 123456789.125}) {
    double back = 0;
    CHECK(!parse_number(write_value(value), back));
    CHECK(back == value);
  }
}

TEST_CASE("strings are quoted where YAML would take them for something else") {
  for (const char* plain : {"gpt2", "runs/default", "/a/b.bin", "a-b_c.d"}) {
    CHECK(write_value(std::string(plain)) == plain);
  }
  for (const char* quoted : {"", "yes", "No", "null", "~", "12", "1e3", "true", "y", "a b", "a: b",
                             "#a", "-a", ".inf", "é", "a,b", "[a", "*a"}) {
    CHECK(write_value(std::string(quoted)) == "\"" + std::string(quoted) + "\"");
  }
  CHECK(write_value(std::string("a\"\\")) == "\"a\\\"\\\\\"");
}

}  // namespace trainctl::test
