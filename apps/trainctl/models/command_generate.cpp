// trainctl generate: continues a text with a trained model.
#include <algorithm>
#include <filesystem>
#include <iostream>
#include <iterator>

#include "base/error.h"
#include "base/file.h"
#include "base/log.h"
#include "base/text.h"
#include "comm/world.h"
#include "commands.h"
#include "output.h"
#include "run/models/generate.h"

namespace trainctl {

namespace {

constexpr const char* generate_examples =
    "  trainctl generate --run runs/quickstart --prompt 'The license' --max-tokens 200\n"
    "  trainctl generate --run runs/quickstart --prompt 'You may' --max-tokens 80 --temperature "
    "0\n"
    "  trainctl generate --run runs/quickstart --prompt-file start.txt --samples 3 --top-p 0.9\n"
    "  echo Once | trainctl generate --run runs/gpt --local-ranks 8\n"
    "  mpirun -n 8 trainctl generate --run runs/gpt --prompt 'The' --max-tokens 50\n"
    "  trainctl generate --from models/llama --prompt 'The' --max-tokens 50 --local-ranks 2 --set "
    "parallel.tensor_parallel=2\n";

/// The prompt from a file or standard input, without the last line end, which editors add.
std::string read_prompt(const std::string& file) {
  std::string text;
  if (file.empty()) {
    if (stdin_is_terminal()) log_info("type the text to continue, and end it with Ctrl-D");
    text.assign(std::istreambuf_iterator<char>(std::cin), {});
  } else {
    constexpr std::int64_t max_bytes = std::int64_t{1} << 30;
    text = read_beginning(file, max_bytes);
  }
  if (text.ends_with('\n')) text.pop_back();
  return text;
}

}  // namespace

int run_generate(const Arguments& arguments) {
  CommandLine line(
      "Continues a text with the weights of a run or of a Hugging Face model. Uses one rank or, "
      "under mpirun or with --local-ranks, the run's own layout or the one of --set. Works on the "
      "device of the run, or that of --device.",
      "trainctl generate");
  GenerateRequest request;
  std::string prompt_file;
  line.add_text("--run", request.run_dir, "The run's output directory", "DIR");
  line.add_text("--from", request.run_dir, "A Hugging Face directory: config.json and safetensors",
                "DIR");
  line.add_text("--tokenizer", request.tokenizer,
                "byte, sentencepiece:MODEL or hf:DIR; default: the run's, or the directory's",
                "NAME");
  line.add_set(request.set_options);
  line.add_device(request.set_options);
  line.add_weights(request.averages);
  line.add_text("--prompt", request.prompt,
                "The text to continue; default: standard input, without its last line end", "TEXT");
  line.add_text("--prompt-file", prompt_file, "A file with the text to continue", "FILE");
  line.add_whole_number("--max-tokens", request.max_tokens,
                        formatted("Number of tokens to add; default {}", request.max_tokens), 1);
  line.add_whole_number("--samples", request.samples,
                        "Number of texts, a line '---' between them; default 1", 1, 1'000'000);
  line.add_number("--temperature", request.temperature,
                  "0: always take the most likely token; default 1", 0);
  line.add_whole_number("--top-k", request.top_k,
                        "Sample from the K most likely tokens; default 0: all", 0);
  line.add_number("--top-p", request.top_p,
                  "Sample from the likeliest tokens that have this share together; default 1: all",
                  0);
  line.add_whole_number("--seed", request.seed, "The same seed gives the same text; default 1", 0);
  line.add_whole_number("--local-ranks", request.local_ranks,
                        "Number of ranks, as threads of this process", 1, 1024);
  line.add_verbosity();
  if (!line.parse(arguments, generate_examples)) return 0;
  if (line.given("--run") == line.given("--from")) {
    line.refuse("give --run DIR or --from DIR, one of them");
  }

  if (!(request.top_p > 0 && request.top_p <= 1)) {
    line.refuse("--top-p must be above 0 and at most 1");
  }
  if (line.given("--prompt") && line.given("--prompt-file")) {
    line.refuse("--prompt and --prompt-file exclude each other");
  }
  if (launched_as().size > 1 && !line.given("--prompt") && !line.given("--prompt-file")) {
    line.refuse("under mpirun only one rank has standard input: give --prompt or --prompt-file");
  }

  line.check_ranks(request.local_ranks);
  if (!line.given("--prompt")) request.prompt = read_prompt(prompt_file);
  generate(request, foreign_output());
  finish_output();
  return 0;
}

}  // namespace trainctl
