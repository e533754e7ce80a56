// trainctl evaluate: loss, perplexity and bits per byte of a model on any data.
#include <filesystem>
#include <nlohmann/json.hpp>

#include "base/json_text.h"
#include "base/units.h"
#include "commands.h"
#include "output.h"
#include "run/models/evaluate.h"

namespace trainctl {

namespace {

constexpr const char* evaluate_examples =
    "  trainctl evaluate --run runs/quickstart\n"
    "  trainctl evaluate --run runs/quickstart --data other.txt --format json\n"
    "  trainctl evaluate configs/gpt.yaml --local-ranks 8\n"
    "  trainctl evaluate --run models/llama --data book.txt --max-sequences 100\n";

std::string to_text(const EvaluateResult& result) {
  std::string text = "data           " + result.data + "\nloss           " +
                     printed("%.6g", result.loss) + " nats per token\nperplexity     " +
                     printed("%.6g", result.perplexity) + " per token\n";
  if (result.bits_per_byte)
    text += "bits per byte  " + printed("%.6g", *result.bits_per_byte) + "\n";
  return text + "sequences      " + format_grouped(result.sequences) + "\ntokens         " +
         format_grouped(result.tokens) + "\n";
}

std::string to_json(const EvaluateResult& result) {
  nlohmann::ordered_json document = {{"format_version", 1},      {"data", result.data},
                                     {"loss", result.loss},      {"perplexity", result.perplexity},
                                     {"bits_per_byte", nullptr}, {"sequences", result.sequences},
                                     {"tokens", result.tokens}};
  if (result.bits_per_byte) document["bits_per_byte"] = *result.bits_per_byte;
  return json_text(document, JsonText::Style::indent_2) + "\n";
}

}  // namespace

int run_evaluate(const Arguments& arguments) {
  CommandLine line(
      "Computes the loss of a model on data: of a run, of a Hugging Face model, or of the run that "
      "a configuration describes. Uses one rank or, under mpirun or with --local-ranks, the run's "
      "own layout or the one of --set.",
      "trainctl evaluate");
  EvaluateRequest request;
  std::string format = "text";
  line.add_config(request.config, request.set_options);
  line.add_device(request.set_options);
  line.require("--config", false);
  line.add_text("--run", request.directory, "A run's output directory, or a Hugging Face directory",
                "DIR");
  line.add_text("--data", request.data,
                "Text, a folder or a token file; default: the configuration's validation data",
                "PATH");
  line.add_text("--tokenizer", request.tokenizer,
                "byte, sentencepiece:MODEL or hf:DIR; default: the run's, or the directory's",
                "NAME");
  line.add_whole_number("--max-sequences", request.max_sequences,
                        "Only the first N sequences; default: all", 1);
  line.add_weights(request.averages);
  line.add_format(format, {"text", "json"});
  line.add_whole_number("--local-ranks", request.local_ranks,
                        "Number of ranks, as threads of this process", 1, 1024);
  line.add_verbosity();
  if (!line.parse(arguments, evaluate_examples)) return 0;
  const std::string& config = request.config;
  if (request.directory.empty() == config.empty()) {
    line.refuse("give --run DIR or --config FILE, one of them");
  }
  if (std::filesystem::is_directory(config)) {
    line.refuse(config + " is a folder, not a YAML file; did you mean '--run " + config + "'?");
  }
  line.check_ranks(request.local_ranks);
  evaluate(request, [&](const EvaluateResult& result) {
    print(format == "json" ? to_json(result) : to_text(result));
  });
  return 0;
}

}  // namespace trainctl
