// trainctl verify of the small models in all layouts.
#include <nlohmann/json.hpp>

#include "catch.h"
#include "process.h"
#include "thorough.h"

using Json = nlohmann::json;

namespace {

void check_small_model(const std::string& model, const std::string& ranks,
                       const std::string& precision, const std::string& layouts = "all") {
  const std::string config = TRAINCTL_SOURCE_DIR "/configs/verify-" + model + ".yaml";
  const Outcome outcome =
      trainctl({"verify", "--config", config, "--world-size", ranks, "--layouts", layouts,
                "--steps", "1", "--format", "json", "--set", "precision.compute=" + precision});
  INFO(model << " " << ranks << " " << precision << outcome.err << outcome.out);
  REQUIRE(outcome.exit_code == 0);
  const Json json = Json::parse(outcome.out);
  CHECK(json["layouts"].size() >= (ranks == "1" || layouts == "quick" ? 9 : 20));
  CHECK(json["not_run"] == 0);
}

}  // namespace

// By default tests/verify runs those of two ranks, and samples those of four and eight.
TEST_CASE("a small model is equal in all layouts") {
  check_small_model("gpt2", "1", "fp32");
  if (!thorough()) return;
  for (const char* model : {"gpt2", "llama"}) {
    check_small_model(model, "2", "fp32");
    check_small_model(model, "4", "fp32");
    for (const char* ranks : {"8", "12"}) {
      for (const char* type : {"fp32", "bf16", "fp16"}) check_small_model(model, ranks, type);
    }
  }
}

// By default tests/verify samples their layouts.
TEST_CASE("five models that have every form of a layer are equal in all layouts", "[thorough]") {
  if (!thorough()) return;
  for (const std::string model : {"chunks", "gates", "post-norms", "sinks", "windows"}) {
    check_small_model("forms/" + model, "4", "fp32");
    for (const char* type : {"fp32", "bf16"}) {
      check_small_model("forms/" + model, "8", type, "quick");
    }
  }
}
