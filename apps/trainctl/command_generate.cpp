// trainctl generate: continues a text with a trained model.
#include <algorithm>
#include <iostream>

#include "comm/world.h"
#include "commands.h"
#include "execute.h"
#include "output.h"
#include "run/models/generate.h"

namespace trainctl {

namespace {

constexpr const char* examples =
    "  trainctl generate --run runs/quickstart --prompt 'The license' --max-tokens 200\n"
    "  trainctl generate --run runs/quickstart --prompt 'You may' --max-tokens 80 --temperature "
    "0\n"
    "  trainctl generate --run runs/gpt --prompt 'The' --max-tokens 50 --local-ranks 8\n"
    "  mpirun -n 8 trainctl generate --run runs/gpt --prompt 'The' --max-tokens 50\n"
    "  trainctl generate --from models/llama --prompt 'The' --max-tokens 50 --local-ranks 2 --set "
    "parallel.tensor_parallel=2\n";

}  // namespace

int run_generate(const Arguments& arguments) {
  CommandLine line(
      "Continues a text with the weights of a run or of a Hugging Face model. Uses one rank or, "
      "under mpirun or with --local-ranks, the run's own layout or the one of --set.",
      "trainctl generate");
  std::string run;
  std::string from;
  GenerateRequest request;
  std::int64_t max_tokens = 0;
  std::int64_t top_k = 0;
  std::int64_t seed = 1;
  std::int64_t local_ranks = 0;
  double temperature = 1.0;
  line.add_text("--run", run, "The run's output directory", "DIR");
  line.add_text("--from", from, "A Hugging Face directory: config.json and safetensors", "DIR");
  line.add_text("--tokenizer", request.tokenizer,
                "byte or sentencepiece:MODEL; default: the run's, or the directory's", "NAME");
  line.add_set(request.set_options);
  line.add_text("--prompt", request.prompt, "The text to continue", "TEXT");
  line.require("--prompt");
  line.add_whole_number("--max-tokens", max_tokens, "Number of tokens to add", 1);
  line.require("--max-tokens");
  line.add_number("--temperature", temperature, "0: always take the most likely token; default 1",
                  0);
  line.add_whole_number("--top-k", top_k, "Sample from the K most likely tokens; default 0: all",
                        0);
  line.add_whole_number("--seed", seed, "The same seed gives the same text; default 1", 0);
  line.add_whole_number("--local-ranks", local_ranks, "Number of ranks, as threads of this process",
                        1, 1024);
  if (!line.parse(arguments, examples)) return 0;
  if (line.given("--run") == line.given("--from")) {
    line.refuse("give --run DIR or --from DIR, one of them");
  }

  Arguments again = {"generate"};
  again.insert(again.end(), arguments.begin(), arguments.end());
  let_idle_threads_sleep(std::max(launched_as().size, static_cast<int>(local_ranks)), again);
  request.local_ranks = static_cast<int>(local_ranks);
  request.run_dir = line.given("--run") ? run : from;
  request.max_tokens = max_tokens;
  request.top_k = top_k;
  request.seed = static_cast<std::uint64_t>(seed);
  request.temperature = temperature;
  generate(request, std::cout);
  finish_output();
  return 0;
}

}  // namespace trainctl
