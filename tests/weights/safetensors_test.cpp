#include "weights/safetensors.h"

#include <cstring>
#include <fstream>
#include <iterator>

#include "base/error.h"
#include "catch.h"
#include "plan/tables/params.h"
#include "weights/export.h"
#include "weights/hugging_face.h"

using namespace trainctl;

namespace {

std::filesystem::path temporary(const std::string& name) {
  const auto folder = std::filesystem::temp_directory_path() / "trainctl-safetensors-test";
  std::filesystem::create_directories(folder);
  return folder / name;
}

std::string slurp(const std::filesystem::path& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

void spit(const std::filesystem::path& path, const std::string& bytes) {
  std::ofstream(path, std::ios::binary)
      .write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
}

/// A file with that header and `data` bytes behind it.
std::string with_header(const std::string& header, std::size_t data) {
  const std::uint64_t length = header.size();
  std::string bytes(8, '\0');
  std::memcpy(bytes.data(), &length, 8);
  return bytes + header + std::string(data, '\0');
}

std::string refusal_of(const std::string& bytes) {
  const auto path = temporary("bad.safetensors");
  spit(path, bytes);
  try {
    SafetensorsFile file(path);
  } catch (const Error& error) {
    CHECK(error.code() == ExitCode::bad_data);
    return error.what();
  }
  return "no error";
}

}  // namespace

TEST_CASE("what is written is read back, in the order the format wants") {
  const auto path = temporary("round.safetensors");
  write_safetensors(path, {{"b",
                            {3},
                            DType::bf16,
                            [](const Tensor& to) {
                              for (int i = 0; i < 3; ++i)
                                to.as<bf16>()[i] = to_bf16(static_cast<float>(i));
                            }},
                           {"z", {2, 2}, DType::f32, [](const Tensor& to) {
                              for (int i = 0; i < 4; ++i)
                                to.as<float>()[i] = static_cast<float>(i) + 0.5F;
                            }}});
  const std::string bytes = slurp(path);
  std::uint64_t length = 0;
  std::memcpy(&length, bytes.data(), 8);
  CHECK(length % 8 == 0);
  CHECK(bytes.substr(8, length).find("\"z\"") < bytes.substr(8, length).find("\"b\""));
  const SafetensorsFile file(path);
  CHECK(file.names() == std::vector<std::string>{"b", "z"});
  CHECK(file.at("z").shape == Shape{2, 2});
  CHECK(file.at("z").as<float>()[3] == 3.5F);
  CHECK(to_float(file.at("b").as<bf16>()[2]) == 2.0F);
  CHECK_THROWS_WITH(file.at("c"), Catch::Contains("has no tensor 'c'"));
}

TEST_CASE("broken files are refused") {
  using Catch::Contains;
  CHECK_THAT(refusal_of(""), Contains("empty"));
  CHECK_THAT(refusal_of("abc"), Contains("3 bytes"));
  CHECK_THAT(refusal_of(std::string("\xff\xff\xff\xff\xff\xff\xff\x7f", 8) + "{}"),
             Contains("length of its header"));
  CHECK_THAT(refusal_of(with_header("[]", 0)), Contains("not a JSON object"));
  CHECK_THAT(refusal_of(with_header("{\"a\": 3}", 0)), Contains("needs dtype"));
  const std::string a = R"("a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]})";
  CHECK_THAT(refusal_of(with_header("{" + a + "," + a + "}", 8)), Contains("given twice"));
  CHECK_THAT(refusal_of(with_header("{" + a + "}", 4)), Contains("offsets 0 to 8"));
  CHECK_THAT(refusal_of(with_header("{" + a + "}", 12)), Contains("the file at"));
  CHECK_THAT(
      refusal_of(with_header(R"({"a":{"dtype":"F32","shape":[3],"data_offsets":[0,8]}})", 8)),
      Contains("do not fit its shape"));
  CHECK_THAT(
      refusal_of(with_header(R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[4,12]}})", 12)),
      Contains("hole or overlap"));
  CHECK_THAT(refusal_of(with_header(R"({"a":{"dtype":"Q9","shape":[2],"data_offsets":[0,8]}})", 8)),
             Contains("Q9"));
  CHECK_THAT(
      refusal_of(with_header(
          R"({"a":{"dtype":"F32","shape":[1099511627775,1099511627775],"data_offsets":[0,8]}})",
          8)),
      Contains("too large"));
  CHECK_THAT(refusal_of(with_header("{" + a + "}" + std::string(3, '\0'), 8)),
             Contains("a byte of 0"));
  CHECK_THROWS_AS(SafetensorsFile("/nonexistent"), Error);
  CHECK_THROWS_WITH(write_safetensors("/nonexistent/x", {}), Catch::Contains("cannot create"));
}

TEST_CASE("exported weights are read back to the same parameters") {
  for (const Family family : {Family("gpt2"), Family("llama")}) {
    ModelConfig config;
    config.family = family;
    config.num_layers = 2;
    config.hidden_size = 8;
    config.num_attention_heads = 2;
    config.seq_length = 4;
    config.vocab_size = 10;
    config.qk_layernorm = family == Family("llama");
    const ModelShape model = model_shape(config);
    const auto table = make_parameters(model, Mesh{});
    std::unordered_map<std::string, std::vector<float>> first;
    std::unordered_map<std::string, std::vector<float>> second;
    float value = 0;
    for (const ParamSpec& spec : table) {
      auto& values = first[spec.name];
      values.resize(static_cast<std::size_t>(spec.shape.numel()));
      for (float& x : values) x = value += 0.25F;
      second[spec.name].resize(values.size(), -1.0F);
    }
    const auto source = [&](auto& from) {
      return [&](const std::string& name) {
        for (const ParamSpec& spec : table) {
          if (spec.name == name)
            return Tensor{from[name].data(), spec.shape, DType::f32, DeviceKind::cpu};
        }
        return Tensor{};
      };
    };
    const auto folder = temporary("").parent_path();
    write_model(folder, model, HeldWeights(source(first)), {});
    const HuggingFaceWeights stored(folder, model);
    for (const ParamSpec& spec : table) {
      const bool padded = spec.name == "embedding.token.weight" || spec.name == "head.weight";
      stored.read(spec.name,
                  {.rows = padded ? model.vocab : spec.shape[0],
                   .columns = spec.shape.rank() == 1 ? 1 : spec.shape[1]},
                  second[spec.name].data());
    }
    for (const ParamSpec& spec : table) {
      INFO(spec.name);
      const bool padded = spec.name == "embedding.token.weight" || spec.name == "head.weight";
      const std::int64_t real = padded ? model.vocab * model.hidden : spec.shape.numel();
      for (std::int64_t i = 0; i < real; ++i) {
        REQUIRE(second[spec.name][static_cast<std::size_t>(i)] ==
                first[spec.name][static_cast<std::size_t>(i)]);
      }
    }
  }
}
